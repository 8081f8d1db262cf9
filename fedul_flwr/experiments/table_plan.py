"""The trials of a table's column, and settings of its rows as a TOML file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import default_flat
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table import START_FROM, Size, Table, pick
from fedul_flwr.experiments.trial import START_PREFIX, Trial
from fedul_flwr.experiments.trial_plan import Overrides, Plan, apply, in_effect, make_plan, slug

RUNS = Path("runs/reproduce")
"""Directory of the runs, below the working directory."""
START = "start"
"""Name of a run whose model other runs start from."""

_PATHS = ("dataset", "server.dataset", "client-data", "labels.split", START_FROM)


@dataclass(frozen=True)
class Device:
    """The device that runs use, and local copies of data sets by name. No result depends on it."""

    name: str = "auto"
    datasets: Mapping[str, Path] = field(default_factory=dict)

    def overrides(self, settings: Overrides) -> dict[str, Scalar]:
        """Settings of a table with this device and its local copy of the data set."""
        overrides = {**settings, "device": self.name}
        local = self.datasets.get(str(overrides.get("dataset")))
        return overrides if local is None else overrides | {"dataset": str(local)}


def plan_column(
    table: Table,
    column: str,
    size: Size,
    seeds: Sequence[int],
    device: Device,
    tuned: Mapping[str, Overrides] | None = None,
) -> Plan:
    """Plan all rows of a column, or ``tuned`` ones with what a search chose on top."""
    one = table.column(column, size)
    rows, shared = one.rows, one.settings
    output = RUNS / table.name / size / slug(column)
    if tuned is not None:
        rows = {row: {**rows[row], **chosen} for row, chosen in tuned.items()}
        output = RUNS / table.name / f"{size}-tuned" / slug(column)
        shared = in_effect(rows, shared)
    try:
        plan = make_plan(rows, device.overrides(shared), seeds, one.clients, output, column)
    except UserError as error:
        raise UserError(
            f"{table.file}, column {column!r}, {size}: {error}", error.code, **error.values
        ) from None
    plan = _with_names(plan, shared, device)
    if one.start is None:
        return plan
    first_settings, rows = apply(one.start, {}), {START: {}}
    output = RUNS / START / Path(str(shared[START_FROM])).relative_to("runs")
    start = make_plan(rows, device.overrides(first_settings), seeds, one.clients, output)
    start = _with_names(start, first_settings, device)
    first = {trial.seed: trial for trial in start.trials}
    return replace(
        plan, start=start, trials=tuple(_starting(one, first[one.seed]) for one in plan.trials)
    )


def plan_columns(
    table: Table,
    columns: Sequence[str],
    size: Size,
    seeds: Sequence[int],
    device: Device,
    tuned: Mapping[str, Mapping[str, Overrides]] | None = None,
) -> list[Plan]:
    """Plan several columns, of ``tuned`` ones those that have a row."""
    plans = [
        plan_column(table, column, size, seeds, device, None if tuned is None else tuned[column])
        for column in columns
        if tuned is None or tuned[column]
    ]
    datasets = sorted({str(trial.settings["dataset"]) for plan in plans for trial in plan.trials})
    for name in device.datasets:
        if name not in datasets:
            raise UserError(
                f"--dataset {name}: the runs use {', '.join(datasets)}.",
                "unknown-name",
                option="--dataset",
            )
    return plans


def _with_names(plan: Plan, shared: Overrides, device: Device) -> Plan:
    """A plan on this device with the experiment's names of data and paths in trials' settings."""
    names = {row: {**default_flat(), **shared, **settings} for row, settings in plan.rows.items()}
    trials = [
        replace(
            trial,
            settings={
                key: names[trial.row][key] if key in _PATHS else value
                for key, value in trial.settings.items()
            },
            content={
                key: value
                for key, value in trial.content.items()
                if names[trial.row][key] not in device.datasets  # copies may have another form
            },
        )
        for trial in plan.trials
    ]
    return replace(plan, trials=tuple(trials))


def local_settings(trial: Trial) -> dict[str, Scalar]:
    """Settings of a trial that differ between computers: the device and paths."""
    return {key: v for key, v in trial.config.to_flat().items() if key in ("device", *_PATHS)}


def _starting(trial: Trial, start: Trial) -> Trial:
    """``trial`` starting from the model of ``start``, whose settings it records, too."""
    return replace(
        trial,
        config=trial.config.model_copy(update={"start_from": str(start.directory)}),
        content={key: value for key, value in trial.content.items() if key != START_FROM},
        settings={
            **trial.settings,
            **{f"{START_PREFIX}{key}": value for key, value in start.settings.items()},
        },
    )


def flat_file(table: Table, column: str, size: Size, row: str | None) -> str:
    """Settings of a row in a column, a line each, below comments with the commands that run it.

    The row ``start`` is the run whose model the column starts from. None is the only row of the
    column or, if it has several rows, the settings that they share.
    """
    if table.benchmark:
        raise UserError(
            f"--print has no effect on {table.name}: a benchmark measures it.",
            "option-without-effect",
            option="--print",
        )
    one = table.column(_one(column, table.names, "column"), size)
    if row is None and len(one.rows) == 1:
        (row,) = one.rows
    if row == START and one.start is not None:
        settings: Overrides = {**apply(one.start, {}), "output": one.settings[START_FROM]}
    else:
        settings_of_row = {} if row is None else one.rows[_one(row, list(one.rows), "row")]
        settings = apply(one.settings, settings_of_row)
    quick = ["--quick"] if size == "quick" else []
    comments = [
        f"{', '.join([table.name, one.name, row or 'all rows', *(['quick'] if quick else [])])}.",
        f"{table.title}. {table.source}.",
        f"fedul-flwr run -c FILE --num-supernodes {one.clients}",
        f"flwr run . --run-config FILE --federation-config 'num-supernodes={one.clients}' --stream",
    ]
    if one.start is not None and row != START:
        first = ["fedul-flwr", "reproduce", table.name, "--print", one.name, "--rows", START]
        comments.append(f"Run first what this prints: {shlex.join([*first, *quick])}")
    if row is None:
        comments.append("It has what all rows share; --rows ROW has the settings of one.")
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join([*(f"# {line}" for line in comments), *lines]) + "\n"


def _one(wanted: str, names: Sequence[str], noun: str) -> str:
    picked = pick(wanted, names, noun)
    if len(picked) > 1:
        raise UserError(
            f"--print takes one {noun}, not {', '.join(picked)}.",
            "option-not-allowed",
            option="--print",
        )
    return picked[0]
