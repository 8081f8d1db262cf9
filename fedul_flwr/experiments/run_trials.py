"""Run what is left of a comparison, and save its table after every cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.experiments.compare_table import Row, cells_csv, make_rows, markdown, runs_csv
from fedul_flwr.experiments.trial import (
    CellResult,
    check_cells,
    forget_reason,
    keep_reason,
    read_cell,
    starting_config,
)
from fedul_flwr.experiments.trial_plan import Cell, Plan
from fedul_flwr.experiments.trial_plots import comparison_figure
from fedul_flwr.results.plots import draw_png
from fedul_flwr.results.records import write_atomically
from fedul_flwr.results.store import RunDirectory
from fedul_flwr.results.summary import duration, percent

Simulate = Callable[[RunConfig, str], None]
"""Runs a configuration under a title and raises if it fails."""


def run_cells(plan: Plan, simulate: Simulate, say: Callable[[str], None]) -> list[Row]:
    """Run cells that are not finished, one after the other, and save the comparison after each.

    Parameters
    ----------
    plan : the comparison; what is on disk of it is gone on with.
    simulate : runs a cell.
    say : shows a line.

    Returns
    -------
    Rows of the table.

    Raises
    ------
    UserError
        If a cell on disk was run with other settings; nothing was started then.
    """
    check_cells(plan.cells, plan.num_supernodes)
    return make_rows(plan, run_missing(plan.cells, simulate, say, partial(_save, plan)))


def run_missing(
    cells: Sequence[Cell],
    simulate: Simulate,
    say: Callable[[str], None],
    save: Callable[[Sequence[CellResult]], None],
) -> list[CellResult]:
    """Run cells that are not finished, whatever settings those on disk were run with.

    A cell that fails is noted and does not keep others from running.

    Parameters
    ----------
    save : gets the results of all cells, in their order, at the beginning and after each.
    """
    results = {(cell.run, cell.seed): read_cell(cell) for cell in cells}
    done = {key: result for key, result in results.items() if result.status == "finished"}
    if done:
        say(f"{len(done)} of {len(cells)} cells are finished already.")
    # Of cells of this call by the clock: what comes before and after training counts too.
    seconds = {key: s for key, result in done.items() if (s := result.figure("seconds_total"))}
    save(list(results.values()))
    todo = [cell for cell in cells if (cell.run, cell.seed) not in done]
    for position, cell in enumerate(todo):
        key = (cell.run, cell.seed)
        number = list(results).index(key) + 1
        title = f"cell {number} of {len(results)}: {cell.title}"
        began = time.monotonic()
        try:
            forget_reason(cell)
            simulate(starting_config(cell), title + _left(todo[position:], seconds))
            results[key] = read_cell(cell)
            # (Of one that resumed, the clock saw a part.)
            trained = results[key].figure("seconds_total") or 0.0
            seconds[key] = max(time.monotonic() - began, trained)
            measured = "test error" if cell.trains else "error of labels"
            say(f"{cell.title}: {measured} {percent(results[key].figure('test_error'))}")
        except KeyboardInterrupt:
            results[key] = read_cell(cell)
            save(list(results.values()))
            raise
        except Exception as error:  # whatever it is, other cells can still run
            results[key] = CellResult(cell, "failed", reason=keep_reason(cell, error))
            say(f"{cell.title} failed: {results[key].reason}")
        save(list(results.values()))
    return list(results.values())


def _left(cells: Sequence[Cell], seconds: Mapping[tuple[str, int], float]) -> str:
    """How long ``cells`` take in words, if each takes as long as its run did with other seeds."""
    if not seconds:
        return ""
    of_run: dict[str, list[float]] = {}
    for (run, _), value in seconds.items():
        of_run.setdefault(run, []).append(value)
    expected = sum(fmean(of_run.get(cell.run, seconds.values())) for cell in cells)
    return f", about {duration(round(expected))} left"


def _save(plan: Plan, results: Sequence[CellResult]) -> None:
    rows = make_rows(plan, results)
    RunDirectory(plan.output).create()
    for name, content in (
        ("comparison.md", markdown(plan, rows)),
        ("comparison.csv", runs_csv(rows)),
        ("cells.csv", cells_csv(plan, results)),
        ("comparison.png", draw_png(comparison_figure(rows))),
    ):
        write_atomically(plan.output / name, content)
