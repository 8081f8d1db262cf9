"""The plot of a comparison: test errors of its runs over rounds and of each seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedul_flwr.experiments.compare_table import Compared
from fedul_flwr.experiments.statistics import common_rounds
from fedul_flwr.results.figure_style import (
    legend_below,
    line_look,
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
def compare_figure(compared: Compared) -> Figure:
    """Plot a comparison: on the left errors over rounds, on the right the errors of all seeds.

    On the left are the mean and a band of one standard deviation. Without a run that trains, only
    the right plot is drawn.
    """
    ranked = compared.ranked
    height = max(3.8, 0.34 * len(ranked) + 1.4)
    if ranked["trains"].any():
        figure = new_figure(11.0, height)
        left, right = (style(axes) for axes in figure.subplots(1, 2, width_ratios=(1.15, 1)))
        _draw_rounds(left, compared)
    else:
        figure = new_figure(7.2, height)
        right = style(figure.add_subplot())
    _draw_ends(right, compared)
    set_title(figure, "Comparison", "mean and standard deviation over seeds")
    entries = [
        Line2D([], [], label=one_line(row, 60), **line_look(position))
        for position, row in enumerate(ranked.index)
    ]
    legend_below(figure, entries, width=150 if figure.get_figwidth() > 8 else 105)
    return figure


def _draw_rounds(axes: Axes, compared: Compared) -> None:
    series: dict[str, list[dict[int, float]]] = {row: [] for row in compared.rows}
    for trial, run in compared.finished:
        series[trial.row].append(dict(zip(*run.series(compared.error), strict=True)))
    shown: list[float] = []
    axes.set_xlabel("round")
    axes.set_ylabel(f"mean {compared.error.replace('_', ' ')} (%)")
    for position, errors in enumerate(map(common_rounds, series.values())):
        if errors.empty:
            continue
        shown += errors.to_numpy().ravel().tolist()
        mean, std, look = errors.mean(axis=1), errors.std(axis=1), line_look(position)
        axes.plot(mean, markevery=max(1, len(errors) // 12), **look)
        if errors.shape[1] > 1:
            # A logarithmic axis cannot show values at or below 0.
            low = np.maximum(mean - std, errors.min(axis=1) / 2)
            band = {"color": look["color"], "alpha": 0.13, "linewidth": 0}
            axes.fill_between(errors.index, low, mean + std, **band)
    if not shown:
        mark_empty(axes)
        return
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    scale_errors(axes, "y", shown)


def _draw_ends(axes: Axes, compared: Compared) -> None:
    by_seed, ranked = compared.by_seed(compared.error), compared.ranked
    for position, (_, of_row) in enumerate(by_seed.iterrows()):
        errors = of_row.dropna()
        if errors.empty:
            continue
        look = line_look(position)
        # Dots of equal errors would hide each other.
        spread = 0.2 if len(errors) > 1 else 0.0
        heights = position + np.linspace(-spread, spread, len(errors))
        dots = {"color": look["color"], "marker": look["marker"], "linestyle": "none"}
        axes.plot(errors, heights, markersize=5, alpha=0.5, markeredgewidth=0, **dots)
        mean: dict[str, Any] = {"marker": "|", "markersize": 15, "markeredgewidth": 2, "capsize": 4}
        std = errors.std() if len(errors) > 1 else None
        axes.errorbar(errors.mean(), position, xerr=std, color=look["color"], **mean)
    model = f"{compared.error.replace('_', ' ')} in the best round"
    words = {True: model, False: "error of labels"}
    kinds = dict.fromkeys(words[trains] for trains in ranked["trains"])
    axes.set_xlabel(f"{' or '.join(kinds)} of each seed (%)")
    axes.set_ylim(len(ranked) - 0.4, -0.6)  # the first run on top, as in the table
    if by_seed.isna().all(axis=None):
        mark_empty(axes)
        return
    scale_errors(axes, "x", [error for error in by_seed.to_numpy().ravel() if error == error])
    names = [one_line(row, _NAME_LENGTH) for row in compared.rows]
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.grid(visible=False, axis="y")
