"""Figures of runs, also of their seconds and bytes: as matplotlib figures, and as files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedul_flwr.arrays import Floats
from fedul_flwr.config.methods import METHODS
from fedul_flwr.data.run_files.records import CRITERION, ClientRecord
from fedul_flwr.data.run_files.run import Run, distinct_labels
from fedul_flwr.data.safe_files import make_folder, write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.results.facts import byte_unit, format_bytes
from fedul_flwr.results.figure_style import (
    COLORS,
    DASHES,
    GRAY,
    HIGHLIGHT,
    INK,
    MARKERS,
    draw,
    legend_below,
    mark_empty,
    new_figure,
    one_line,
    plain,
    scale_errors,
    set_title,
    style,
    write_numbers,
)
from fedul_flwr.results.measure_plots import (
    Drawings,
    client_accuracies,
    client_accuracy_figure,
    confusion_figure,
    label_figures,
    measure_figures,
)

# Figure of the clients' data: class priors and sizes of their sets.

SETS_SHOWN = 12
"""Largest number of clients with one row per unlabeled set."""
CLIENTS_SHOWN = 400
"""Largest number of clients shown, as a row needs a few dots; of more clients a part is shown."""
CLASSES_WITH_NUMBERS = 12
"""Largest number of classes whose cells have their numbers written in."""
_MOST_LABELS = 60
"""Largest number of rows that all have a label."""


@dataclass(frozen=True)
class _Rows:
    """Rows of one client: shares ``(r, K)`` (NaN: not shared) and sizes ``(r,)``."""

    client: ClientRecord
    shares: Floats
    sizes: Floats


def has_priors(run: Run) -> bool:
    """Whether anything about the clients' points was recorded."""
    return any(
        client.priors or client.set_sizes or client.class_counts or client.num_points is not None
        for client in run.clients
    )


