"""Run what is missing of a table, and keep each result as it comes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedul_flwr.config.run_config import LAST_MODEL, RunConfig
from fedul_flwr.experiments.result_file import (
    differences,
    digest,
    edited,
    make_result,
    read_results,
    results_file,
    write_results,
)
from fedul_flwr.experiments.run_trials import run_missing
from fedul_flwr.experiments.table_file import Size, Table
from fedul_flwr.experiments.table_plan import ColumnPlan, Machine, of_this_machine
from fedul_flwr.experiments.trial import CellResult, read_cell
from fedul_flwr.experiments.trial_plan import Cell
from fedul_flwr.results.records import write_atomically
from fedul_flwr.results.store import CONFIG, RunDirectory

SETTINGS = "settings.sha256"
"""File of a run's directory with the digest of the settings that the experiment has for it."""
Run = Callable[[RunConfig, int, str], None]
"""Runs a configuration with so many clients under a title, and raises if it fails."""


@dataclass(frozen=True)
class Reproduction:
    """What :func:`reproduce` works on: a table at one size, its results in the folder ``results``,
    a machine, how to run and to say something, and whether settings are what a search chose."""

    table: Table
    size: Size
    results: Path
    machine: Machine
    run: Run
    say: Callable[[str], None]
    tuned: bool = False


def reproduce(task: Reproduction, columns: Sequence[ColumnPlan], rows: Sequence[str]) -> int:
    """Run the cells of ``rows`` in ``columns`` that have no result, or one of other settings.

    A run that is left below ``runs/`` is gone on with, or taken if it is finished; with other
    settings it is removed and starts anew.

    Returns
    -------
    Number of cells that failed, or that the run they start from kept from beginning.
    """
    return sum(_column(task, column, missing(task, column, rows)) for column in columns)


def missing(task: Reproduction, column: ColumnPlan, rows: Sequence[str]) -> list[Cell]:
    """Cells of ``rows`` without a result, unedited and with the experiment's settings."""
    known = read_results(_file(task))
    found = []
    for cell in column.plan.cells:
        result = known.get((cell.run, column.column, cell.seed))
        current = (
            result is not None
            and edited(result) is None
            and not differences(result, column.named[cell.run, cell.seed])
        )
        if cell.run in rows and not current:
            found.append(cell)
    return found


def _file(task: Reproduction) -> Path:
    return results_file(task.results, task.table.name, task.size, tuned=task.tuned)


def _column(task: Reproduction, column: ColumnPlan, cells: Sequence[Cell]) -> int:
    if not cells:
        return 0
    task.say(f"{task.table.name}, {task.size}, {column.column}: {len(cells)} to run.")
    ready = set(column.plan.seeds)
    if column.start is not None:
        seeds = {cell.seed for cell in cells}
        first = [cell for cell in column.start.plan.cells if cell.seed in seeds]
        ready = {run.cell.seed for run in _run(task, column.start, first, _leave)}
    begin = [cell for cell in cells if cell.seed in ready]
    if waiting := len(cells) - len(begin):
        task.say(f"{waiting} not run: the run that they start from failed.")
    finished = _run(task, column, begin, lambda found: _keep(task, column, found))
    return len(cells) - len(finished)


def _leave(found: Sequence[CellResult]) -> None:
    """Runs that others start from are no results."""


def _keep(task: Reproduction, column: ColumnPlan, found: Sequence[CellResult]) -> None:
    local = column.dataset in task.machine.datasets
    new = {
        (one.cell.run, column.column, one.cell.seed): make_result(
            task.table.name, task.size, column, one, local_data=local, tuned=task.tuned
        )
        for one in found
        if one.status == "finished"
    }
    if new:
        results = {**read_results(_file(task)), **new}
        write_results(_file(task), task.table.name, results.values())


def _run(
    task: Reproduction,
    column: ColumnPlan,
    cells: Sequence[Cell],
    save: Callable[[Sequence[CellResult]], None],
) -> list[CellResult]:
    """Run cells of a column, and return those that finished."""

    def simulate(config: RunConfig, title: str) -> None:
        task.run(config, column.plan.num_supernodes, title)

    for cell in cells:
        _prepare(task, cell, digest(column.named[cell.run, cell.seed]))
    found = run_missing(cells, simulate, task.say, save)
    return [result for result in found if result.status == "finished"]


def _prepare(task: Reproduction, cell: Cell, settings: str) -> None:
    """Leave of a cell's directory what was run with these settings, given by their digest."""
    mark = cell.directory / SETTINGS
    if cell.directory.exists() and not (mark.exists() and mark.read_text() == settings):
        task.say(f"{cell.title}: what is left of it is not of these settings, it starts anew.")
        shutil.rmtree(cell.directory)
    cell.directory.mkdir(parents=True, exist_ok=True)
    write_atomically(mark, settings)
    if (cell.directory / LAST_MODEL).exists() and read_cell(cell).status != "finished":
        # What resumes has the settings that it was begun with: those of the machine are today's.
        directory = RunDirectory(cell.directory)
        saved = directory.read_json(CONFIG)
        saved["settings"] |= of_this_machine(cell)
        directory.write_json(CONFIG, saved)
