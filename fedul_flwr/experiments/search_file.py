"""Stored searches: a JSON file for each table and size, and the settings that they chose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedul_flwr.config.base import Scalar
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.result_file import (
    ResultFile,
    differences,
    provenance,
    read_records,
    write_records,
)
from fedul_flwr.experiments.search import RowSearch, best_of, ended_searches
from fedul_flwr.experiments.table_file import Table
from fedul_flwr.experiments.table_plan import Device, plan_column
from fedul_flwr.experiments.trial import Log, Trial, changes_text, digest
from fedul_flwr.experiments.trial_plan import Overrides, Plan
from fedul_flwr.run.user_content import changed_content

StoredSearch = Mapping[str, Any]
"""The stored search of one row as :func:`make_search` makes it."""
RowKey = tuple[str, str]
"""Row and column."""

_PARTS = {
    "row": str,
    "column": str,
    "criterion": str,
    "selection": str,
    "seed": int,
    "seeds": list,
    "hash": str,
    "settings": dict,
    "search": dict,
    "trials": list,
    "outcome-hash": str,
}
"""Keys that every search must have, and their types; there are more."""
_OUTCOME = ("criterion", "selection", "seeds", "chosen", "search", "trials")
"""Keys that the hash of the outcome covers."""


def run_searches(
    tasks: Sequence[RowSearch],
    file: Path,
    name: str,
    jobs: int,
    log: Log,
    command: Callable[[RowSearch], str],
) -> int:
    """Run the searches, and store the search of each row as soon as it ends.

    Parameters
    ----------
    file : file of the stored searches; searches of other rows stay in it.
    name : name of the table, or of the file of runs.
    jobs : number of rows that are searched at the same time.
    command : command that makes the search of a row again.

    Returns
    -------
    Number of trials that failed.
    """
    failed = 0
    for task, records in ended_searches(tasks, jobs, log):
        stored = read_searches(file)
        key = task.row, task.column
        search = make_search(task, records, stored.get(key), command(task))
        searches = sorted(
            {**stored, key: search}.values(), key=lambda one: (one["column"], one["row"])
        )
        write_records(file, name, "searches", searches)
        failed += sum(record["state"] == "failed" for record in records)
        chosen = search["chosen"]
        if chosen is None:
            log(f"{task.title}: no trial was complete, so no settings are chosen.")
        else:
            text = task.criterion.text(chosen["value"])
            log(f"{task.title}: trial {chosen['trial'] + 1} is chosen, {text}.")
    return failed


def make_search(
    task: RowSearch,
    records: Sequence[Mapping[str, Any]],
    earlier: StoredSearch | None,
    command: str,
) -> dict[str, Any]:
    """The stored search of a row.

    Parameters
    ----------
    records : the trials' records, see :func:`~fedul_flwr.experiments.search.run_search`.
    earlier : the stored search that this one replaces; its seeds count as seen, too.
    command : command that makes the search again.
    """
    about: Mapping[str, Any] = next((r["environment"] for r in records if r["environment"]), {})
    origin = provenance(about, datetime.now(UTC))
    origin["versions"]["optuna"] = version("optuna")
    trials = [{k: v for k, v in record.items() if k != "environment"} for record in records]
    best = best_of(records)
    settings = dict(sorted(task.settings.items()))
    content = {
        "row": task.row,
        "column": task.column,
        "criterion": task.criterion.name,
        "selection": task.criterion.selection,
        "seed": task.seed,
        "seeds": sorted({*task.seeds, *(earlier["seeds"] if earlier else ())}),
        "chosen": None if best is None else _chosen(best, task),
        "hash": digest(settings),
        "settings": settings,
        **({"content": dict(task.content)} if task.content else {}),
        "search": task.search.model_dump(by_alias=True),
        "trials": trials,
        "seconds": sum(trial["seconds"] for trial in trials),
        "command": command,
        **origin,
    }
    return content | {"outcome-hash": outcome_hash(content)}


def outcome_hash(search: StoredSearch) -> str:
    """SHA-256 of the definition of a search, its trials and its choice."""
    return digest({key: search.get(key) for key in _OUTCOME})


def _chosen(best: Mapping[str, Any], task: RowSearch) -> dict[str, Any]:
    """The best trial, and its settings; a run with them chooses its round as the trials did."""
    chooses = task.criterion.selection
    is_validated = task.criterion.name == "validation" or chooses != task.criterion.name
    as_the_row = task.all_settings["selection"] == chooses
    also = {} if is_validated or as_the_row else {"selection": chooses}
    return {
        "trial": best["trial"],
        "value": best["value"],
        "round": best["round"],
        "settings": {**best["settings"], **also},
    }


def read_searches(file: Path) -> dict[RowKey, StoredSearch]:
    """Searches of a file by row and column; without the file there are none."""
    searches = read_records(file, "searches", "searches", "search", _PARTS)
    for one in searches:
        if one["outcome-hash"] != outcome_hash(one) or one["hash"] != digest(one["settings"]):
            raise UserError(
                f"{file}: the search of row {one['row']!r}, column {one['column']!r} does not have "
                f"its hashes, so it was edited: search it again with {one.get('command')}",
                "result-edited",
            )
    return {(one["row"], one["column"]): one for one in searches}


def trial_counts(search: StoredSearch) -> str:
    """How many trials ended in which state: ``12: 4 complete, 8 pruned``."""
    states = Counter(trial["state"] for trial in search["trials"])
    ended = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{len(search['trials'])}: {ended}"


def tuned_rows(
    table: Table, column: str, file: ResultFile, seeds: Mapping[str, Sequence[int]]
) -> dict[str, Overrides]:
    """Settings that the searches of a column chose, by row.

    Parameters
    ----------
    file : file of the results of tuned runs.
    seeds : the rows, and the seeds that each is to run with.
    """
    searches = read_searches(file.searches)
    quick = " --quick" if file.size == "quick" else ""
    again = f"search it with fedul-flwr tune {table.name}{quick}"
    plan = plan_column(table, column, file.size, (0,), Device())
    now = {trial.row: trial for trial in plan.trials}
    return {
        row: _chosen_settings(file.searches, searches, (row, column), now[row], of_seed, again)
        for row, of_seed in seeds.items()
    }


def tuned_runs(plan: Plan, file: Path) -> dict[str, Overrides]:
    """Own settings of the runs of a comparison with the settings that their searches chose on top.

    Parameters
    ----------
    plan : the comparison without these settings.
    file : ``search.json`` of ``fedul-flwr tune --runs``.
    """
    if not file.is_file():
        raise UserError(
            f"--tuned {file} is no file: fedul-flwr tune --runs writes one.",
            "file-missing",
            option="--tuned",
        )
    searches = read_searches(file)
    now = {trial.row: trial for trial in plan.trials}
    again = "search it with fedul-flwr tune --runs"
    return {
        row: {
            **of_row, **_chosen_settings(file, searches, (row, ""), now[row], plan.seeds, again)
        }
        for row, of_row in plan.rows.items()
    }  # fmt: skip


def _chosen_settings(
    file: Path,
    searches: Mapping[RowKey, StoredSearch],
    key: RowKey,
    now: Trial,
    seeds: Iterable[int],
    again: str,
) -> Overrides:
    """Settings that the search of a row chose, whose trial is ``now`` but for the seed.

    The search must not have used the ``seeds`` to run with: its choice fits their splits.
    """
    row, column = key
    name = f"row {row!r}" + (f", column {column!r}" if column else "")
    search = searches.get(key)
    if search is None:
        raise UserError(f"{file} has no search of {name}: {again}", "search-missing")
    then = {key: value for key, value in search["settings"].items() if key != "seed"}
    present = {key: value for key, value in now.settings.items() if key != "seed"}
    if changed := differences(then, present):
        raise UserError(
            f"The search of {name} was made with other settings ({changes_text(changed)}): {again}",
            "result-of-other-settings",
        )
    for setting in changed_content(search.get("content", {}), now.content):
        raise UserError(
            f"The search of {name} was made with another content of {setting} = "
            f"{now.config.to_flat()[setting]!r}, which has changed since: {again}",
            "result-of-other-settings",
        )
    if search["chosen"] is None:
        raise UserError(f"No trial of the search of {name} was complete: {again}", "search-failed")
    for seed in seeds:
        if seed in search["seeds"]:
            raise UserError(
                f"Seed {seed} was used by the search; choose others with --seeds.",
                "option-not-allowed",
            )
    settings: Mapping[str, Scalar] = search["chosen"]["settings"]
    return settings
