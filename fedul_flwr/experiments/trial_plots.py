"""Plots of test errors: of the runs of a comparison, and of a column of a paper's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedul_flwr.experiments.compare_table import Row
from fedul_flwr.experiments.paper_table import Kind, mean_curves
from fedul_flwr.experiments.statistics import stack_curves
from fedul_flwr.experiments.table import Table
from fedul_flwr.experiments.trial_plan import Overrides
from fedul_flwr.results.figure_style import (
    COLORS,
    DASHES,
    GRAY,
    MARKERS,
    legend_below,
    mark_empty,
    new_figure,
    one_line,
    plain,
    scale_errors,
    set_title,
    style,
)

_NAME_LENGTH = 32


@plain()
def compare_figure(rows: Sequence[Row]) -> Figure:
    """Plot a comparison: on the left errors over rounds, on the right the errors of all seeds.

    On the left are the mean and a band of one standard deviation. Without a run that trains, only
    the right plot is drawn.
    """
    height = max(3.8, 0.34 * len(rows) + 1.4)
    if any(row.trains for row in rows):
        figure = new_figure(11.0, height)
        left, right = (style(axes) for axes in figure.subplots(1, 2, width_ratios=(1.15, 1)))
        _draw_rounds(left, rows)
    else:
        figure = new_figure(7.2, height)
        right = style(figure.add_subplot())
    _draw_ends(right, rows)
    set_title(figure, "Comparison", "mean and standard deviation over seeds")
    entries = [
        Line2D([], [], label=one_line(row.name, 60), markersize=5, **_look(position))
        for position, row in enumerate(rows)
    ]
    legend_below(figure, entries, width=150 if figure.get_figwidth() > 8 else 105)
    return figure


def _look(position: int) -> dict[str, Any]:
    """Color, dashes and marker of a run: with more than seven runs colors repeat, pairs do not."""
    cycle = position // len(COLORS)
    return {
        "color": COLORS[position % len(COLORS)],
        "linestyle": DASHES[cycle % len(DASHES)],
        "marker": MARKERS[cycle % len(MARKERS)],
        "linewidth": 1.8,
    }


def _draw_rounds(axes: Axes, rows: Sequence[Row]) -> None:
    curves = [
        stack_curves(
            dict(zip(*result.run.series("test_error"), strict=True))
            for result in row.finished
            if result.run is not None
        )
        for row in rows
    ]
    shown = [value for _, values in curves for value in values.ravel()]
    axes.set_xlabel("round")
    axes.set_ylabel("mean test error (%)")
    if not shown:
        mark_empty(axes)
        return
    for position, (rounds, values) in enumerate(curves):
        if not rounds:
            continue
        mean = values.mean(axis=0)
        axes.plot(
            rounds, mean, markersize=4, markevery=max(1, len(rounds) // 12), **_look(position)
        )
        if len(values) > 1:
            std = values.std(axis=0, ddof=1)
            # A logarithmic axis cannot show values at or below 0.
            low = np.maximum(mean - std, values.min(axis=0) / 2)
            color = COLORS[position % len(COLORS)]
            axes.fill_between(rounds, low, mean + std, color=color, alpha=0.13, linewidth=0)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    scale_errors(axes, "y", shown)


def _draw_ends(axes: Axes, rows: Sequence[Row]) -> None:
    values = []
    for position, row in enumerate(rows):
        errors = row.values("test_error")
        if not errors:
            continue
        values += errors
        look = _look(position)
        # Dots of equal errors would hide each other.
        spread = 0.2 if len(errors) > 1 else 0.0
        heights = position + np.linspace(-spread, spread, len(errors))
        dots = {"color": look["color"], "marker": look["marker"], "linestyle": "none"}
        axes.plot(errors, heights, markersize=5, alpha=0.5, markeredgewidth=0, **dots)
        mean: dict[str, Any] = {"marker": "|", "markersize": 15, "markeredgewidth": 2, "capsize": 4}
        error = row.ranking.error
        axes.errorbar(error.mean or 0.0, position, xerr=error.std, color=look["color"], **mean)
    words = {True: "test error in the best round", False: "error of labels"}
    kinds = dict.fromkeys(words[row.trains] for row in rows)
    axes.set_xlabel(f"{' or '.join(kinds)} of each seed (%)")
    axes.set_ylim(len(rows) - 0.4, -0.6)  # the first run on top, as in the table
    if not values:
        mark_empty(axes)
        return
    scale_errors(axes, "x", values)
    names = [one_line(row.name, _NAME_LENGTH) for row in rows]
    axes.set_yticks(range(len(rows)), names, parse_math=False)
    axes.grid(visible=False, axis="y")


@plain()
def column_figure(table: Table, column: str, kind: Kind, runs: pd.DataFrame) -> Figure:
    """Plot the mean test error over the rounds of every row of a column that has a run."""
    size, tuned = kind
    curves = mean_curves(table, column, runs)
    colors = dict(zip(curves, [*COLORS] * len(curves), strict=False))
    figure = new_figure(8.4, 4.4)
    axes = style(figure.add_subplot())
    axes.set_xlabel("round")
    axes.set_ylabel("test error (%)")
    one = table.column(column, size)
    for row, (rounds, errors) in sorted(curves.items(), key=lambda item: -item[1][1][-1]):
        label = f"{_in_words(row, one.rows[row])}  {errors[-1]:.2f}"
        axes.plot(rounds, errors, "o-", color=colors[row], lw=2.2, markersize=2.5, label=label)
    scale_errors(axes, "y", [error for _, errors in curves.values() for error in errors])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.02)
    legend_below(figure)
    set_title(figure, table.title, column)
    seeds = runs.loc[runs["column"] == column, "seed"].nunique()
    means = ", mean over a row's seeds" if seeds > 1 else ""
    quick = "quick size, " if size == "quick" else ""
    searched = ", every row with settings that one search chose for it" if tuned else ""
    subtitle = f"{quick}{one.clients} clients{means}{searched}"
    axes.set_title(subtitle, loc="left", fontsize=9, color=GRAY)
    return figure


def _in_words(row: str, settings: Overrides) -> str:
    """A row's name; for training with labels, which of them there are."""
    if settings.get("method") != "supervised":
        return row
    fraction = float(settings.get("supervised.label-fraction", 1.0))
    return "all labels" if fraction == 1 else f"{100 * fraction:g} % of labels"
