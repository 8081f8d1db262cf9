"""Figures of runs, also of their seconds and bytes: as matplotlib figures, and as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedul_flwr.data.run_files.records import CRITERION, Run, distinct_labels
from fedul_flwr.errors import UserError
from fedul_flwr.results.facts import byte_unit, format_bytes
from fedul_flwr.results.figure_style import (
    COLORS,
    DASHES,
    FORMATS,
    GRAY,
    HIGHLIGHT,
    INK,
    MARKERS,
    legend_below,
    mark_empty,
    new_figure,
    one_line,
    save,
    scale_errors,
    set_title,
    style,
)
from fedul_flwr.results.measure_plots import (
    client_accuracies,
    client_accuracy_figure,
    label_figures,
    measure_figures,
)
from fedul_flwr.results.priors_figure import has_priors, priors_figure

OTHER = "other"
"""Part of the traffic that is not arrays."""
OF_NOTE = 0.02
"""Fraction of a direction's traffic above which a part is shown separately."""

_PART_COLORS = (COLORS[3], COLORS[2], COLORS[1], COLORS[5], COLORS[0])
_Parts = dict[str, dict[int, float]]


def time_traffic_figure(run: Run) -> Figure:
    """Seconds per round (local training and the rest) and traffic per round (up and down).

    If a direction has several parts above :data:`OF_NOTE`, each direction has a panel with its
    parts, whose right axis shows percent of a dense model per client.
    """
    ways = {way: _parts(run, way) for way in ("down", "up")}
    totals = [[sum(series.values()) for series in parts.values()] for parts in ways.values()]
    split = any(sum(one > OF_NOTE * sum(way) for one in way) > 1 for way in totals)
    figure = new_figure(7.2, 7.8 if split else 5.6)
    above, *below = (style(axes) for axes in figure.subplots(3 if split else 2, 1, sharex=True))
    seconds, fit = _by_round(run, "seconds"), _by_round(run, "seconds_fit")
    waited = _by_round(run, "seconds_waiting")
    busy = {step: fit.get(step, 0.0) + waited.get(step, 0.0) for step in seconds}
    rest = {step: max(value - busy[step], 0.0) for step, value in seconds.items()}
    rest_name = "rest of the round" if fit else "whole round"
    shown = [(fit, "local fitting", COLORS[0]), (rest, rest_name, COLORS[4])]
    if sum(waited.values()) > OF_NOTE * sum(seconds.values()):
        shown.append((waited, "waiting for the evaluation", COLORS[5]))
    _stack(above, shown, letters=_NARROW if split else _WIDE)
    above.set_ylabel("seconds per round")
    if split:
        _draw_parts(below, run, ways)
    else:
        _draw_traffic(below[0], run)
    below[-1].set_xlabel("round")
    set_title(figure, "Time and traffic", run.label)
    return figure


def _draw_traffic(axes: Axes, run: Run) -> None:
    """Both directions in one panel."""
    up, down = _by_round(run, "bytes_up"), _by_round(run, "bytes_down")
    scale, unit = byte_unit(max([*up.values(), *down.values()], default=0.0))
    up_name = f"clients to server ({format_bytes(sum(up.values()))} in total)"
    down_name = f"server to clients ({format_bytes(sum(down.values()))} in total)"
    _stack(
        axes,
        [
            (_divided(up, scale), up_name, COLORS[2]),
            (_divided(down, scale), down_name, COLORS[3]),
        ],
    )
    axes.set_ylabel(f"{unit} per round")


