"""Which rows a search is made for: of a table, or of a file of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import OF_THE_MACHINE, keys_in_use, resolve
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.criterion import Name, criterion_of
from fedul_flwr.experiments.result_file import digest
from fedul_flwr.experiments.row_search import StudyTask
from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.table_plan import CLIENTS, ColumnPlan
from fedul_flwr.experiments.trial_plan import Cell, Plan, slug

TRIALS = Path("runs/tune")
"""Where trials lie, below the working directory."""


@dataclass(frozen=True)
class StudyPlan:
    """A study, and the settings of its row by which its result is known again.

    Attributes
    ----------
    named : settings as the experiment has them, with the number of clients and the search's seed.
    """

    task: StudyTask
    named: Mapping[str, Scalar]

    @property
    def key(self) -> tuple[str, str]:
        """Row and column."""
        return self.task.row, self.task.column


def plan_table(
    columns: Sequence[ColumnPlan],
    rows: Sequence[str],
    search: Search,
    criterion: Name,
    directory: Path,
) -> list[StudyPlan]:
    """Studies of the ``rows`` of columns that were planned with the search's seed alone.

    Raises
    ------
    UserError
        Naming the row that cannot be searched, and why.
    """
    found = []
    for column in columns:
        cells = [cell for cell in column.plan.cells if cell.run in rows]
        if column.start is not None and cells:
            raise UserError(
                f"Column {column.column!r} starts from the model of another run, which no search "
                "covers: leave it out with --columns."
            )
        for cell in cells:
            place = directory / slug(column.column) / slug(cell.run)
            named = column.named[cell.run, cell.seed]
            found.append(
                _study(
                    cell, column.column, column.plan.num_supernodes, named, search, criterion, place
                )
            )
    return found


def plan_runs(plan: Plan, search: Search, criterion: Name, directory: Path) -> list[StudyPlan]:
    """Studies of named runs, planned with the search's seed alone.

    Raises
    ------
    UserError
        Naming the run that cannot be searched, and why.
    """
    return [
        _study(
            cell, "", plan.num_supernodes, named_of(cell, plan.num_supernodes), search, criterion,
            directory / slug(cell.run),
        )
        for cell in plan.cells
    ]  # fmt: skip


def named_of(cell: Cell, num_clients: int) -> dict[str, Scalar]:
    """Settings of a run that say what it is, whatever it runs on."""
    flat = {key: v for key, v in cell.config.to_flat().items() if key not in OF_THE_MACHINE}
    return flat | {CLIENTS: num_clients}


def _study(
    cell: Cell,
    column: str,
    num_clients: int,
    named: Mapping[str, Scalar],
    search: Search,
    name: Name,
    place: Path,
) -> StudyPlan:
    try:
        own = {key: v for key, v in cell.config.to_flat().items() if key != "output"}
        in_use = keys_in_use(own)
        given = own | {key: v for key, v in search.settings.items() if key in in_use}
        trial = resolve(given, Path.cwd())
        criterion = criterion_of(name, cell.config, trial)
        about = {
            "settings": dict(named),
            "search": search.to_json(),
            "criterion": criterion.name,
            "selection": criterion.selection,
        }
        directory = Path.cwd() / place
        task = StudyTask(
            cell.run, column, given, num_clients, directory, search, criterion, cell.seed,
            digest(about),
        )  # fmt: skip
        task.config(task.base())
    except UserError as error:
        where = f"row {cell.run!r}" + (f", column {column!r}" if column else "")
        raise UserError(f"{where[0].upper()}{where[1:]}: {error}") from None
    return StudyPlan(task, named)
