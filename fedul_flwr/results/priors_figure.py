"""Figure of the clients' data: class priors and sizes of their sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedul_flwr.config.methods import METHODS
from fedul_flwr.data.run_files.records import ClientRecord, Run
from fedul_flwr.results.figure_style import COLORS, GRAY, INK, new_figure, one_line, set_title

SETS_SHOWN = 12
"""Largest number of clients with one row per unlabeled set."""
CLIENTS_SHOWN = 400
"""Largest number of clients shown, as a row needs a few dots; of more clients a part is shown."""
CLASSES_WITH_NUMBERS = 12
"""Largest number of classes whose cells have their numbers written in."""
_ABSENT = "#E4E4E4"
_CENTERED: dict[str, Any] = {"ha": "center", "va": "center"}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Rows:
    """Rows of one client: shares ``(r, K)`` (NaN: not shared) and sizes ``(r,)``."""

    client: ClientRecord
    shares: Floats
    sizes: Floats


def has_priors(run: Run) -> bool:
    """Whether anything about the clients' points was recorded."""
    return run.federation is not None and any(
        client.priors or client.set_sizes or client.class_counts or client.num_points is not None
        for client in run.federation.clients
    )


def priors_figure(run: Run) -> Figure:
    """Class priors of the clients' sets as a heat map, with set sizes as bars next to it.

    Rows are the sets, grouped by client; with more than :data:`SETS_SHOWN` clients one row per
    client, for at most :data:`CLIENTS_SHOWN` evenly spaced clients. If no priors were shared, it
    shows the clients' class counts, and without those only the set sizes.
    """
    clients = _shown(run)
    widths = [len(client.priors[0]) for client in clients if client.priors]
    if widths:
        by_set = len(clients) <= SETS_SHOWN
        rows = [_prior_rows(client, by_set, widths[0]) for client in clients]
        title = "Class priors of the unlabeled sets"
        if not by_set:
            title = "Class priors of the clients (mean over sets by size)"
        method = METHODS.get(str(run.settings.get("method")))
        if method is not None and method.data != "unlabeled-sets":  # it has the sets' points
            title = "Classes of the clients' points" + (", set by set" if by_set else "")
            return _heat_map(run, rows, title, "share of the points (%)")
        return _heat_map(run, rows, title, "class prior (%)")
    widths = [len(client.class_counts) for client in clients if client.class_counts]
    if widths:
        unknown = [np.nan] * widths[0]
        rows = [
            _Rows(client, np.array([client.class_shares() or unknown]), _total(client))
            for client in clients
        ]
        return _heat_map(
            run, rows, "Classes of the clients' points", "share of the client's points (%)"
        )
    return _sizes_figure(run, clients)


