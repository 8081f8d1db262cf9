"""Which runs a table needs, and with which settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import OF_THE_MACHINE, default_flat
from fedul_flwr.config.shared import PRETRAINED
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.table_file import START_FROM, Size, Table, read_table
from fedul_flwr.experiments.trial_plan import Cell, Overrides, Plan, apply, make_plan, slug

RUNS = Path("runs/reproduce")
"""Where runs lie, below the working directory."""
START = "start"
"""Name of a run whose model others start from."""
CLIENTS = "num-supernodes"
"""Key of the number of clients among a result's settings."""

_PATHS = ("dataset", "server.dataset", "client-data", "labels.split", START_FROM)


@dataclass(frozen=True)
class Machine:
    """What a run takes from where it runs, and no result depends on.

    Attributes
    ----------
    experiments : folder of the tables.
    datasets : path of a local copy by the data set's name.
    device : as in the settings.
    """

    experiments: Path
    datasets: Mapping[str, Path] = field(default_factory=dict)
    device: str = "auto"

    def overrides(self, settings: Overrides) -> dict[str, Scalar]:
        """Settings of a table for this machine."""
        found = {**settings, "device": self.device}
        local = self.datasets.get(str(found.get("dataset")))
        return found if local is None else found | {"dataset": str(local)}


@dataclass(frozen=True)
class ColumnPlan:
    """The runs of a column.

    Attributes
    ----------
    plan : a cell for each row and seed.
    named : settings of every cell as the experiment has them, by row and seed: nothing of this
        machine, and the number of clients. Settings of the run whose model it starts from follow as
        ``start-from:KEY``.
    start : the runs whose models these start from, one a seed, a column of their own.
    dataset : the data set's name.
    """

    column: str
    plan: Plan
    named: Mapping[tuple[str, int], Mapping[str, Scalar]]
    start: ColumnPlan | None
    dataset: str


def plan_column(
    table: Table,
    column: str,
    size: Size,
    seeds: Sequence[int],
    machine: Machine,
    tuned: Mapping[str, Overrides] | None = None,
) -> ColumnPlan:
    """Check the settings of all rows of a column.

    Parameters
    ----------
    tuned : what a search chose, by row: only these rows, with these settings on top of their own.

    Raises
    ------
    UserError
        Naming the table, the row and the setting that is refused.
    """
    rows = table.rows_of(column, size)
    clients = table.num_clients(column, size)
    given = table.settings_of(column, size)
    output = RUNS / table.name / size / slug(column)
    if tuned is not None:
        rows = {row: {**rows[row], **chosen} for row, chosen in tuned.items()}
        output = RUNS / table.name / f"{size}-tuned" / slug(column)
    try:
        plan = make_plan(rows, machine.overrides(given), seeds, clients, output)
    except UserError as error:
        raise UserError(f"{table.file}, column {column!r}, {size}: {error}") from None
    named = {
        (cell.run, cell.seed): _named(cell, {**given, **rows[cell.run]}, clients)
        for cell in plan.cells
    }
    start = None
    source = str(given.get(START_FROM, ""))
    if source not in ("", PRETRAINED):
        start = _plan_start(source, clients, seeds, machine)
        plan = replace(plan, cells=tuple(_starting(cell, start.plan) for cell in plan.cells))
        named = {
            (row, seed): flat
            | {f"start-from:{key}": value for key, value in start.named[START, seed].items()}
            for (row, seed), flat in named.items()
        }
    return ColumnPlan(column, plan, named, start, _dataset(given))


def plan_columns(
    table: Table,
    columns: Sequence[str],
    size: Size,
    seeds: Sequence[int],
    machine: Machine,
    tuned: Mapping[str, Mapping[str, Overrides]] | None = None,
) -> list[ColumnPlan]:
    """Plans of several columns.

    Parameters
    ----------
    tuned : what a search chose, by column and row.

    Raises
    ------
    UserError
        As :func:`plan_column`, and for a data set of ``machine`` that no column uses.
    """
    plans = [
        plan_column(table, column, size, seeds, machine, None if tuned is None else tuned[column])
        for column in columns
    ]
    known = sorted({plan.dataset for plan in plans})
    for name in machine.datasets:
        if name not in known:
            raise UserError(f"--dataset {name}: the runs use {', '.join(known)}.")
    return plans


def _named(cell: Cell, given: Overrides, clients: int) -> dict[str, Scalar]:
    defaults = default_flat()
    flat = {key: v for key, v in cell.config.to_flat().items() if key not in OF_THE_MACHINE}
    names = {key: given.get(key, defaults[key]) for key in _PATHS if key in flat}
    return flat | names | {CLIENTS: clients}


def _dataset(given: Overrides) -> str:
    return str(given.get("dataset", default_flat()["dataset"]))


def _plan_start(source: str, clients: int, seeds: Sequence[int], machine: Machine) -> ColumnPlan:
    """The runs whose model ``source``, ``runs/TABLE/NAME`` or ``runs/TABLE/quick/NAME``, is."""
    given = start_settings(source, machine.experiments)
    output = RUNS / START / Path(source).relative_to("runs")
    plan = make_plan({START: {}}, machine.overrides(given), seeds, clients, output)
    named = {(START, cell.seed): _named(cell, given, clients) for cell in plan.cells}
    return ColumnPlan(START, plan, named, None, _dataset(given))


def start_table(source: str) -> tuple[str, Size]:
    """Name of the table, and size, that ``runs/TABLE/NAME`` or ``runs/TABLE/quick/NAME`` is of."""
    folder = Path(source).relative_to("runs").parent
    if folder.name == "quick":
        return folder.parent.as_posix(), "quick"
    return folder.as_posix(), "full"


def start_settings(source: str, experiments: Path) -> dict[str, Scalar]:
    """Settings of the run whose model ``source``, as in ``start-from``, is.

    They are those of the table's column that starts from it, with the table's ``start`` on top.

    Raises
    ------
    UserError
        If no column does, or the table says nothing of the runs that columns start from.
    """
    name, size = start_table(source)
    table = read_table(experiments, name)
    for column in table.columns:
        shared = table.settings_of(column, size)
        if shared.pop(START_FROM, "") == source and table.settings.start:
            return apply(shared, table.start_of(size))
    raise UserError(f"{table.file} has no start for {source!r}.")


def of_this_machine(cell: Cell) -> dict[str, Scalar]:
    """Settings of a cell that say where it runs and where its files are, and change no result."""
    return {key: v for key, v in cell.config.to_flat().items() if key in ("device", *_PATHS)}


def _starting(cell: Cell, start: Plan) -> Cell:
    model = next(found.directory for found in start.cells if found.seed == cell.seed)
    update: dict[str, Any] = {"start_from": str(model)}
    return replace(cell, config=cell.config.model_copy(update=update))