@plain()
def priors_figure(run: Run) -> Figure:
    """Class priors of the clients' sets as a heat map, with set sizes as bars next to it.

    Rows are the sets, grouped by client; with more than :data:`SETS_SHOWN` clients one row per
    client, for at most :data:`CLIENTS_SHOWN` evenly spaced clients. If no priors were shared, it
    shows the clients' class counts, and without those only the set sizes.
    """
    every = run.clients
    clients = every[:: max(1, -(-len(every) // CLIENTS_SHOWN))]
    priors = [client.priors[0] for client in clients if client.priors]
    counts = [client.class_counts for client in clients if client.class_counts]
    num_classes = len((priors or counts or [()])[0])
    by_set = len(clients) <= SETS_SHOWN and not (counts and not priors)
    rows = [_rows_of(client, by_set, bool(priors), num_classes) for client in clients]
    method = METHODS.get(str(run.settings.get("method")))
    unit = "class prior (%)"
    if not num_classes:
        title = "Points of the clients"
    elif not priors or (method is not None and method.data != "unlabeled-sets"):
        # It has the points.
        title = "Classes of the clients' points" + (", set by set" if by_set else "")
        unit = "share of the points (%)"
    elif by_set:
        title = "Class priors of the unlabeled sets"
    else:
        title = "Class priors of the clients (mean over sets by size)"
    if len(clients) < len(every):
        title += f": {len(clients):,} of {len(every):,}"
    names = run.names_of(num_classes)
    figure = _drawn(rows, [one_line(name, 16) for name in names], unit)
    set_title(figure, title, run.label)
    return figure


def _rows_of(client: ClientRecord, by_set: bool, has_priors: bool, num_classes: int) -> _Rows:
    """Rows of a client's sets, or one row of all."""
    sizes = np.array(client.set_sizes or (), dtype=np.float64)
    if by_set and (client.priors or len(sizes)):
        count = len(client.priors or sizes)
        unknown = np.full((count, num_classes), np.nan)
        shares = np.array(client.priors) if client.priors else unknown
        return _Rows(client, shares, sizes if len(sizes) else np.full(count, np.nan))
    total = sizes.sum() if len(sizes) else np.nan
    mean = client.class_shares() if client.priors or not has_priors else None
    return _Rows(
        client,
        np.array([mean or [np.nan] * num_classes]),
        np.array([total if client.num_points is None else float(client.num_points)]),
    )


def _drawn(rows: Sequence[_Rows], names: Sequence[str], unit: str) -> Figure:
    """The heat map if there are classes, and bars of the sizes."""
    count = sum(len(block.sizes) for block in rows)
    # Clients with several rows are separated by gaps, even if rows are thin.
    gap = max(0.45, 0.01 * count) if count > len(rows) else 0.0
    is_row = np.concatenate([[*[True] * len(block.sizes), False] for block in rows])[:-1]
    edges = np.concatenate([[0.0], np.where(is_row, 1.0, gap).cumsum()])
    centers = edges[:-1][is_row] + 0.5
    parts = np.split(centers, np.cumsum([len(block.sizes) for block in rows])[:-1])
    height = float(np.clip(0.28 * edges[-1], 0.5, 13.0))
    # No wider than a page shows without making it smaller.
    width = float(np.clip(0.62 * len(names), 3.0, 7.4)) if names else 0.0
    figure = new_figure(4.6 + (width or 2.6), height + (1.6 if names else 1.1))
    if names:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(width, 1.6))
        gaps = np.full((1, len(names)), np.nan)
        shares = 100 * np.vstack([row for block in rows for row in (block.shares, gaps)])[:-1]
        # As pixels, in SVG too: thousands of cells would be as many paths with visible seams.
        # A root makes the small shares of many classes darker.
        norm = PowerNorm(0.5 if len(names) > CLASSES_WITH_NUMBERS else 1.0, vmin=0)
        mesh = left.pcolormesh(
            *(np.arange(len(names) + 1), edges, np.ma.masked_invalid(shares)),
            cmap="YlGnBu",
            norm=norm,
            rasterized=True,
        )
        bar = figure.colorbar(
            mesh, ax=left, location="top", shrink=1.0, pad=0.15 / height, aspect=50
        )
        bar.ax.set_title(unit, fontsize=9)
        bar.outline.set_visible(False)
        if height / edges[-1] > 0.2 and len(names) <= CLASSES_WITH_NUMBERS:
            top = np.nanmax(shares, initial=0)
            write_numbers(left, np.arange(len(names)) + 0.5, centers, shares[is_row], 0.55 * top)
        for block, part in zip(rows, parts, strict=True):
            if np.isnan(block.shares).all():
                left.axhspan(part[0] - 0.5, part[-1] + 0.5, color="#E4E4E4", linewidth=0)
                middle = len(names) / 2, float(part.mean())
                left.text(*middle, "not shared", ha="center", va="center", fontsize=8, color=INK)
        _label_classes(left, names, width / len(names))
    else:
        left = right = figure.add_subplot()
    colors = [COLORS[1] if b.client.status == "dropped" else GRAY for b in rows for _ in b.sizes]
    sizes = np.nan_to_num(np.concatenate([block.sizes for block in rows]))
    style(right).barh(centers, sizes, height=0.8, color=colors)
    right.grid(visible=False, axis="y")
    right.set_xlabel("points")
    right.locator_params(axis="x", nbins=4)
    _label_rows(left, rows, parts)
    left.set_ylim(edges[-1], 0)
    return figure


def _label_rows(axes: Axes, rows: Sequence[_Rows], parts: Sequence[Floats]) -> None:
    """Label every row by client and set, or if there are many, some clients."""
    ticks: dict[float, str] = {}
    for block, part in zip(rows, parts, strict=True):
        name = one_line(block.client.name, 20) or f"client {block.client.id}"
        name += " (dropped)" if block.client.status == "dropped" else ""
        if sum(map(len, parts)) > _MOST_LABELS or len(part) == 1:
            ticks[float(part.mean())] = name
        else:
            ticks |= {float(at): f"set {number}" for number, at in enumerate(part)}
            ticks[float(part[0])] = f"{name}, set 0"
    every = -(-len(ticks) // _MOST_LABELS)
    axes.set_yticks([*ticks][::every], [*ticks.values()][::every], parse_math=False)
    axes.tick_params(axis="both", length=0, colors=INK, labelsize=8)
    axes.spines[:].set_visible(False)


def _label_classes(axes: Axes, names: Sequence[str], cell: float) -> None:
    # A label needs about 0.15 inch even if it is rotated.
    every = math.ceil(0.15 / cell)
    labels = names[::every]
    upright = max(map(len, labels)) * 0.08 >= 0.95 * cell * every
    at = np.arange(0, len(names), every) + 0.5
    axes.set_xticks(at, labels, rotation=90 if upright else 0, parse_math=False)
    axes.set_xlabel("class" if every == 1 else f"class (one of {every} is named)")


OTHER = "other"
"""Part of the traffic that is not arrays."""
OF_NOTE = 0.02
"""Fraction of a direction's traffic above which a part is shown separately."""

_CLOCK_COLORS = (COLORS[0], COLORS[4], COLORS[5])
_PART_COLORS = (COLORS[3], COLORS[2], COLORS[1], COLORS[5], COLORS[0])
_WAYS = {"down": "server to clients", "up": "clients to server"}


@plain()
def time_traffic_figure(run: Run, part: Figure | None = None) -> Figure:
    """Seconds per round (local training and the rest) and traffic per round (up and down).

    If a direction has several parts above :data:`OF_NOTE`, each direction has a panel with its
    parts, whose right axis shows percent of a dense model per client.
    """
    ways = {way: _parts(run, way) for way in _WAYS}
    split = any((parts.sum() > OF_NOTE * parts.sum().sum()).sum() > 1 for parts in ways.values())
    figure = new_figure(7.2, 7.8 if split else 5.6, part)
    above, *below = (style(axes) for axes in figure.subplots(3 if split else 2, 1, sharex=True))
    clock = _by_round(run, ["seconds", "seconds_fit", "seconds_waiting"])
    fit, waited = clock.pop("seconds_fit"), clock.pop("seconds_waiting")
    rest = (clock.pop("seconds") - fit.fillna(0) - waited.fillna(0)).clip(lower=0)
    fits = fit.notna().any()
    shown = {"local fitting": fit, "rest of the round" if fits else "whole round": rest}
    if waited.sum() > OF_NOTE * (fit.sum() + rest.sum() + waited.sum()):
        shown["waiting for the evaluation"] = waited
    _stack(above, pd.DataFrame(shown), dict(zip(shown, _CLOCK_COLORS, strict=False)))
    above.set_ylabel("seconds per round")
    if split:
        _draw_parts(below, run, ways)
    else:
        both = _by_round(run, ["bytes_up", "bytes_down"])
        scale, unit = byte_unit(both.max().max() if both.size else 0.0)
        names = {f"bytes_{way}": f"{_WAYS[way]} ({{}} in total)" for way in _WAYS}
        colors = {"bytes_up": COLORS[2], "bytes_down": COLORS[3]}
        _stack(below[0], both, colors, scale, names)
        below[0].set_ylabel(f"{unit} per round")
    below[-1].set_xlabel("round")
    set_title(figure, "Time and traffic", run.label if part is None else "")
    return figure


def _draw_parts(panels: Sequence[Axes], run: Run, ways: Mapping[str, pd.DataFrame]) -> None:
    """One panel per direction, with the same scale, split into parts."""
    names = dict.fromkeys(str(n) for parts in ways.values() for n in parts if n != OTHER)
    cycled = [_PART_COLORS[position % len(_PART_COLORS)] for position in range(len(names))]
    colors = dict(zip(names, cycled, strict=True)) | {OTHER: GRAY}
    scale, unit = byte_unit(_by_round(run, ["bytes_down", "bytes_up"]).max().max())
    # The right axis is in percent of a dense model per client, if its size is constant.
    dense = _by_round(run, ["clients", "model_bytes"]).prod(axis=1, skipna=False).dropna()
    sizes = set(dense) - {0.0}
    percent = 100 * scale / next(iter(sizes), 1.0)
    for axes, (way, parts) in zip(panels, ways.items(), strict=True):
        shown = [str(name) for name in colors if name in parts and parts[name].sum()]
        _stack(axes, parts[shown], colors, scale, {name: f"{name} ({{}})" for name in shown})
        axes.set_ylabel(f"{_WAYS[way]}\n{unit} per round")
        if len(sizes) == 1:
            right = axes.secondary_yaxis(
                "right", (lambda y: np.multiply(y, percent), lambda y: np.divide(y, percent))
            )
            right.set_ylabel("% of a dense model")
            right.tick_params(colors=INK, labelsize=9)
            right.spines["right"].set_color("#888888")
    top = max(axes.dataLim.y1 for axes in panels)
    for axes in panels:
        axes.set_ylim(0, 1.05 * top)


def _parts(run: Run, way: str) -> pd.DataFrame:
    """Bytes by part and round, in the order of the records."""
    prefix = f"bytes_{way}_"
    keys = dict.fromkeys(key for row in run.lines for key in row if key.startswith(prefix))
    return _by_round(run, keys).rename(columns=lambda key: key.removeprefix(prefix))


def _by_round(run: Run, keys: Iterable[str]) -> pd.DataFrame:
    """What was measured in each round, a column for each key."""
    columns = {key: dict(zip(*run.series(key), strict=True)) for key in keys}
    return pd.DataFrame(columns, dtype=float).sort_index()


def _stack(
    axes: Axes,
    parts: pd.DataFrame,
    colors: Mapping[str, str],
    scale: float = 1.0,
    names: Mapping[str, str] | None = None,
) -> None:
    """Stacked bars over rounds, with a legend above; parts without data are left out."""
    parts = parts.dropna(axis=1, how="all")
    base = np.zeros(len(parts))
    for name, values in parts.fillna(0.0).items():
        label = (names or {}).get(str(name), str(name)).format(format_bytes(values.sum()))
        width = 0.8 if len(parts) <= 60 else 1.0
        heights = values.to_numpy() / scale
        axes.bar(parts.index, heights, width, bottom=base, color=colors[str(name)], label=label)
        base += heights
    _count_rounds(axes, 0.01)
    axes.grid(visible=False, axis="x")
    if parts.empty:
        mark_empty(axes)
        return
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False, fontsize=9
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _count_rounds(axes: Axes, margin: float) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.margins(x=margin)


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
    "known_error": "error known without test points",
}
_LOSSES = {
    "surrogate_loss": "surrogate loss, training sets",
    "heldout_loss": "surrogate loss, held-out sets",
}
_PSEUDO_LABELS = {
    "pseudo_label_error": "pseudo labels that are wrong",
    "pseudo_labeled": "unlabeled points with a pseudo label",
}


def curves(runs: Sequence[Run]) -> Drawings:
    """The figures ``error`` and ``loss`` over rounds, with the curves of all runs."""
    drawn: Drawings = {}
    if any(run.series(key)[0] for run in runs for key in _ERRORS):
        drawn["error"] = partial(error_figure, runs)
    if any(run.series(key)[0] for run in runs for key in _loss_names([run])):
        drawn["loss"] = partial(loss_figure, runs)
    return drawn


def run_figures(run: Run) -> Drawings:
    """What draws the figures of the records of ``run``, by name; only for records that exist.

    ``error``, ``loss`` and ``pseudo_labels`` over rounds, figures of labels that clients gave their
    points, ``priors`` of the clients' sets, ``time_traffic``, ``confusion`` and ``reliability`` on
    test points, ``known_confusion`` from class shares, ``client_accuracy``, and the ``summary`` of
    these.
    """
    drawn = curves([run])
    if run.series("pseudo_label_error")[0]:
        drawn["pseudo_labels"] = partial(pseudo_labels_figure, run)
    drawn |= label_figures(run)
    if has_priors(run):
        drawn["priors"] = partial(priors_figure, run)
    if any(run.series(key)[0] for key in ("seconds", "bytes_up", "bytes_down")):
        drawn["time_traffic"] = partial(time_traffic_figure, run)
    drawn |= measure_figures(run)
    if matrix := run.outcome.known_confusion:
        label = f"from {run.outcome.known_from.partition(',')[0]}"
        drawn["known_confusion"] = partial(
            confusion_figure, matrix, run.names_of(len(matrix)), label
        )
    if accuracies := client_accuracies(run):
        label = f"test points, round {run.measures['best'].round}"
        drawn["client_accuracy"] = partial(client_accuracy_figure, accuracies, label, run.owners)
    chosen = [next((n for n in panel if n in drawn), "") for panel in _SUMMARY[run.trains]]
    if panels := {name: drawn[name] for name in chosen if name}:
        drawn["summary"] = partial(_summary_figure, panels, run.label)
    return drawn


_SUMMARY = {
    True: (("error", "loss"), ("confusion", "known_confusion"), ("time_traffic",)),
    False: (("label_accuracy", "priors"), ("label_confusion",), ("label_coverage",)),
}
"""Panels of the summary of a run that trains, or labels points: of each the first that exists. Of
one that trains none is about single clients, as trackers get it."""
_WIDTHS = dict.fromkeys(("confusion", "known_confusion", "label_confusion"), 5.0)


@plain()
def _summary_figure(panels: Drawings, label: str) -> Figure:
    """Figures beside each other; one alone as it is."""
    if len(panels) == 1:
        return next(iter(panels.values()))()
    widths = [_WIDTHS.get(name, 7.2) for name in panels]
    figure = new_figure(sum(widths), 5.6)
    parts = figure.subfigures(1, len(panels), width_ratios=widths, squeeze=False)[0]
    for draw_panel, part in zip(panels.values(), parts, strict=True):
        draw_panel(part=part)
    set_title(figure, label)
    return figure


def draw_plots(run: Run, directory: Path) -> list[Path]:
    """Write the figures that setting ``figures`` names into ``directory``; returns the files."""
    drawings = run_figures(run)
    wanted = [*drawings] if run.settings.get("figures") == "all" else ["summary"]
    return save_plots({n: drawings[n]() for n in wanted if n in drawings}, directory)


def save_plots(figures: Mapping[str, Figure], directory: Path) -> list[Path]:
    """Write figures as ``<name>.png`` into ``directory``; returns the files."""
    if directory.is_symlink():
        raise UserError(
            f"{directory} is a link to another place: nothing is written through it.",
            "path-not-usable",
        )
    make_folder(directory)
    for name, figure in figures.items():
        write_atomically(directory / f"{name}.png", draw(figure, "png"))
    return [directory / f"{name}.png" for name in figures]


def error_figure(runs: Sequence[Run], part: Figure | None = None) -> Figure:
    """Errors (percent) over rounds: test, validation, and on labeled training points if
    measured; a star marks each run's best round."""
    # The balanced error is shown where it chose the round: elsewhere it would hide the others.
    balanced = any(_chooser(run) == BALANCED for run in runs)
    names = {key: name for key, name in _ERRORS.items() if balanced or key != BALANCED}
    figure = _curves(runs, names, "Error over rounds", "error (%)", "%", runs, part)
    values = [value for run in runs for key in names for value in run.series(key)[1]]
    scale_errors(figure.axes[0], "y", values)
    return figure


def loss_figure(runs: Sequence[Run], part: Figure | None = None) -> Figure:
    """Surrogate and held-out loss over rounds, and other losses that a method recorded."""
    by_loss = [run for run in runs if _chooser(run) in _LOSSES]
    names = _loss_names(runs)
    return _curves(runs, names, "Loss over rounds", "loss (nats)", "nats", by_loss, part)


def pseudo_labels_figure(run: Run) -> Figure:
    """Percent of unlabeled points with a pseudo label, and of wrong ones, over rounds."""
    figure = _curves([run], _PSEUDO_LABELS, "Pseudo labels over rounds", "percent", "%", [])
    figure.axes[0].set_ylim(0, 103)
    return figure


def _loss_names(runs: Sequence[Run]) -> dict[str, str]:
    keys = dict.fromkeys(key for run in runs for row in run.lines for key in row)
    others = [key for key in keys if key.endswith("loss") and key not in _LOSSES]
    return _LOSSES | {key: key.replace("_", " ") for key in others}


@plain()
def _curves(
    runs: Sequence[Run],
    names: Mapping[str, str],
    title: str,
    ylabel: str,
    unit: str,
    starred: Sequence[Run],
    part: Figure | None = None,
) -> Figure:
    """One line per run and key; for several runs colors show the run, dashes the key."""
    figure = new_figure(7.2, 4.2, part)
    axes = style(figure.add_subplot())
    axes.set(xlabel="round", ylabel=ylabel)
    single = len(runs) == 1
    set_title(figure, title, runs[0].label if single and part is None else "")
    of_runs: dict[str, Line2D] = {}
    of_keys: dict[str, Line2D] = {}
    for position, (run, label) in enumerate(zip(runs, distinct_labels(runs), strict=True)):
        cycle, within = divmod(position, len(COLORS))
        marker = MARKERS[cycle % len(MARKERS)]
        for index, (key, name) in enumerate(names.items() if run.trains else ()):
            rounds, values = run.series(key)
            if not rounds:
                continue
            look = {
                "color": COLORS[index % len(COLORS)] if single else COLORS[within],
                "linestyle": DASHES[index % len(DASHES)],
                "linewidth": 1.8 if index == 0 else 1.3,
                "alpha": 1.0 if single or index == 0 else 0.75,
                # Many markers would hide the curve; keep some if colors repeat.
                "marker": marker if len(rounds) <= 30 or cycle else "",
                "markevery": max(1, len(rounds) // 30),
                "markersize": 4,
            }
            axes.plot(rounds, values, label=name if single else f"{label}: {name}", **look)
            gray = look | {"color": "#666666", "marker": "", "label": name}
            of_keys[name] = Line2D([], [], **gray)
            colored: dict[str, Any] = {
                "color": COLORS[within],
                "marker": marker,
                "label": one_line(label, 70),
            }
            of_runs[label] = Line2D([], [], markersize=4, **colored)
    chance = runs[0].series("surrogate_chance")[1]
    if single and chance and names.keys() >= _LOSSES.keys():
        label = f"chance: ln of the number of sets ({chance[-1]:.3f})"
        axes.axhline(chance[-1], color=GRAY, linestyle=":", linewidth=1.3, label=label)
    stars = [_mark_best(axes, run, names, unit) for run in starred]
    _count_rounds(axes, 0.02)
    if not axes.get_lines():
        mark_empty(axes)
    elif single:
        legend_below(figure)
    else:
        star = [Line2D([], [], label="best round of a run", **_STAR)] if any(stars) else []
        legend_below(figure, [*of_runs.values(), *of_keys.values(), *star])
    return figure


def _chooser(run: Run) -> str:
    """Key of the metric that chose the best round."""
    chosen = run.summary.selection if run.summary else None
    selection = str(chosen or run.settings.get("selection"))
    return CRITERION.get(selection, "")


def _mark_best(axes: Axes, run: Run, names: Mapping[str, str], unit: str) -> bool:
    """Mark the best round on the curve that chose it if it is in the plot, else on the first."""
    best, chooser = run.best_round(), _chooser(run)
    for key in dict.fromkeys([*([chooser] if chooser in names else []), *names]):
        measured = dict(zip(*run.series(key), strict=True))
        if best is not None and best in measured:
            value = measured[best]
            so_far = "" if run.summary is not None else " so far"
            chosen = ", which chose it" if key == chooser else ""
            label = f"best round{so_far}: {best} ({names[key]} {value:.2f} {unit}{chosen})"
            axes.plot([best], [value], label=label, clip_on=False, zorder=5, **_STAR)
            return True
    return False