def _shown(run: Run) -> Sequence[ClientRecord]:
    clients = run.federation.clients if run.federation is not None else ()
    return clients[:: max(1, -(-len(clients) // CLIENTS_SHOWN))]


def _title(run: Run, title: str) -> str:
    """``title``, with the number of clients shown if these are not all."""
    assert run.federation is not None  # has_priors() holds
    count, shown = len(run.federation.clients), len(_shown(run))
    return title if shown == count else f"{title}: {shown:,} of {count:,}"


def _prior_rows(client: ClientRecord, by_set: bool, num_classes: int) -> _Rows:
    sizes = np.array(client.set_sizes or (), dtype=np.float64)
    if not client.priors:
        sizes = sizes if by_set and len(sizes) else _total(client)
        return _Rows(client, np.full((len(sizes), num_classes), np.nan), sizes)
    priors = np.array(client.priors, dtype=np.float64)
    if by_set:
        return _Rows(client, priors, sizes if len(sizes) else np.full(len(priors), np.nan))
    return _Rows(client, np.array([client.class_shares()]), _total(client))


def _total(client: ClientRecord) -> Floats:
    if client.num_points is not None:
        return np.array([float(client.num_points)])
    return np.array([float(sum(client.set_sizes)) if client.set_sizes else np.nan])


def _heat_map(run: Run, rows: Sequence[_Rows], title: str, unit: str) -> Figure:
    num_classes = rows[0].shares.shape[1]
    count = sum(len(block.sizes) for block in rows)
    # Clients with several rows are separated by gaps, even if rows are thin.
    gap = max(0.45, 0.01 * count) if count > len(rows) else 0.0
    edges, shares, is_row = _grid(rows, gap)
    # No wider than a page shows without making it smaller.
    width = float(np.clip(0.62 * num_classes, 3.0, 7.4))
    cell = width / num_classes
    height = float(np.clip(0.28 * edges[-1], 0.5, 13.0))
    figure = new_figure(2.9 + width + 1.7, height + 1.6)
    grid = figure.add_gridspec(2, 2, width_ratios=(width, 1.6), height_ratios=(0.13, height))
    left = figure.add_subplot(grid[1, 0])
    right = figure.add_subplot(grid[1, 1], sharey=left)
    percent = np.ma.masked_invalid(100 * shares)
    # As pixels, in SVG too: thousands of cells would be as many paths with visible seams.
    # A root makes the small shares of many classes darker.
    norm = PowerNorm(0.5 if num_classes > CLASSES_WITH_NUMBERS else 1.0, vmin=0)
    mesh = left.pcolormesh(
        np.arange(num_classes + 1), edges, percent, cmap="YlGnBu", norm=norm, rasterized=True
    )
    bar = figure.colorbar(mesh, cax=figure.add_subplot(grid[0, 0]), orientation="horizontal")
    bar.ax.xaxis.set_ticks_position("top")
    bar.ax.tick_params(labelsize=8, colors=INK)
    bar.ax.set_title(unit, fontsize=9, color=INK)
    bar.outline.set_visible(False)
    if height / edges[-1] > 0.2 and num_classes <= CLASSES_WITH_NUMBERS and percent.count():
        _write_shares(left, edges[:-1][is_row], 100 * shares[is_row])
    centers = edges[:-1][is_row] + 0.5
    _mark_absent(left, rows, centers, num_classes)
    _label_rows(left, rows, centers)
    _label_classes(left, _class_names(run, num_classes), cell)
    dropped = [block.client.status == "dropped" for block in rows for _ in block.sizes]
    sizes = np.nan_to_num(np.concatenate([block.sizes for block in rows]))
    colors = [COLORS[1] if is_dropped else GRAY for is_dropped in dropped]
    right.barh(centers, sizes, height=0.8, color=colors)
    _style_sizes(right)
    left.set_ylim(edges[-1], 0)
    set_title(figure, _title(run, title), run.label)
    return figure


def _grid(rows: Sequence[_Rows], gap: float) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Edges of all rows from the top, their shares, and a mask of clients' rows.

    The others are gaps of height ``gap`` between clients, without shares (NaN).
    """
    edges: list[float] = [0.0]
    shares: list[Floats] = []
    is_row: list[bool] = []
    for block in rows:
        if gap and shares:
            edges.append(edges[-1] + gap)
            shares.append(np.full(block.shares.shape[1], np.nan))
            is_row.append(False)
        for row in block.shares:
            edges.append(edges[-1] + 1.0)
            shares.append(row)
            is_row.append(True)
    return np.array(edges), np.array(shares), np.array(is_row)


def _write_shares(axes: Axes, starts: Floats, percent: Floats) -> None:
    top = np.nanmax(percent)
    for (row, column), share in np.ndenumerate(percent):
        if np.isfinite(share):
            # Light numbers on dark cells.
            color = "white" if share > 0.55 * top else INK
            middle = column + 0.5, float(starts[row]) + 0.5
            axes.text(*middle, f"{share:.0f}", **_CENTERED, fontsize=7, color=color)


def _mark_absent(axes: Axes, rows: Sequence[_Rows], centers: Floats, num_classes: int) -> None:
    """Draw a gray background with a note if a client did not share its priors."""
    for block, part in zip(rows, _parts(rows, centers), strict=True):
        if np.isnan(block.shares).all():
            axes.axhspan(part[0] - 0.5, part[-1] + 0.5, color=_ABSENT, linewidth=0)
            middle = num_classes / 2, float(part.mean())
            axes.text(*middle, "not shared", **_CENTERED, fontsize=8, color=INK)


def _parts(rows: Sequence[_Rows], centers: Floats) -> list[Floats]:
    return np.split(centers, np.cumsum([len(block.sizes) for block in rows])[:-1])


def _label_rows(axes: Axes, rows: Sequence[_Rows], centers: Floats) -> None:
    """Label clients at the left, and sets between these labels and the cells, if they fit."""
    middles = [float(part.mean()) for part in _parts(rows, centers)]
    labels = [_client_name(block.client, "\n" if len(block.sizes) > 1 else " ") for block in rows]
    every = -(-len(rows) // 45)
    axes.set_yticks(middles[::every], labels[::every], fontsize=9)
    if len(rows) < len(centers) <= 60:
        axes.tick_params(axis="y", which="major", pad=34)
        names = [f"set {number}" for block in rows for number in range(len(block.sizes))]
        axes.set_yticks(list(centers), names, minor=True, fontsize=7)
    axes.tick_params(axis="both", which="both", length=0, colors=INK)
    axes.spines[:].set_visible(False)


def _label_classes(axes: Axes, names: Sequence[str], cell: float) -> None:
    # A label needs about 0.15 inch even if it is rotated.
    every = math.ceil(0.15 / cell)
    labels = [one_line(name, 16) for name in names][::every]
    fits = max(map(len, labels)) * 0.08 < 0.95 * cell * every
    angle = 0 if fits else 35 if cell > 0.35 else 90
    axes.set_xticks(
        [column + 0.5 for column in range(0, len(names), every)],
        labels,
        rotation=angle,
        ha="right" if angle == 35 else "center",
        rotation_mode="anchor" if angle == 35 else "default",
        fontsize=8,
        parse_math=False,
    )
    axes.set_xlabel("class" if every == 1 else f"class (one of {every} is named)")


def _style_sizes(axes: Axes) -> None:
    axes.set_xlabel("points")
    axes.tick_params(axis="y", which="both", length=0, labelleft=False)
    axes.tick_params(axis="x", labelsize=8, colors=INK)
    axes.locator_params(axis="x", nbins=4)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)


def _sizes_figure(run: Run, clients: Sequence[ClientRecord]) -> Figure:
    """Points per client as bars, divided into the client's sets if it has several."""
    height = float(np.clip(0.3 * len(clients), 1.2, 13.0))
    figure = new_figure(7.2, height + 1.1)
    axes = figure.add_subplot()
    for row, client in enumerate(clients):
        parts = client.set_sizes or tuple(int(size) for size in np.nan_to_num(_total(client)))
        shades = (COLORS[0], COLORS[5]) if client.status != "dropped" else (COLORS[1], COLORS[4])
        axes.barh(
            [row] * len(parts),
            parts,
            left=np.cumsum([0, *parts[:-1]]),
            height=0.8,
            color=[shades[number % 2] for number in range(len(parts))],
        )
    _style_sizes(axes)
    every = max(1, -(-len(clients) // 45))
    labels = [_client_name(client) for client in clients]
    axes.set_yticks(range(0, len(clients), every), labels[::every], fontsize=9)
    axes.tick_params(axis="y", labelleft=True)
    several = any(len(client.set_sizes or ()) > 1 for client in clients)
    axes.set_xlabel("points (shades: one set each)" if several else "points")
    axes.set_ylim(len(clients) - 0.4, -0.6)
    set_title(figure, _title(run, "Points of the clients"), run.label)
    return figure


def _client_name(client: ClientRecord, gap: str = " ") -> str:
    name = one_line(client.name, 20) or f"client {client.id}"
    return name + (f"{gap}(dropped)" if client.status == "dropped" else "")


def _class_names(run: Run, num_classes: int) -> list[str]:
    names = run.federation.class_names if run.federation is not None else None
    names = names or run.data.get("class_names")
    if isinstance(names, list | tuple) and len(names) == num_classes:
        return [str(name) for name in names]
    return [str(label) for label in range(num_classes)]
