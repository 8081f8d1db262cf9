"""Seconds and bytes of a run's rounds, as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedul_flwr.results.figure_style import (
    COLOURS,
    new_figure,
    say_nothing_recorded,
    set_title,
    style,
)
from fedul_flwr.results.records import Run


def has_time_traffic(run: Run) -> bool:
    """Whether seconds or bytes were recorded."""
    return any(run.series(key)[0] for key in ("seconds", "bytes_up", "bytes_down"))


def time_traffic_figure(run: Run) -> Figure:
    """Seconds per round (local fitting and the rest) and traffic per round (up and down)."""
    figure = new_figure(7.2, 5.6)
    above, below = (style(axes) for axes in figure.subplots(2, 1, sharex=True))
    seconds, fit, up, down = (
        dict(zip(*run.series(key), strict=True))
        for key in ("seconds", "seconds_fit", "bytes_up", "bytes_down")
    )
    rest = {step: max(value - fit.get(step, 0.0), 0.0) for step, value in seconds.items()}
    rest_name = "rest of the round (transport, waiting, aggregation)" if fit else "whole round"
    _stack(above, [(fit, "local fitting", COLOURS[0]), (rest, rest_name, COLOURS[4])])
    above.set_ylabel("seconds per round")
    scale, unit = _byte_unit(max([*up.values(), *down.values()], default=0.0))
    up_name = f"clients to server ({format_bytes(sum(up.values()))} in total)"
    down_name = f"server to clients ({format_bytes(sum(down.values()))} in total)"
    _stack(
        below,
        [
            ({step: count / scale for step, count in up.items()}, up_name, COLOURS[2]),
            ({step: count / scale for step, count in down.items()}, down_name, COLOURS[3]),
        ],
    )
    below.set_ylabel(f"{unit} per round")
    below.set_xlabel("round")
    set_title(figure, "Time and traffic", run.label)
    return figure


def format_bytes(count: float) -> str:
    """``count`` bytes with three digits and a decimal unit, e.g. ``12.3 MB``."""
    scale, unit = _byte_unit(count)
    value = count / scale
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _byte_unit(count: float) -> tuple[float, str]:
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return scale, unit
    return 1.0, "bytes"


def _stack(axes: Axes, parts: Sequence[tuple[dict[int, float], str, str]]) -> None:
    """Bars over rounds, every part on top of those before it; parts without data are left out."""
    rounds = sorted({step for series, _, _ in parts for step in series})
    base = np.zeros(len(rounds))
    width = 0.8 if len(rounds) <= 60 else 1.0
    entries = []
    for series, label, colour in parts:
        if series:
            heights = np.array([series.get(step, 0.0) for step in rounds])
            axes.bar(rounds, heights, width, bottom=base, color=colour, label=label)
            base += heights
            entries.append(Patch(color=colour, label=label))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.grid(visible=False, axis="x")
    axes.margins(x=0.01)
    if not entries:
        say_nothing_recorded(axes)
        return
    axes.legend(
        handles=entries,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=2,
        frameon=False,
        fontsize=9,
        borderaxespad=0.2,
    )
