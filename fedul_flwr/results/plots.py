"""Pictures of runs: as matplotlib figures, and as files in a run's directory."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedul_flwr.errors import UserError
from fedul_flwr.results.figure_style import (
    COLOURS,
    DASHES,
    HIGHLIGHT,
    INK,
    MARKERS,
    legend_below,
    new_figure,
    one_line,
    say_nothing_recorded,
    scale_errors,
    set_title,
    style,
)
from fedul_flwr.results.priors_figure import has_priors, priors_figure
from fedul_flwr.results.records import Run, distinct_labels

__all__ = [
    "DPI",
    "draw_plots",
    "draw_png",
    "error_figure",
    "format_bytes",
    "has_error",
    "has_loss",
    "has_priors",
    "has_time_traffic",
    "loss_figure",
    "priors_figure",
    "time_traffic_figure",
]

DPI = 150
"""Dots per inch of the pictures written."""
_STAR: Mapping[str, Any] = {
    "marker": "*",
    "markersize": 13,
    "markeredgecolor": INK,
    "markerfacecolor": HIGHLIGHT,
    "linestyle": "none",
}
_ERRORS = {"test_error": "test error", "validation_error": "validation error"}
_LOSSES = {
    "surrogate_loss": "surrogate loss, training sets",
    "heldout_loss": "surrogate loss, held-out sets",
}


def draw_plots(run: Run, directory: Path) -> list[Path]:
    """Draw what ``run`` recorded into ``directory``; returns the files written.

    ``error.png`` and ``loss.png`` over rounds, ``priors.png`` with the clients' sets, and
    ``time_traffic.png``. What was not recorded is not drawn.
    """
    figures: dict[str, tuple[Callable[[Run], bool], Callable[[], Figure]]] = {
        "error.png": (has_error, lambda: error_figure([run])),
        "loss.png": (has_loss, lambda: loss_figure([run])),
        "priors.png": (has_priors, lambda: priors_figure(run)),
        "time_traffic.png": (has_time_traffic, lambda: time_traffic_figure(run)),
    }
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, (recorded, draw) in figures.items():
            if recorded(run):
                draw().savefig(directory / name, dpi=DPI)
                paths.append(directory / name)
    except OSError as error:
        raise UserError(f"Cannot write plots to {directory}: {error.strerror or error}.") from error
    return paths


def draw_png(figure: Figure) -> bytes:
    """``figure`` as the content of a PNG file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=DPI)
    return picture.getvalue()


def has_error(run: Run) -> bool:
    """Whether any error was measured."""
    return any(run.series(key)[0] for key in _ERRORS)


def has_loss(run: Run) -> bool:
    """Whether any loss was measured."""
    return any(run.series(key)[0] for key in _loss_names([run]))


def has_time_traffic(run: Run) -> bool:
    """Whether seconds or bytes were recorded."""
    return any(run.series(key)[0] for key in ("seconds", "bytes_up", "bytes_down"))


def error_figure(runs: Sequence[Run]) -> Figure:
    """Test and validation errors (percent) over rounds; a star marks each run's best round."""
    figure = new_figure(7.2, 4.2)
    axes = style(figure.add_subplot())
    entries = _curves(axes, runs, _ERRORS)
    values = [value for run in runs for key in _ERRORS for value in run.series(key)[1]]
    notes = [note for note in (_mark_best(axes, run) for run in runs) if note]
    axes.set_ylabel("error (%)")
    scale_errors(axes, "y", values)
    if notes:
        label = notes[0] if len(runs) == 1 else "best round of a run"
        entries.append(Line2D([], [], label=label, **_STAR))
    _finish(figure, axes, runs, "Error over rounds", entries)
    return figure


def loss_figure(runs: Sequence[Run]) -> Figure:
    """Surrogate and held-out loss over rounds, and other losses that a method recorded."""
    figure = new_figure(7.2, 4.2)
    axes = style(figure.add_subplot())
    entries = _curves(axes, runs, _loss_names(runs))
    axes.set_ylabel("loss (nats)")
    _finish(figure, axes, runs, "Loss over rounds", entries)
    return figure


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


def _loss_names(runs: Sequence[Run]) -> dict[str, str]:
    keys = dict.fromkeys(key for run in runs for row in run.metrics for key in row)
    others = [key for key in keys if key.endswith("loss") and key not in _LOSSES]
    return _LOSSES | {key: key.replace("_", " ") for key in others}


def _curves(axes: Axes, runs: Sequence[Run], names: Mapping[str, str]) -> list[Line2D]:
    """One line a run and key; of several runs the colour says the run, the dashes the key."""
    single = len(runs) == 1
    labels = distinct_labels(runs)
    entries: list[Line2D] = []
    kinds: dict[str, Line2D] = {}
    for position, run in enumerate(runs):
        marker = MARKERS[position // len(COLOURS) % len(MARKERS)]
        for index, (key, name) in enumerate(names.items()):
            rounds, values = run.series(key)
            if not rounds:
                continue
            look: dict[str, Any] = {
                "color": COLOURS[(index if single else position) % len(COLOURS)],
                "linestyle": DASHES[index % len(DASHES)],
                "linewidth": 1.8 if index == 0 else 1.3,
                "markersize": 4,
            }
            # The marks of many points would hide the curve; where colours repeat, some must stay.
            marked = marker if len(rounds) <= 30 or position >= len(COLOURS) else ""
            axes.plot(
                rounds,
                values,
                label=f"{labels[position]}: {name}",
                marker=marked,
                markevery=max(1, len(rounds) // 30),
                alpha=1.0 if single or index == 0 else 0.75,
                **look,
            )
            if single:
                entries.append(Line2D([], [], label=name, marker=marked, **look))
            else:
                kinds[name] = Line2D([], [], label=name, **(look | {"color": "#666666"}))
        if not single:
            colour = COLOURS[position % len(COLOURS)]
            label = one_line(labels[position], 70)
            entries.append(
                Line2D([], [], label=label, color=colour, marker=marker, markersize=4, linewidth=2)
            )
    return entries + list(kinds.values())


def _mark_best(axes: Axes, run: Run) -> str:
    best = run.best_round()
    for key, name in _ERRORS.items():
        rounds, errors = run.series(key)
        if best is not None and best in rounds:
            error = errors[rounds.index(best)]
            axes.plot([best], [error], label="best round", clip_on=False, zorder=5, **_STAR)
            so_far = "" if run.summary is not None else " so far"
            return f"best round{so_far}: {best} ({name} {error:.2f} %)"
    return ""


def _finish(
    figure: Figure, axes: Axes, runs: Sequence[Run], title: str, entries: list[Line2D]
) -> None:
    axes.set_xlabel("round")
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    set_title(figure, title, runs[0].label if len(runs) == 1 else "")
    if not axes.get_lines():
        say_nothing_recorded(axes)
        return
    legend_below(figure, entries)


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
