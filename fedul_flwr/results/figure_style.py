"""The common look of all pictures.

Figures are made without pyplot: a server draws in a thread of its own, and pyplot's global state
belongs to whoever imported it first. Colours are those of Okabe and Ito, which all common kinds of
colour vision tell apart.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
HIGHLIGHT = "#F0E442"
INK = "#222222"
GREY = "#7A8B99"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure (inches) with a canvas of its own and room for every label."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def style(axes: Axes) -> Axes:
    """Give ``axes`` the common look; returns them."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def set_title(figure: Figure, what: str, label: str = "") -> None:
    """Say at the top left what ``figure`` shows, and of which run."""
    text = " — ".join(part for part in (what, one_line(label, 60)) if part)
    title = figure.suptitle(
        text, x=0.01, horizontalalignment="left", fontsize=11, fontweight="bold", color=INK
    )
    # Names may hold a dollar sign, which would start a formula.
    title.set_parse_math(False)


def say_nothing_recorded(axes: Axes) -> None:
    """Fill empty ``axes`` with a note instead of a frame without meaning."""
    axes.text(0.5, 0.5, "nothing recorded yet", ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def one_line(text: str, length: int) -> str:
    """``text`` in one line of at most ``length`` characters."""
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return text if len(text) <= length else text[: length - 1] + "…"
