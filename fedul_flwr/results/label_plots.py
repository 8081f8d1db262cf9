"""Figures about labels that clients gave their own points (see results/label_scores.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedul_flwr.data.run_files.label_names import (
    LOCAL_LP,
    SOURCE_WORDS,
    SOURCES,
    XCLP,
    scored_sources,
    source_in_words,
)
from fedul_flwr.results.client_accuracy import ALL_NUMBERS, label_clients
from fedul_flwr.results.figure_style import (
    COLOURS,
    DASHES,
    GREY,
    INK,
    MARKERS,
    legend_below,
    new_figure,
    set_title,
    style,
)
from fedul_flwr.results.measure_plots import confusion_figure


def label_figures(
    scores: Mapping[str, Any], class_names: Sequence[str] | None = None
) -> dict[str, Figure]:
    """Figures about labels: scores per source and per client, and errors of the most confident.

    Also the confusion matrix of the first source.

    Parameters
    ----------
    scores : content of ``labels.json``, see
        :func:`fedul_flwr.run.scores.score_labels`; without scores there are no figures.
    class_names : K names; None if they are not known.
    """
    scored = scored_sources(scores)
    if not scored:
        return {}
    source, first = next(iter(scored.items()))
    confusion = {}
    if first.get("confusion"):
        label = f"labels {source_in_words(source, scores['points'])}"
        confusion["label_confusion"] = confusion_figure(first["confusion"], class_names, label)
    return {
        "label_accuracy": accuracy_figure(scores),
        "label_clients": clients_figure(scores),
        "label_coverage": coverage_figure(scores),
        **confusion,
    }


def accuracy_figure(scores: Mapping[str, Any]) -> Figure:
    """Percent of correct labels, over points and balanced over classes, for each source."""
    scored = scored_sources(scores)
    figure = new_figure(7.2, 1.3 + 0.62 * len(scored))
    axes = style(figure.add_subplot())
    kinds = {
        "over all points": [100 - found["error"] for found in scored.values()],
        "mean over classes (balanced)": [found["balanced_accuracy"] for found in scored.values()],
    }
    height = 0.36
    for index, (values, colour) in enumerate(zip(kinds.values(), COLOURS, strict=False)):
        places = np.arange(len(scored)) + (index - 0.5) * height
        bars = axes.barh(places, values, height, color=colour)
        axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9, color=INK)
    names = [source_in_words(name, scores["points"]) for name in scored]
    axes.set_yticks(range(len(scored)), names)
    axes.set_ylim(len(scored) - 0.45, -0.55)  # the first source on top
    axes.set_xlim(0, 109)  # with space for the numbers
    axes.set_xticks(range(0, 101, 20))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("points labeled rightly (%)")
    set_title(figure, "Accuracy of labels", f"{scores['points']} points")
    legend_below(figure, [Patch(color=c, label=n) for n, c in zip(kinds, COLOURS, strict=False)])
    return figure


def clients_figure(scores: Mapping[str, Any]) -> Figure:
    """Percent of correct labels per client: across clients, and within the client if measured.

    Clients are sorted by the first, so that the gain of each is visible.
    """
    scored = scored_sources(scores)
    first = XCLP if XCLP in scored else next(iter(scored))
    of_first, of_second = (
        {client["id"]: 100 - client["error"] for client in scored.get(name, {}).get("clients", ())}
        for name in (first, LOCAL_LP)
    )
    clients = sorted(of_first, key=lambda client: (of_first[client], client))
    figure = new_figure(7.2, 4.0)
    axes = style(figure.add_subplot())
    entries: list[Line2D | Patch] = []
    size = 6.5 if len(clients) <= ALL_NUMBERS else 4.0
    if first != LOCAL_LP and of_second:
        pairs = [place for place, client in enumerate(clients) if client in of_second]
        below = [of_second[clients[place]] for place in pairs]
        above = [of_first[clients[place]] for place in pairs]
        axes.vlines(pairs, below, above, color=GREY, linewidth=1.2, alpha=0.6, zorder=2)
        entries.append(_dots(axes, pairs, below, LOCAL_LP, 1, size))
    values = [of_first[client] for client in clients]
    entries.insert(0, _dots(axes, range(len(clients)), values, first, 0, size))
    label_clients(axes, clients)
    axes.set_ylim(-3, 103)
    axes.set_ylabel("points labeled rightly (%)")
    set_title(figure, "Accuracy at each client", f"{scores['points']} points")
    legend_below(figure, entries)
    return figure


def coverage_figure(scores: Mapping[str, Any]) -> Figure:
    """Percent of wrong labels among the most confident points, over the fraction of points."""
    figure = new_figure(7.2, 4.0)
    axes = style(figure.add_subplot())
    entries: list[Line2D | Patch] = []
    highest = 1.0
    for name, found in scored_sources(scores).items():
        index = SOURCES.index(name)
        look: dict[str, Any] = {
            "color": COLOURS[index],
            "linestyle": DASHES[index],
            "linewidth": 1.8,
        }
        errors = found["coverage"]["error"]
        axes.plot(100 * np.asarray(found["coverage"]["share"]), errors, **look)
        entries.append(Line2D([], [], label=source_in_words(name, scores["points"]), **look))
        highest = max(highest, *errors)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1.05 * highest)
    axes.set_xlabel("share of points, the most confident first (%)")
    axes.set_ylabel("labels that are wrong or missing (%)")
    set_title(figure, "Error among the most confident", f"{scores['points']} points")
    legend_below(figure, entries)
    return figure


def _dots(axes: Axes, places: Any, values: Any, source: str, index: int, size: float) -> Line2D:
    look: dict[str, Any] = {
        "color": COLOURS[SOURCES.index(source)],
        "marker": MARKERS[index],
        "markersize": size,
        "linestyle": "none",
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }
    axes.plot(places, values, zorder=3, clip_on=False, **look)
    return Line2D([], [], label=SOURCE_WORDS[source], **look)
