"""Figures of benchmarks, in the common style of this project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from fedul_flwr.results.figure_style import (
    COLORS,
    GRAY,
    INK,
    MARKERS,
    legend_below,
    mark_decades,
    new_figure,
    set_title,
    style,
)
from fedul_flwr.results.plots import save_plots

_MOST_TICKS = 10
"""Sizes that can be named along an axis."""
Curves = Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Growth:
    """Figure of costs over a size.

    Attributes
    ----------
    name : of the file, without its ending.
    title : what is shown.
    size : what the horizontal axis counts.
    costs : curves of ``(size, cost)`` by name, for every cost, which names a vertical axis.
    level : a cost that a line marks in every panel, with its name; None for none.
    """

    name: str
    title: str
    size: str
    costs: Mapping[str, Curves]
    level: tuple[float, str] | None = None

    def draw(self, directory: Path) -> Path:
        """A panel for each cost, both axes logarithmic."""
        figure = new_figure(4.6 * len(self.costs), 3.6)
        names = list(dict.fromkeys(name for curves in self.costs.values() for name in curves))
        for place, (cost, curves) in enumerate(self.costs.items(), 1):
            axes = style(figure.add_subplot(1, len(self.costs), place))
            for name, points in curves.items():
                look = names.index(name)
                axes.plot(*zip(*points, strict=True), MARKERS[look % 4] + "-", color=COLORS[look])
            axes.set(xscale="log", yscale="log", xlabel=self.size, ylabel=cost)
            sizes = sorted({size for points in curves.values() for size, _ in points})
            if len(sizes) <= _MOST_TICKS:
                axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
                axes.xaxis.set_minor_locator(NullLocator())
            else:  # they would cover each other
                mark_decades(axes.xaxis)
            mark_decades(axes.yaxis)
            if self.level is not None:
                axes.axhline(self.level[0], color=GRAY, linestyle="--", linewidth=1.2)
        handles = [
            Line2D([], [], color=COLORS[look], marker=MARKERS[look % 4], label=name)
            for look, name in enumerate(names)
        ]
        if self.level is not None:
            handles.append(Line2D([], [], color=GRAY, linestyle="--", label=self.level[1]))
        if len(handles) > 1:
            legend_below(figure, handles, width=45 * len(self.costs))
        return _titled(figure, self.title, directory / f"{self.name}.png")


@dataclass(frozen=True)
class Sides:
    """Figure of the measurements of several sides for the same work.

    Attributes
    ----------
    name : of the file, without its ending.
    title : what is shown.
    taken : all measurements of every side, in ``unit``.
    limit : the limit to keep, if there is one.
    """

    name: str
    title: str
    taken: Mapping[str, Sequence[float]]
    unit: str = "seconds"
    limit: float | None = None

    def draw(self, directory: Path) -> Path:
        """Horizontal bars for medians, a dot for every measurement; our sides are highlighted."""
        figure = new_figure(7.2, 0.9 + 0.42 * len(self.taken))
        axes = style(figure.add_subplot())
        axes.grid(visible=False, axis="y")
        most = max(max(values) for values in self.taken.values())
        for place, (name, values) in enumerate(self.taken.items()):
            color = COLORS[0] if name.startswith("ours") else "#B8C2CC"
            axes.barh(place, median(values), color=color, height=0.62)
            axes.plot(values, [place] * len(values), ".", color=INK, markersize=4)
            label = f"{median(values):.3g}"
            text = axes.text(max(values) + 0.015 * most, place, label, va="center", fontsize=9)
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})  # over the limit
        axes.set_yticks(range(len(self.taken)), list(self.taken))
        axes.invert_yaxis()
        axes.set(xlabel=self.unit, xlim=(0, 1.12 * max(most, self.limit or 0)))
        if self.limit is not None:
            axes.axvline(self.limit, color=COLORS[1], linestyle="--", linewidth=1)
            axes.text(
                self.limit,
                1.0,
                f"bar {self.limit:g}",
                color=COLORS[1],
                fontsize=9,
                va="bottom",
                ha="center",
                transform=axes.get_xaxis_transform(),
            )
        return _titled(figure, self.title, directory / f"{self.name}.png")


def _titled(figure: Figure, title: str, path: Path) -> Path:
    set_title(figure, title)
    return save_plots({path.stem: figure}, path.parent)[0]
