"""The trials of a table's column, with the settings of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import default_flat
from fedul_flwr.config.shared import PRETRAINED
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table_file import START_FROM, Size, Table, read_table
from fedul_flwr.experiments.trial import Trial
from fedul_flwr.experiments.trial_plan import Overrides, Plan, apply, in_effect, make_plan, slug

RUNS = Path("runs/reproduce")
"""Directory of the runs, below the working directory."""
START = "start"
"""Name of a run whose model other runs start from."""
START_PREFIX = "start-from:"
"""Prefix of the settings of that run among the settings of a trial."""

_PATHS = ("dataset", "server.dataset", "client-data", "labels.split", START_FROM)


@dataclass(frozen=True)
class Device:
    """The device that runs use, and local copies of data sets. No result depends on it.

    Attributes
    ----------
    name : ``auto``, ``cpu`` or ``cuda``.
    datasets : path of a local copy by the name of the data set.
    """

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
    """Plan all rows of a column; their settings are checked.

    Parameters
    ----------
    tuned : settings that a search chose, by row. The plan then has these rows alone, with the
        chosen settings on top of their own.
    """
    rows = table.rows_of(column, size)
    shared = table.settings_of(column, size)
    output = RUNS / table.name / size / slug(column)
    if tuned is not None:
        rows = {row: {**rows[row], **chosen} for row, chosen in tuned.items()}
        output = RUNS / table.name / f"{size}-tuned" / slug(column)
        shared = in_effect(rows, shared)
    try:
        plan = _plan(rows, shared, seeds, table.num_clients(column, size), output, device, column)
    except UserError as error:
        raise UserError(
            f"{table.file}, column {column!r}, {size}: {error}", error.code, **error.values
        ) from None
    source = str(shared.get(START_FROM, ""))
    if not is_run(source):
        return plan
    settings = start_settings(source, table.experiments)
    output = RUNS / START / Path(source).relative_to("runs")
    start = _plan({START: {}}, settings, seeds, plan.num_clients, output, device)
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
    """Plan several columns.

    Parameters
    ----------
    tuned : settings that a search chose, by column and row; columns without a row are left out.
    """
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


def _plan(
    rows: Mapping[str, Overrides],
    shared: Overrides,
    seeds: Sequence[int],
    clients: int,
    output: Path,
    device: Device,
    column: str = "",
) -> Plan:
    """Plan runs on this device; the settings of the trials keep the experiment's names of paths."""
    plan = make_plan(rows, device.overrides(shared), seeds, clients, output, column)
    names = {row: {**default_flat(), **shared, **of_row} for row, of_row in rows.items()}
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


def is_run(source: str) -> bool:
    """Whether a value of ``start-from`` names the model of another run."""
    return source not in ("", PRETRAINED)


def start_table(source: str) -> tuple[str, Size]:
    """Name of the table and size in ``runs/TABLE/NAME`` or ``runs/TABLE/quick/NAME``."""
    folder = Path(source).relative_to("runs").parent
    if folder.name == "quick":
        return folder.parent.as_posix(), "quick"
    return folder.as_posix(), "full"


def start_settings(source: str, experiments: Path) -> dict[str, Scalar]:
    """Settings of the run that ``source``, a value of ``start-from``, names.

    They are those of the table's column that starts from it, with the table's ``start`` on top.
    """
    name, size = start_table(source)
    table = read_table(experiments, name)
    for column in table.columns:
        shared = table.settings_of(column, size)
        if shared.pop(START_FROM, "") == source and table.settings.start:
            return apply(shared, table.start_of(size))
    raise UserError(f"{table.file} has no start for {source!r}.", "table-file-wrong")


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