def _draw_parts(panels: Sequence[Axes], run: Run, ways: Mapping[str, _Parts]) -> None:
    """One panel per direction, with the same scale, split into parts."""
    names = dict.fromkeys(name for parts in ways.values() for name in parts if name != OTHER)
    colors = dict(zip(names, cycle(_PART_COLORS), strict=False)) | {OTHER: GRAY}
    totals = (value for way in ways for value in _by_round(run, f"bytes_{way}").values())
    scale, unit = byte_unit(max(totals, default=0.0))
    # The right axis is in percent of a dense model per client, if its size is constant.
    clients, sizes = _by_round(run, "clients"), _by_round(run, "model_bytes")
    dense = {clients.get(step, 0.0) * size for step, size in sizes.items()} - {0.0}
    percent = 100 * scale / next(iter(dense), 1.0)
    for axes, (way, parts) in zip(panels, ways.items(), strict=True):
        shown = [
            (
                _divided(parts[name], scale),
                f"{name} ({format_bytes(sum(parts[name].values()))})",
                color,
            )
            for name, color in colors.items()
            if sum(parts.get(name, {}).values())
        ]
        _stack(axes, shown, letters=_NARROW)
        ends = "server to clients" if way == "down" else "clients to server"
        axes.set_ylabel(f"{ends}\n{unit} per round")
        if len(dense) == 1:
            right = axes.secondary_yaxis(
                "right", (lambda y: np.multiply(y, percent), lambda y: np.divide(y, percent))
            )
            right.set_ylabel("% of a dense model")
            right.tick_params(colors=INK, labelsize=9)
            right.spines["right"].set_color("#888888")
    top = max(axes.dataLim.y1 for axes in panels)
    for axes in panels:
        axes.set_ylim(0, 1.05 * top)


def _parts(run: Run, way: str) -> _Parts:
    """Bytes by part and round, in the order of the records."""
    prefix = f"bytes_{way}_"
    keys = dict.fromkeys(key for row in run.metrics for key in row if key.startswith(prefix))
    return {key.removeprefix(prefix): _by_round(run, key) for key in keys}


def _by_round(run: Run, key: str) -> dict[int, float]:
    return dict(zip(*run.series(key), strict=True))


def _divided(series: Mapping[int, float], scale: float) -> dict[int, float]:
    return {step: count / scale for step, count in series.items()}


_WIDE, _NARROW = 100, 78
"""Characters of a legend that fit above a panel, and above one with a second axis."""


