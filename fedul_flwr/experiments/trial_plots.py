"""The picture of a comparison: errors over rounds, and at the end, of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedul_flwr.experiments.compare_table import Row
from fedul_flwr.results.figure_style import (
    COLOURS,
    DASHES,
    MARKERS,
    legend_below,
    new_figure,
    one_line,
    say_nothing_recorded,
    scale_errors,
    set_title,
    style,
)

_NAME_LENGTH = 32


def comparison_figure(rows: Sequence[Row]) -> Figure:
    """Left the mean test error over rounds with a band of one standard deviation, right each run.

    Where no run trains there are no rounds, and nothing on the left.

    Parameters
    ----------
    rows : runs in the order of the table; those without a finished cell keep their colour.
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
        Line2D([], [], label=one_line(row.run, 60), markersize=5, **_look(position))
        for position, row in enumerate(rows)
    ]
    legend_below(figure, entries, width=150 if figure.get_figwidth() > 8 else 105)
    return figure


def _look(position: int) -> dict[str, Any]:
    """Colour, dashes and mark of a run: the colours repeat after seven, the rest does not."""
    cycle = position // len(COLOURS)
    return {
        "color": COLOURS[position % len(COLOURS)],
        "linestyle": DASHES[cycle % len(DASHES)],
        "marker": MARKERS[cycle % len(MARKERS)],
        "linewidth": 1.8,
    }


def _draw_rounds(axes: Axes, rows: Sequence[Row]) -> None:
    curves = [_curve(row) for row in rows]
    shown = [value for _, values in curves for value in values.ravel()]
    axes.set_xlabel("round")
    axes.set_ylabel("mean test error (%)")
    if not shown:
        say_nothing_recorded(axes)
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
            # A logarithmic axis has no place for what lies at or below 0.
            low = np.maximum(mean - std, values.min(axis=0) / 2)
            colour = COLOURS[position % len(COLOURS)]
            axes.fill_between(rounds, low, mean + std, color=colour, alpha=0.13, linewidth=0)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    scale_errors(axes, "y", shown)


def _curve(row: Row) -> tuple[list[int], NDArray[np.float64]]:
    """Rounds that all finished cells measured, and their errors (cells x rounds)."""
    series = [
        dict(zip(*result.run.series("test_error"), strict=True))
        for result in row.finished
        if result.run is not None
    ]
    measured = [known for known in series if known]
    rounds = sorted(set.intersection(*map(set, measured))) if measured else []
    return rounds, np.array([[known[step] for step in rounds] for known in measured])


def _draw_ends(axes: Axes, rows: Sequence[Row]) -> None:
    values = []
    for position, row in enumerate(rows):
        errors = [value for r in row.finished if (value := r.figure("test_error")) is not None]
        values += errors
        look = _look(position)
        if not errors:
            continue
        # Dots of equal errors would hide each other: spread them a little.
        heights = position + np.linspace(-0.2, 0.2, len(errors)) if len(errors) > 1 else [position]
        dots = {"color": look["color"], "marker": look["marker"], "linestyle": "none"}
        axes.plot(errors, heights, markersize=5, alpha=0.5, markeredgewidth=0, **dots)
        axes.errorbar(
            row.standing.mean or 0.0,
            position,
            xerr=row.standing.std,
            color=look["color"],
            elinewidth=1.8,
            capsize=4,
            marker="|",
            markersize=15,
            markeredgewidth=2,
        )
    trained = {row.trains for row in rows}
    if trained == {False}:
        axes.set_xlabel("error of labels of each seed (%)")
    elif False in trained:
        axes.set_xlabel("error of labels, or test error, of each seed (%)")
    else:
        axes.set_xlabel("test error in the best round of each seed (%)")
    axes.set_ylim(len(rows) - 0.4, -0.6)  # the first run on top, as in the table
    if not values:
        say_nothing_recorded(axes)
        return
    scale_errors(axes, "x", values)
    names = [one_line(row.run, _NAME_LENGTH) for row in rows]
    axes.set_yticks(range(len(rows)), names)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.grid(visible=False, axis="y")
