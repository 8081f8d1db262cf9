"""Figure of the clients' data: class priors and sizes of their sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from fedul_flwr.config.methods import METHODS
from fedul_flwr.data.run_files.records import ClientRecord, Run
from fedul_flwr.data.types import Floats
from fedul_flwr.results.figure_style import (
    COLORS,
    GRAY,
    INK,
    new_figure,
    one_line,
    set_title,
    style,
    write_numbers,
)

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
    every = run.federation.clients if run.federation is not None else ()
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
    names = (run.federation.class_names if run.federation else None) or run.data.get("class_names")
    if not isinstance(names, list | tuple) or len(names) != num_classes:
        names = range(num_classes)
    figure = _drawn(rows, [one_line(str(name), 16) for name in names], unit)
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
