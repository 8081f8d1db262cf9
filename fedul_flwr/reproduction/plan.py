"""Which runs a table needs, and with which settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedul_flwr.comparison.plan import Cell, Overrides, Plan, make_plan, slug
from fedul_flwr.config.base import Scalar
from fedul_flwr.config.overrides import flatten, read_toml
from fedul_flwr.config.run_config import OF_THE_MACHINE, default_flat
from fedul_flwr.config.shared import PRETRAINED
from fedul_flwr.errors import UserError
from fedul_flwr.reproduction.tables import Size, Table

RUNS = Path("runs/reproduce")
"""Where runs lie, below the working directory."""
START = "start"
"""Name of a run whose model others start from."""
CLIENTS = "num-supernodes"
"""Key of the number of clients among a result's settings."""

_PATHS = ("dataset", "server.dataset", "client-data", "labels.split", "start-from")


@dataclass(frozen=True)
class Machine:
    """What a run takes from where it runs, and no result depends on.

    Attributes
    ----------
    experiments : folder of the experiments.
    datasets : path of a local copy by the data set's name.
    device : as in the settings.
    """

    experiments: Path
    datasets: Mapping[str, Path] = field(default_factory=dict)
    device: str = "auto"

    def overrides(self, experiment: Path) -> dict[str, Scalar]:
        """Settings of an experiment for this machine."""
        found = flatten(read_toml(experiment)) | {"device": self.device}
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
        Naming the experiment, the row and the setting that is refused.
    """
    experiment = table.experiment(column, size)
    rows = table.rows_of(column, size)
    clients = table.num_clients(column, size)
    given = flatten(read_toml(experiment))
    output = RUNS / table.name / size / slug(column)
    if tuned is not None:
        rows = {row: {**rows[row], **chosen} for row, chosen in tuned.items()}
        output = RUNS / table.name / f"{size}-tuned" / slug(column)
    try:
        plan = make_plan(rows, machine.overrides(experiment), seeds, clients, output)
    except UserError as error:
        raise UserError(f"{experiment}: {error}") from None
    named = {
        (cell.run, cell.seed): _named(cell, {**given, **rows[cell.run]}, clients)
        for cell in plan.cells
    }
    start = None
    source = str(given.get("start-from", ""))
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
    """Runs of the experiment that ``source``, its output, has the path of below ``runs/``."""
    place = Path(source).relative_to("runs")
    experiment = machine.experiments / place.with_name(f"{place.name}.toml")
    given = flatten(read_toml(experiment))
    output = RUNS / START / place
    plan = make_plan({START: {}}, machine.overrides(experiment), seeds, clients, output)
    named = {(START, cell.seed): _named(cell, given, clients) for cell in plan.cells}
    return ColumnPlan(START, plan, named, None, _dataset(given))


def of_this_machine(cell: Cell) -> dict[str, Scalar]:
    """Settings of a cell that say where it runs and where its files are, and change no result."""
    return {key: v for key, v in cell.config.to_flat().items() if key in ("device", *_PATHS)}


def _starting(cell: Cell, start: Plan) -> Cell:
    model = next(found.directory for found in start.cells if found.seed == cell.seed)
    update: dict[str, Any] = {"start_from": str(model)}
    return replace(cell, config=cell.config.model_copy(update=update))
