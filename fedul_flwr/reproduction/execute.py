"""Run what is missing of a table, and keep each result as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedul_flwr.comparison.cells import CellResult
from fedul_flwr.comparison.execute import run_cells
from fedul_flwr.comparison.plan import Cell, Plan
from fedul_flwr.config import RunConfig
from fedul_flwr.reproduction.plan import ColumnPlan, Machine
from fedul_flwr.reproduction.results import (
    Result,
    differences,
    digest,
    make_result,
    read_results,
    results_file,
    write_results,
)
from fedul_flwr.reproduction.tables import Size, Table

Run = Callable[[RunConfig, int, str], None]
"""Runs a configuration with so many clients under a title, and raises if it fails."""


@dataclass(frozen=True)
class Reproduction:
    """What :func:`reproduce` works on: a table at one size, its results in the folder ``results``,
    a machine, and how to run and to say something."""

    table: Table
    size: Size
    results: Path
    machine: Machine
    run: Run
    say: Callable[[str], None]


def reproduce(task: Reproduction, columns: Sequence[ColumnPlan], rows: Sequence[str]) -> int:
    """Run the cells of ``rows`` in ``columns`` that have no result, or one of other settings.

    A run that is left below ``runs/`` is gone on with, or taken if it is finished.

    Returns
    -------
    Number of cells that failed.

    Raises
    ------
    UserError
        If such a run was made with other settings.
    """
    return sum(_column(task, column, rows) for column in columns)


def _is_current(result: Result | None, column: ColumnPlan, cell: Cell) -> bool:
    """Whether there is a result, unedited and with the experiment's settings."""
    return (
        result is not None
        and result.get("hash") == digest(result.get("settings", {}))
        and not differences(result, column.named[cell.run, cell.seed])
    )


def _column(task: Reproduction, column: ColumnPlan, rows: Sequence[str]) -> int:
    file = results_file(task.results, task.table.name, task.size)
    known = read_results(file)
    missing = [
        cell
        for cell in column.plan.cells
        if cell.run in rows
        and not _is_current(known.get((cell.run, column.column, cell.seed)), column, cell)
    ]
    if not missing:
        return 0
    task.say(f"{task.table.name}, {task.size}, {column.column}: {len(missing)} to run.")
    if column.start is not None:
        seeds = {cell.seed for cell in missing}
        first = [cell for cell in column.start.cells if cell.seed in seeds]
        _run(task, replace(column.start, cells=tuple(first)))
    names = {cell.run for cell in missing}
    runs = {name: own for name, own in column.plan.runs.items() if name in names}

    def keep(found: CellResult) -> None:
        result = make_result(
            task.table.name,
            task.size,
            column,
            found,
            local_data=column.dataset in task.machine.datasets,
        )
        key = (found.cell.run, column.column, found.cell.seed)
        all_results = {**read_results(file), key: result}
        write_results(file, task.table.name, all_results.values())

    return _run(task, replace(column.plan, cells=tuple(missing), runs=runs), keep)


def _run(task: Reproduction, plan: Plan, keep: Callable[[CellResult], None] | None = None) -> int:
    def simulate(config: RunConfig, title: str) -> None:
        task.run(config, plan.num_supernodes, title)

    return sum(row.failed for row in run_cells(plan, simulate, task.say, keep))