def _stack(
    axes: Axes, parts: Sequence[tuple[dict[int, float], str, str]], letters: int = _WIDE
) -> None:
    """Stacked bars over rounds, with a legend above; parts without data are left out."""
    rounds = sorted({step for series, _, _ in parts for step in series})
    base = np.zeros(len(rounds))
    width = 0.8 if len(rounds) <= 60 else 1.0
    entries = []
    for series, label, color in parts:
        if series:
            heights = np.array([series.get(step, 0.0) for step in rounds])
            axes.bar(rounds, heights, width, bottom=base, color=color, label=label)
            base += heights
            entries.append(Patch(color=color, label=label))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.grid(visible=False, axis="x")
    axes.margins(x=0.01)
    if not entries:
        mark_empty(axes)
        return
    legend = axes.legend(
        handles=entries,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=_columns([str(entry.get_label()) for entry in entries], letters),
        frameon=False,
        fontsize=9,
        borderaxespad=0.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _columns(labels: Sequence[str], letters: int) -> int:
    """The most columns of a legend whose ``labels`` and colors fit into so many ``letters``."""
    for columns in range(len(labels), 1, -1):
        rows = -(-len(labels) // columns)
        longest = (max(map(len, labels[at : at + rows])) for at in range(0, len(labels), rows))
        if sum(most + 7 for most in longest) <= letters:
            return columns
    return 1


_STAR: Mapping[str, Any] = {
    "marker": "*",
    "markersize": 13,
    "markeredgecolor": INK,
    "markerfacecolor": HIGHLIGHT,
    "linestyle": "none",
}
BALANCED = CRITERION["balanced"]
_ERRORS = {
    "test_error": "test error",
    "validation_error": "validation error",
    "validation_balanced_error": "balanced validation error",
    "labeled_error": "error of labeled training points",
}
_LOSSES = {
    "surrogate_loss": "surrogate loss, training sets",
    "heldout_loss": "surrogate loss, held-out sets",
}
_PSEUDO_LABELS = {
    "pseudo_label_error": "pseudo labels that are wrong",
    "pseudo_labeled": "unlabeled points with a pseudo label",
}


def run_figures(run: Run) -> dict[str, Figure]:
    """Figures of the records of ``run``, by name; only for records that exist.

    ``error``, ``loss`` and ``pseudo_labels`` over rounds, ``priors`` of the clients' sets,
    ``time_traffic``, ``confusion`` and ``reliability`` on test points, ``client_accuracy``, and
    figures of labels that clients gave their points.
    """
    drawn = {}
    if has_error(run):
        drawn["error"] = error_figure([run])
    if has_loss(run):
        drawn["loss"] = loss_figure([run])
    if run.series("pseudo_label_error")[0]:
        drawn["pseudo_labels"] = pseudo_labels_figure(run)
    if has_priors(run):
        drawn["priors"] = priors_figure(run)
    if any(run.series(key)[0] for key in ("seconds", "bytes_up", "bytes_down")):
        drawn["time_traffic"] = time_traffic_figure(run)
    names = run.data.get("class_names")
    drawn |= measure_figures(run.measures or {}, names)
    if accuracies := client_accuracies(run):
        label = f"test points, round {(run.measures or {})['best']['round']}"
        owners = {one.id: one.name for one in run.federation.clients} if run.federation else {}
        drawn["client_accuracy"] = client_accuracy_figure(accuracies, label, owners)
    return drawn | label_figures(run.labels or {}, names)


def draw_plots(run: Run, directory: Path) -> list[Path]:
    """Write :func:`run_figures` into ``directory``; returns the PNG files."""
    return save_plots(run_figures(run), directory)


def save_plots(figures: Mapping[str, Figure], directory: Path) -> list[Path]:
    """Write figures as ``<name>.png``, PDF and SVG into ``directory``; returns the PNG files.

    The directory is made if there is none.
    """
    if directory.is_symlink():
        raise UserError(
            f"{directory} is a link to another place: nothing is written through it.",
            "path-not-usable",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in figures:
            for form in FORMATS:
                (directory / f"{name}.{form}").unlink(missing_ok=True)  # it may be a link, too
        return [save(figure, directory / f"{name}.png") for name, figure in figures.items()]
    except OSError as error:
        raise UserError(
            f"Cannot write plots to {directory}: {error.strerror or error}.", "file-not-writable"
        ) from error


def has_error(run: Run) -> bool:
    """Whether any error was measured."""
    return any(run.series(key)[0] for key in _ERRORS)


def has_loss(run: Run) -> bool:
    """Whether any loss was measured."""
    return any(run.series(key)[0] for key in _loss_names([run]))


def error_figure(runs: Sequence[Run]) -> Figure:
    """Errors (percent) over rounds: test, validation, and on labeled training points if
    measured; a star marks each run's best round."""
    figure = new_figure(7.2, 4.2)
    axes = style(figure.add_subplot())
    # The balanced error is shown where it chose the round: elsewhere it would hide the others.
    balanced = any(_chooser(run) == BALANCED for run in runs)
    names = {key: name for key, name in _ERRORS.items() if balanced or key != BALANCED}
    entries = _curves(axes, runs, names)
    values = [value for run in runs for key in names for value in run.series(key)[1]]
    entries += _stars(axes, runs, names, "%", single=len(runs) == 1)
    axes.set_ylabel("error (%)")
    scale_errors(axes, "y", values)
    _finish(figure, axes, runs, "Error over rounds", entries)
    return figure


def loss_figure(runs: Sequence[Run]) -> Figure:
    """Surrogate and held-out loss over rounds, and other losses that a method recorded."""
    figure = new_figure(7.2, 4.2)
    axes = style(figure.add_subplot())
    entries = _curves(axes, runs, _loss_names(runs))
    if len(runs) == 1 and (chance := runs[0].series("surrogate_chance")[1]):
        label = f"chance: ln of the number of sets ({chance[-1]:.3f})"
        look: dict[str, Any] = {"color": GRAY, "linestyle": ":", "linewidth": 1.3}
        axes.axhline(chance[-1], **look)
        entries.append(Line2D([], [], label=label, **look))
    axes.set_ylabel("loss (nats)")
    by_loss = [run for run in runs if _chooser(run) in _LOSSES]
    entries += _stars(axes, by_loss, _LOSSES, "nats", single=len(runs) == 1)
    _finish(figure, axes, runs, "Loss over rounds", entries)
    return figure


def pseudo_labels_figure(run: Run) -> Figure:
    """Percent of unlabeled points with a pseudo label, and of wrong ones, over rounds."""
    figure = new_figure(7.2, 4.2)
    axes = style(figure.add_subplot())
    entries = _curves(axes, [run], _PSEUDO_LABELS)
    axes.set_ylabel("percent")
    axes.set_ylim(0, 103)
    _finish(figure, axes, [run], "Pseudo labels over rounds", entries)
    return figure


def _loss_names(runs: Sequence[Run]) -> dict[str, str]:
    keys = dict.fromkeys(key for run in runs for row in run.metrics for key in row)
    others = [key for key in keys if key.endswith("loss") and key not in _LOSSES]
    return _LOSSES | {key: key.replace("_", " ") for key in others}


def _curves(axes: Axes, runs: Sequence[Run], names: Mapping[str, str]) -> list[Line2D]:
    """One line per run and key; for several runs colors show the run, dashes the key."""
    single = len(runs) == 1
    labels = distinct_labels(runs)
    entries: list[Line2D] = []
    kinds: dict[str, Line2D] = {}
    for position, run in enumerate(runs):
        if not run.trains:
            continue
        marker = MARKERS[position // len(COLORS) % len(MARKERS)]
        for index, (key, name) in enumerate(names.items()):
            rounds, values = run.series(key)
            if not rounds:
                continue
            look: dict[str, Any] = {
                "color": COLORS[(index if single else position) % len(COLORS)],
                "linestyle": DASHES[index % len(DASHES)],
                "linewidth": 1.8 if index == 0 else 1.3,
                "markersize": 4,
            }
            # Many markers would hide the curve; keep some if colors repeat.
            marked = marker if len(rounds) <= 30 or position >= len(COLORS) else ""
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
            color = COLORS[position % len(COLORS)]
            label = one_line(labels[position], 70)
            entries.append(
                Line2D([], [], label=label, color=color, marker=marker, markersize=4, linewidth=2)
            )
    return entries + list(kinds.values())


def _chooser(run: Run) -> str:
    """Key of the metric that chose the best round."""
    selection = str((run.summary or {}).get("selection") or run.settings.get("selection"))
    return CRITERION.get(selection, "")


def _stars(
    axes: Axes, runs: Sequence[Run], names: Mapping[str, str], unit: str, *, single: bool
) -> list[Line2D]:
    """Mark the best round of each run; returns the entry of the legend if any was marked."""
    notes = [note for note in (_mark_best(axes, run, names, unit) for run in runs) if note]
    label = notes[0] if notes and single else "best round of a run"
    return [Line2D([], [], label=label, **_STAR)] if notes else []


def _mark_best(axes: Axes, run: Run, names: Mapping[str, str], unit: str) -> str:
    """Mark the best round on the curve that chose it if it is in the plot, else on the first."""
    best, chooser = run.best_round(), _chooser(run)
    for key in dict.fromkeys([*([chooser] if chooser in names else []), *names]):
        rounds, values = run.series(key)
        if best is not None and best in rounds:
            value = values[rounds.index(best)]
            axes.plot([best], [value], label="best round", clip_on=False, zorder=5, **_STAR)
            so_far = "" if run.summary is not None else " so far"
            chosen = ", which chose it" if key == chooser else ""
            return f"best round{so_far}: {best} ({names[key]} {value:.2f} {unit}{chosen})"
    return ""


def _finish(
    figure: Figure, axes: Axes, runs: Sequence[Run], title: str, entries: list[Line2D]
) -> None:
    axes.set_xlabel("round")
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    set_title(figure, title, runs[0].label if len(runs) == 1 else "")
    if not axes.get_lines():
        mark_empty(axes)
        return
    legend_below(figure, entries)
