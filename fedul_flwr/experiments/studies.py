"""The searches of a table: an Optuna study for each row, all in one journal file that git can hold.

A study's trials have the settings that they tried, its user attributes what was searched:
``definition`` (settings of the row, the search, its measure), ``seeds`` that it has seen, and
``also``, settings of runs with its choice beside those of the best trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul_flwr.config.user_files import regular_file
from fedul_flwr.errors import UserError, require
from fedul_flwr.experiments.runs_file import RunsFile
from fedul_flwr.experiments.table import Table
from fedul_flwr.experiments.table_plan import Device, plan_columns
from fedul_flwr.experiments.trial import Key, Trial, changes
from fedul_flwr.experiments.trial_plan import Overrides, Plan

if TYPE_CHECKING:
    import pandas as pd
    from optuna import Study
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

Definition = Mapping[str, Any]


def require_optuna() -> None:
    """Refuse to search, or to read a search, if Optuna is not installed."""
    require("tune", "A search", "optuna")


def study_name(row: str, column: str = "", size: str = "") -> str:
    """Name of the study of a row; in a comparison of runs it is that of the row."""
    return " / ".join(filter(None, (size, column, row)))


def journal(file: Path) -> BaseStorage:
    """The studies of a file, which is made if it does not exist."""
    require_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        return JournalStorage(JournalFileBackend(str(regular_file(file))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} is not a file of searches: {type(error).__name__}.", "result-file-wrong"
        ) from None


def read_studies(file: Path) -> dict[str, Study]:
    """Studies of a file by name; without the file there are none."""
    if not regular_file(file).exists():
        return {}
    storage = journal(file)
    import optuna

    names = optuna.get_all_study_names(storage)
    return {name: optuna.load_study(study_name=name, storage=storage) for name in sorted(names)}


def same_search(then: Definition | None, now: Definition) -> bool:
    """Whether a stored definition is that of a search now; it may lack newer settings."""
    others = ("search", "criterion", "selection")
    return (
        then is not None and all(then[key] == now[key] for key in others) and not changes(then, now)
    )


def best_of(study: Study) -> FrozenTrial | None:
    """The complete trial with the lowest value, the first of equal ones; None without any."""
    try:
        return study.best_trial
    except ValueError:
        return None


def chosen_settings(study: Study) -> Overrides | None:
    """Settings that a study chose; None if no trial was complete."""
    best = best_of(study)
    return None if best is None else {**best.user_attrs["settings"], **study.user_attrs["also"]}


def state_of(trial: FrozenTrial) -> str:
    """How a trial ended: ``complete``, ``pruned``, ``diverged`` or ``failed``."""
    if trial.user_attrs.get("diverged"):
        return "diverged"
    return "failed" if trial.state.name == "FAIL" else trial.state.name.lower()


def trials_table(study: Study) -> pd.DataFrame:
    """The trials of a study in readable form."""
    frame = study.trials_dataframe(attrs=("number", "value", "user_attrs"))
    frame.columns = [str(name).removeprefix("user_attrs_") for name in frame.columns]
    frame["trial"] = frame["position"] + 1
    frame["state"] = [state_of(trial) for trial in study.get_trials(deepcopy=False)]
    frame["settings"] = [
        ", ".join(f"{key} = {value}" for key, value in one.items()) or "the experiment's"
        for one in frame["settings"]
    ]
    shown = [name for name in ("trial", "state", "value", "round", "rounds", "seconds", "settings")
             if name in frame]  # fmt: skip
    return frame[shown].round({"value": 4, "seconds": 0})


def tuned_rows(
    table: Table, file: RunsFile, keys: Iterable[Key]
) -> dict[str, dict[str, Overrides]]:
    """Settings that searches chose, by column and row, for runs with these keys."""
    studies, seeds = read_studies(file.searches), dict[tuple[str, str], list[int]]()
    for row, column, seed in keys:
        seeds.setdefault((row, column), []).append(seed)
    columns = list(dict.fromkeys(column for _, column in seeds))
    now = {
        (trial.row, trial.column): trial
        for trial in plan_columns(table, columns, file.size, (0,), Device())
    }
    again = f"search it with fedul-flwr tune {table.name}{' --quick' * (file.size == 'quick')}"
    chosen: dict[str, dict[str, Overrides]] = {column: {} for column in columns}
    for (row, column), of_cell in seeds.items():
        searched = table.chosen_with.get(row, row)
        study = studies.get(study_name(searched, column, file.size))
        chosen[column][row] = _choice(study, now[searched, column], of_cell, again)
    return chosen


def tuned_runs(plan: Plan, file: Path) -> dict[str, Overrides]:
    """Own settings of the runs of a comparison with what their searches in a file chose on top."""
    if not file.is_file():
        raise UserError(
            f"--tuned {file} is no file: fedul-flwr tune --runs writes one.",
            "file-missing",
            option="--tuned",
        )
    studies, now = read_studies(file), {trial.row: trial for trial in plan.trials}
    again = "search it with fedul-flwr tune --runs"
    return {
        row: {**settings, **_choice(studies.get(study_name(row)), now[row], plan.seeds, again)}
        for row, settings in plan.rows.items()
    }


def _choice(study: Study | None, now: Trial, seeds: Iterable[int], again: str) -> Overrides:
    """Settings that a row's study chose; the row's trial is ``now`` but for the seed.

    The search must not have used the ``seeds`` to run with: its choice fits their splits.
    """
    name = f"row {now.row!r}" + f", column {now.column!r}" * bool(now.column)
    if study is None:
        raise UserError(f"There is no search of {name}: {again}", "search-missing")
    then, present = (
        {**one, "settings": {**one["settings"], "seed": 0}}
        for one in (study.user_attrs["definition"], now.definition)
    )
    if text := changes(then, present):
        raise UserError(
            f"The search of {name} was made with other settings or files ({text}): {again}",
            "result-of-other-settings",
        )
    settings = chosen_settings(study)
    if settings is None:
        raise UserError(f"No trial of the search of {name} was complete: {again}", "search-failed")
    if seen := [seed for seed in seeds if seed in study.user_attrs["seeds"]]:
        raise UserError(
            f"Seed {seen[0]} was used by the search; choose others with --seeds.",
            "option-not-allowed",
        )
    return settings
