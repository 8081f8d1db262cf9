"""The picture of a table's column: test errors over rounds, a line for each row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedul_flwr.experiments import paper_table as side_by_side
from fedul_flwr.experiments.result_file import Key, Result
from fedul_flwr.experiments.table_file import Size, Table
from fedul_flwr.results.figure_style import (
    COLOURS,
    GREY,
    new_figure,
    scale_errors,
    set_title,
    style,
)

_APART = 0.045
"""Least distance of two labels, as a share of the height."""


def curves_figure(
    table: Table,
    column: str,
    size: Size,
    results: Mapping[Key, Result],
    *,
    tuned: bool = False,
) -> Figure:
    """Mean test error over the rounds of every row that has a run.

    Parameters
    ----------
    results : of the table at ``size``; at least one of ``column`` with a test error.
    tuned : whether they have the settings that a search chose for every row.
    """
    curves = side_by_side.curves(table, column, results)
    figure = new_figure(8.4, 4.4)
    axes = style(figure.add_subplot())
    axes.set_xlabel("round")
    axes.set_ylabel("test error (%)")
    ordered = sorted(curves, key=lambda row: -curves[row][1][-1])
    for row, (rounds, errors) in curves.items():
        colour = COLOURS[list(curves).index(row) % len(COLOURS)]
        axes.plot(rounds, errors, color=colour, linewidth=2.2, marker="o", markersize=2.5)
    scale_errors(axes, "y", [error for _, errors in curves.values() for error in errors])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.02)
    figure.canvas.draw()  # now the axes know where an error lies
    at = axes.transAxes.inverted().transform(
        axes.transData.transform([(0, curves[row][1][-1]) for row in ordered])
    )[:, 1]
    for row, height in zip(ordered, _spread(at), strict=True):
        colour = COLOURS[list(curves).index(row) % len(COLOURS)]
        text = f"{row}  {curves[row][1][-1]:.2f}"
        label = axes.text(
            1.015, height, text, transform=axes.transAxes, color=colour, va="center", fontsize=10
        )
        label.set_parse_math(False)
    set_title(figure, table.settings.title, column)
    seeds = {seed for _, name, seed in results if name == column}
    means = ", mean over a row's seeds" if len(seeds) > 1 else ""
    quick = "quick size, " if size == "quick" else ""
    searched = ", every row with settings that one search chose for it" if tuned else ""
    said = f"{quick}{table.num_clients(column, size)} clients{means}{searched}"
    axes.set_title(said, loc="left", fontsize=9, color=GREY)
    return figure


def _spread(heights: NDArray[np.float64]) -> list[float]:
    """``heights``, falling, moved as far apart as labels need to be, from the lowest upwards."""
    placed: list[float] = []
    for height in heights[::-1]:
        placed.append(max(height, placed[-1] + _APART) if placed else max(height, 0.0))
    return placed[::-1]
