"""Common style of all figures.

Figures do not use pyplot: the server draws in a separate thread, and pyplot has global state.
Colors are those of Okabe and Ito, which people with any common kind of color vision can
distinguish.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context, rcParamsDefault
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
HIGHLIGHT = "#F0E442"
INK = "#222222"
GRAY = "#7A8B99"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
MARKERS = ("o", "s", "^", "D")
DPI = 150
"""Dots per inch of the pictures written."""
LOG_FROM = 12.0
"""If the largest error is more than this multiple of the smallest, the axis is logarithmic."""


@contextmanager
def plain() -> Iterator[None]:
    """Context, or decorator, in which figures are made and drawn: matplotlib's defaults, whatever a
    ``matplotlibrc``, a style or a program has set."""
    with rc_context({key: rcParamsDefault[key] for key in rcParamsDefault if key != "backend"}):
        yield


def new_figure(width: float, height: float, part: Figure | None = None) -> Figure:
    """Return an empty figure (size in inches) with its own canvas and a layout that fits labels;
    or the ``part`` of a larger figure to draw on, which has its size."""
    if part is not None:
        return part
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def style(axes: Axes) -> Axes:
    """Apply the common style to ``axes``; returns them."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def draw_svg(figure: Figure) -> bytes:
    """``figure`` as the content of an SVG file, reproducible, with text as paths."""
    return draw(figure, "svg", metadata={"Date": None})


def draw(figure: Figure, form: str, **options: Any) -> bytes:
    """``figure`` as the content of a file, such as ``"png"``."""
    picture = io.BytesIO()
    fonts: Any = {"svg.hashsalt": "fedul-flwr", "svg.fonttype": "path"}
    with plain(), rc_context(fonts):
        figure.savefig(picture, format=form, dpi=DPI, **options)
    return picture.getvalue()


def mark_decades(axis: Axis) -> None:
    """Label a logarithmic ``axis`` with plain numbers 1, 2, 5, 10, 20 …"""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def scale_errors(axes: Axes, direction: Literal["x", "y"], errors: Sequence[float]) -> None:
    """Let the axis of ``errors`` start at 0, unless half of it would be empty; or make it
    logarithmic if they differ widely."""
    axis = axes.xaxis if direction == "x" else axes.yaxis
    if errors and min(errors) > 0 and max(errors) > LOG_FROM * min(errors):
        axes.set(**{f"{direction}scale": "log"})
        mark_decades(axis)
        axis.set_label_text(f"{axis.get_label_text()}, log scale")
    elif errors and 2 * min(errors) < max(errors):
        # Include 0 first, so that there is a margin above the largest error.
        axes.update_datalim([(0, 0)], updatex=direction == "x", updatey=direction == "y")
        axes.autoscale_view()
        axes.set(**{f"{direction}lim": (0, None)})


def legend_below(
    figure: Figure, entries: Sequence[Line2D | Patch] | None = None, width: int = 105
) -> None:
    """Put a legend below the axes, by default of all their labels, each once."""
    labeled = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = [*labeled] if entries is None else [str(entry.get_label()) for entry in entries]
    columns = min(3, max(1, width // (max(map(len, labels)) + 8)), len(labels))
    if not isinstance(figure, SubFigure):
        # Below the axes in additional height, so that it does not cover or shrink them.
        figure.set_figheight(figure.get_figheight() + 0.19 * -(-len(labels) // columns))
    legend = figure.legend(
        [*labeled.values()] if entries is None else [*entries],
        labels,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def line_look(position: int) -> dict[str, Any]:
    """How the line at a position among several looks: its color, dashes and markers."""
    return {
        "color": COLORS[position % len(COLORS)],
        "linestyle": DASHES[position % len(DASHES)],
        "marker": MARKERS[position % len(MARKERS)],
        "markersize": 5,
        "linewidth": 1.6,
        "clip_on": False,
        "zorder": 3,
    }


def write_numbers(
    axes: Axes, x: Iterable[float], y: Iterable[float], percent: Any, dark: float, size: float = 7
) -> None:
    """Write percentages ``(rows, columns)`` into cells but NaN, light ones above ``dark``."""
    for row, at in zip(percent, y, strict=True):
        for value, column in zip(row, x, strict=True):
            if not np.isnan(value):
                # Halves are rounded up, as readers do: Python would write 0 for 0.5, 2 for 2.5.
                text = "<1" if 0 < value < 0.5 else f"{math.floor(value + 0.5)}"
                color = "white" if value > dark else INK
                axes.text(column, at, text, ha="center", va="center", fontsize=size, color=color)


def set_title(figure: Figure, what: str, label: str = "") -> None:
    """Put a title at the top left of ``figure``, with the label of the run."""
    text = " — ".join(part for part in (what, one_line(label, 60)) if part)
    title = figure.suptitle(
        text, x=0.01, horizontalalignment="left", fontsize=11, fontweight="bold", color=INK
    )
    # A dollar sign in a name would start a formula.
    title.set_parse_math(False)


def mark_empty(axes: Axes) -> None:
    """Fill empty ``axes`` with a note that nothing was recorded."""
    axes.text(0.5, 0.5, "nothing recorded yet", ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def one_line(text: str, length: int) -> str:
    """``text`` in one line of at most ``length`` characters, cut in the middle: names that begin
    alike stay different."""
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    if len(text) <= length:
        return text
    end = (length - 1) // 2
    return text[: length - 1 - end] + "…" + text[len(text) - end :]
