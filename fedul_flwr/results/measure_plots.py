"""Figures of measures: the confusion matrix, and the reliability diagram."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedul_flwr.results.figure_style import (
    COLOURS,
    DASHES,
    GREY,
    INK,
    MARKERS,
    legend_below,
    new_figure,
    one_line,
    set_title,
    style,
)

_SHADES = LinearSegmentedColormap.from_list("shares", ["#FFFFFF", "#9CC8E5", COLOURS[0], "#002B4A"])
_MOST_NUMBERS = 20
"""Largest number of classes whose cells have their numbers written in."""
_MOST_NAMES = 40
"""Largest number of classes that all have their names at the axes."""
_SHORT = 14
"""Most characters of a class name at an axis."""
_WORDS = {
    "best": "best round",
    "unscaled": "before temperature scaling",
    "reweighed": "re-weighed for estimated class priors",
}


def measure_figures(
    found: Mapping[str, Any], class_names: Sequence[str] | None
) -> dict[str, Figure]:
    """Figures of ``measures.json``: the best round's confusion matrix, and reliability."""
    best = found.get("best") or {}
    figures = {}
    if best.get("confusion"):
        label = f"test points, round {best['round']}"
        figures["confusion"] = confusion_figure(best["confusion"], class_names, label)
    if any(found.get(key, {}).get("reliability") for key in _WORDS):
        figures["reliability"] = reliability_figure(found)
    return figures


def confusion_figure(
    matrix: Sequence[Sequence[int]], class_names: Sequence[str] | None, label: str
) -> Figure:
    """The classes that points of each class were named, in percent of its points.

    Parameters
    ----------
    matrix : ``(K, K)`` numbers of points, or ``(K, K + 1)`` where some were not named.
    class_names : K names; numbers if they are not known.
    """
    counts = np.asarray(matrix)
    rows, columns = counts.shape
    known = class_names is not None and len(class_names) == rows
    names = [one_line(str(n), _SHORT) for n in (class_names if known else range(rows)) or ()]
    totals = counts.sum(axis=1, keepdims=True)
    shares = 100 * np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    size = float(np.clip(2.6 + 0.42 * rows, 4.2, 8.6))
    numbers = rows <= _MOST_NUMBERS
    # Without numbers there is a color bar beside the square.
    figure = new_figure(size, size - (0.2 if numbers else 1.2))
    axes = style(figure.add_subplot())
    axes.grid(visible=False)
    axes.set_facecolor("#E6E6E6")  # of classes without points
    # Few confusions of many classes could not be seen: a root makes small shares darker.
    norm = PowerNorm(1.0 if numbers else 0.5, vmin=0, vmax=100)
    image = axes.imshow(shares, cmap=_SHADES, norm=norm)
    if numbers:
        _write_numbers(axes, shares)
    else:
        bar = figure.colorbar(
            image, ax=axes, shrink=0.8, pad=0.02, ticks=[0, 1, 5, 10, 25, 50, 100], format="%d"
        )
        bar.set_label("percent of a class's points", fontsize=9)
        bar.outline.set_visible(False)
    _name_classes(axes, names, missing=columns > rows)
    axes.set_xlabel("named" + ("" if totals.all() else " (a gray row: no points of that class)"))
    axes.set_ylabel("true class")
    set_title(figure, "Confusion matrix (%)", label)
    return figure


def _write_numbers(axes: Axes, shares: Any) -> None:
    size = float(np.clip(140 / len(shares), 7, 10))
    for (row, column), share in np.ndenumerate(shares):
        if np.isnan(share) or share == 0:
            continue
        # Halves are rounded up, as readers do: Python would write 0 for 0.5 and 2 for 2.5.
        text = f"{math.floor(share + 0.5)}" if share >= 0.5 else "<1"
        colour = "white" if share > 45 else INK
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def _name_classes(axes: Axes, names: list[str], *, missing: bool) -> None:
    across = [*names, "none"] if missing else names
    if len(names) > _MOST_NAMES:  # they would overlap: numbers of some classes
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=11, integer=True))
        return
    size = 9 if len(names) <= _MOST_NUMBERS else 7
    upright = max(map(len, across)) > 2 and len(names) > 2
    axes.set_xticks(range(len(across)), across, rotation=90 if upright else 0, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        tick.set_parse_math(False)


def reliability_figure(found: Mapping[str, Any]) -> Figure:
    """Accuracy over confidence in bins, and the share of points in each.

    Parameters
    ----------
    found : measures by the name of their predictions.
    """
    figure = new_figure(5.6, 5.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    entries: list[Line2D | Patch] = [
        Line2D([], [], color=GREY, linewidth=1.2, linestyle="--", label="accuracy = confidence")
    ]
    style(above).plot([0, 100], [0, 100], color=GREY, linewidth=1.2, linestyle="--")
    style(below)
    shown = {key: found[key] for key in _WORDS if found.get(key, {}).get("reliability")}
    for index, (key, measured) in enumerate(shown.items()):
        bins = measured["reliability"]
        filled = [i for i, points in enumerate(bins["points"]) if points]
        look: dict[str, Any] = {
            "color": COLOURS[index],
            "linestyle": DASHES[index],
            "marker": MARKERS[index],
            "markersize": 5,
            "linewidth": 1.6,
        }
        x, y = ([bins[name][i] for i in filled] for name in ("confidence", "accuracy"))
        above.plot(x, y, clip_on=False, zorder=3, **look)
        label = f"{_WORDS[key]}: ECE {measured['ece']:.2f} %"
        entries.append(Line2D([], [], label=label, **look))
        points = 100 * np.asarray(bins["points"]) / sum(bins["points"])
        edges = np.linspace(0, 100, len(points) + 1)
        below.stairs(points, edges, color=COLOURS[index], linestyle=DASHES[index], linewidth=1.4)
    above.set_xlim(0, 100)
    above.set_ylim(0, 100)
    above.set_ylabel("points that are right (%)")
    below.set_ylim(0, None)
    below.set_ylabel("points (%)")
    below.set_xlabel("confidence: probability of the named class (%)")
    set_title(figure, "Reliability", f"test points, round {next(iter(shown.values()))['round']}")
    legend_below(figure, entries, width=80)
    return figure
