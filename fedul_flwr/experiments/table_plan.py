"""The trials of a table's columns, and settings of its rows as a TOML file."""

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
from fedul_flwr.experiments.trial_plan import (
    Overrides,
    apply,
    in_effect,
    make_trials,
    prefixed,
    slug,
)

RUNS = Path("runs/reproduce")
"""Directory of the runs, below the working directory."""
START = "start"
"""Name of a run whose model other runs start from."""
PATHS = ("dataset", "server.dataset", "client-data", "labels.split", START_FROM)
"""Settings that name paths, which differ between computers."""


@dataclass(frozen=True)
class Device:
    """The device that runs use, and local copies of data sets by name. No result depends on it."""

    name: str = "auto"
    datasets: Mapping[str, Path] = field(default_factory=dict)


def plan_columns(
    table: Table,
    columns: Sequence[str],
    size: Size,
    seeds: Sequence[int],
    device: Device,
    tuned: Mapping[str, Mapping[str, Overrides]] | None = None,
) -> list[Trial]:
    """The trials of all rows of columns, or of ``tuned`` ones with what a search chose on top."""
    trials: list[Trial] = []
    for column in columns if tuned is None else filter(tuned.get, columns):
        with prefixed(f"{table.file}, column {column!r}, {size}"):
            chosen = None if tuned is None else tuned[column]
            trials += _plan_column(table, column, size, seeds, device, chosen)
    datasets = sorted({str(trial.settings["dataset"]) for trial in trials})
    for name in device.datasets:
        if name not in datasets:
            raise UserError(
                f"--dataset {name}: the runs use {', '.join(datasets)}.",
                "unknown-name",
                option="--dataset",
            )
    return trials


def _plan_column(
    table: Table,
    column: str,
    size: Size,
    seeds: Sequence[int],
    device: Device,
    tuned: Mapping[str, Overrides] | None,
) -> list[Trial]:
    one = table.column(column, size)
    rows, shared, kind = one.rows, one.settings, str(size)
    if tuned is not None:
        rows = {row: {**rows[row], **chosen} for row, chosen in tuned.items()}
        shared, kind = in_effect(rows, shared), f"{size}-tuned"

    def make(
        rows: Mapping[str, Overrides], shared: Overrides, output: Path, column: str = ""
    ) -> list[Trial]:
        here = {**shared, "device": device.name}
        if (name := str(here.get("dataset"))) in device.datasets:
            here["dataset"] = str(device.datasets[name])
        trials = make_trials(rows, here, seeds, one.clients, output, column)
        return [_portable(t, {**default_flat(), **shared, **rows[t.row]}, device) for t in trials]

    trials = make(rows, shared, RUNS / table.name / kind / slug(column), column)
    if one.start is None:
        return trials
    output = RUNS / START / Path(str(shared[START_FROM])).relative_to("runs")
    starts = {first.seed: first for first in make({START: {}}, apply(one.start, {}), output)}
    return [_starting(trial, starts[trial.seed]) for trial in trials]


def _portable(trial: Trial, names: Mapping[str, Scalar], device: Device) -> Trial:
    """A trial of this computer with the experiment's names of data and paths in its settings."""
    settings = {key: names[key] if key in PATHS else v for key, v in trial.settings.items()}
    # Local copies may have another form.
    content = {key: v for key, v in trial.content.items() if names[key] not in device.datasets}
    return replace(trial, settings=settings, content=content)


def _starting(trial: Trial, start: Trial) -> Trial:
    """``trial`` starting from the model of ``start``, whose settings it records, too."""
    first = {f"{START_PREFIX}{key}": value for key, value in start.settings.items()}
    return replace(
        trial,
        config=trial.config.model_copy(update={START_FROM.replace("-", "_"): str(start.directory)}),
        content={key: value for key, value in trial.content.items() if key != START_FROM},
        settings={**trial.settings, **first},
        start=start,
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
