"""Figure of seconds and bytes over a run's rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedul_flwr.data.run_files.records import Run
from fedul_flwr.results.figure_style import (
    COLOURS,
    GREY,
    INK,
    new_figure,
    say_nothing_recorded,
    set_title,
    style,
)
from fedul_flwr.results.printed_summary import byte_unit, format_bytes

OTHER = "other"
"""Part of the traffic that is not arrays."""
OF_NOTE = 0.02
"""Fraction of a direction's traffic above which a part is shown separately."""

_PART_COLOURS = (COLOURS[3], COLOURS[2], COLOURS[1], COLOURS[5], COLOURS[0])
_Parts = dict[str, dict[int, float]]


def has_time_traffic(run: Run) -> bool:
    """Whether seconds or bytes were recorded."""
    return any(run.series(key)[0] for key in ("seconds", "bytes_up", "bytes_down"))


def time_traffic_figure(run: Run) -> Figure:
    """Seconds per round (local training and the rest) and traffic per round (up and down).

    If a direction has several parts above :data:`OF_NOTE`, each direction has a panel with its
    parts, whose right axis shows percent of a dense model per client.
    """
    ways = {way: _parts(run, way) for way in ("down", "up")}
    split = any(map(_is_split, ways.values()))
    figure = new_figure(7.2, 7.8 if split else 5.6)
    above, *below = (style(axes) for axes in figure.subplots(3 if split else 2, 1, sharex=True))
    _draw_time(above, run)
    if split:
        _draw_parts(below, run, ways)
    else:
        _draw_traffic(below[0], run)
    below[-1].set_xlabel("round")
    set_title(figure, "Time and traffic", run.label)
    return figure


def _draw_time(axes: Axes, run: Run) -> None:
    seconds, fit = _by_round(run, "seconds"), _by_round(run, "seconds_fit")
    rest = {step: max(value - fit.get(step, 0.0), 0.0) for step, value in seconds.items()}
    rest_name = "rest of the round (transport, waiting, aggregation)" if fit else "whole round"
    _stack(axes, [(fit, "local fitting", COLOURS[0]), (rest, rest_name, COLOURS[4])])
    axes.set_ylabel("seconds per round")


def _draw_traffic(axes: Axes, run: Run) -> None:
    """Both directions in one panel."""
    up, down = _by_round(run, "bytes_up"), _by_round(run, "bytes_down")
    scale, unit = byte_unit(max([*up.values(), *down.values()], default=0.0))
    up_name = f"clients to server ({format_bytes(sum(up.values()))} in total)"
    down_name = f"server to clients ({format_bytes(sum(down.values()))} in total)"
    _stack(
        axes,
        [
            (_divided(up, scale), up_name, COLOURS[2]),
            (_divided(down, scale), down_name, COLOURS[3]),
        ],
    )
    axes.set_ylabel(f"{unit} per round")


def _draw_parts(panels: Sequence[Axes], run: Run, ways: Mapping[str, _Parts]) -> None:
    """One panel per direction, with the same scale, split into parts."""
    names = dict.fromkeys(name for parts in ways.values() for name in parts if name != OTHER)
    colours = dict(zip(names, cycle(_PART_COLOURS), strict=False)) | {OTHER: GREY}
    totals = (value for way in ways for value in _by_round(run, f"bytes_{way}").values())
    scale, unit = byte_unit(max(totals, default=0.0))
    for axes, (way, parts) in zip(panels, ways.items(), strict=True):
        shown = [
            (
                _divided(parts[name], scale),
                f"{name} ({format_bytes(sum(parts[name].values()))})",
                colour,
            )
            for name, colour in colours.items()
            if name in parts
        ]
        _stack(axes, shown, columns=4 if len(shown) <= 4 else 3)
        ends = "server to clients" if way == "down" else "clients to server"
        axes.set_ylabel(f"{ends}\n{unit} per round")
        _add_percents(axes, run, scale)
    top = max(axes.dataLim.y1 for axes in panels)
    for axes in panels:
        axes.set_ylim(0, 1.05 * top)


def _add_percents(axes: Axes, run: Run, scale: float) -> None:
    """Add a right axis in percent of a dense model per client, if its size is constant."""
    clients, sizes = _by_round(run, "clients"), _by_round(run, "model_bytes")
    dense = {clients.get(step, 0.0) * size for step, size in sizes.items()} - {0.0}
    if len(dense) == 1:
        percent = 100 * scale / dense.pop()
        right = axes.secondary_yaxis(
            "right", (lambda y: np.multiply(y, percent), lambda y: np.divide(y, percent))
        )
        right.set_ylabel("% of a dense model")
        right.tick_params(colors=INK, labelsize=9)
        right.spines["right"].set_color("#888888")


def _parts(run: Run, way: str) -> _Parts:
    """Bytes by part and round, in the order of the records."""
    prefix = f"bytes_{way}_"
    keys = dict.fromkeys(key for row in run.metrics for key in row if key.startswith(prefix))
    return {key.removeprefix(prefix): _by_round(run, key) for key in keys}


def _is_split(parts: _Parts) -> bool:
    totals = [sum(series.values()) for series in parts.values()]
    return sum(total > OF_NOTE * sum(totals) for total in totals) > 1


def _by_round(run: Run, key: str) -> dict[int, float]:
    return dict(zip(*run.series(key), strict=True))


def _divided(series: Mapping[int, float], scale: float) -> dict[int, float]:
    return {step: count / scale for step, count in series.items()}


def _stack(
    axes: Axes, parts: Sequence[tuple[dict[int, float], str, str]], columns: int = 2
) -> None:
    """Stacked bars over rounds; parts without data are left out."""
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
    legend = axes.legend(
        handles=entries,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=9,
        borderaxespad=0.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
