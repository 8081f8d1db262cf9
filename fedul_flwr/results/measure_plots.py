"""Figures of measures: on test points, at each client, and of labels that clients gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedul_flwr.data.run_files.label_files import (
    LOCAL_LP,
    SOURCE_WORDS,
    SOURCES,
    XCLP,
    scored_sources,
    source_in_words,
)
from fedul_flwr.data.run_files.parts import Coverage, LabelScores, Measured
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.results.figure_style import (
    COLORS,
    GRAY,
    INK,
    MARKERS,
    legend_below,
    line_look,
    new_figure,
    one_line,
    plain,
    set_title,
    style,
    write_numbers,
)

_SHADES = LinearSegmentedColormap.from_list("shares", ["#FFFFFF", "#9CC8E5", COLORS[0], "#002B4A"])
_MOST_NUMBERS = 20
"""Largest number of classes whose cells have their numbers written in."""
_MOST_NAMES = 40
"""Largest number of classes that all have their names at the axes."""
_SHORT = 14
"""Most characters of a class name at an axis."""
_WORDS = {
    "best": "best round",
    "unscaled": "before temperature scaling",
    "reweighed": "re-weighed for estimated class priors",
}
_FEW_POINTS = 10
"""Fewer points than this in a bin say little about its accuracy."""
_ALL_CLIENTS = 40
"""Largest number of clients whose numbers all fit below the axis."""


Drawings = dict[str, Callable[..., Figure]]
"""What draws each figure, by its name; ``part=`` of those of a summary is where it is drawn."""


def measure_figures(run: Run) -> Drawings:
    """Figures of its measures: the best round's confusion matrix, and reliability."""
    best = run.measures.get("best", Measured())
    figures: Drawings = {}
    if matrix := best.confusion:
        names, label = run.names_of(len(matrix)), f"test points, round {best.round}"
        figures["confusion"] = partial(confusion_figure, matrix, names, label)
    if any(run.measures.get(key, best).reliability for key in _WORDS):
        figures["reliability"] = partial(reliability_figure, run.measures)
    return figures


@plain()
def confusion_figure(
    matrix: Sequence[Sequence[float]],
    class_names: Sequence[str],
    label: str,
    part: Figure | None = None,
) -> Figure:
    """The classes that were predicted for points of each class, in percent of its points."""
    counts = np.asarray(matrix)
    rows, columns = counts.shape
    names = [one_line(name, _SHORT) for name in class_names]
    totals = counts.sum(axis=1, keepdims=True)
    shares = 100 * np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    size = float(np.clip(2.6 + 0.42 * rows, 4.2, 8.6))
    numbers = rows <= _MOST_NUMBERS
    # Without numbers there is a color bar beside the square.
    figure = new_figure(size, size - (0.2 if numbers else 1.2), part)
    axes = style(figure.add_subplot())
    axes.grid(visible=False)
    axes.set_facecolor("#E6E6E6")  # of classes without points
    # Few confusions of many classes could not be seen: a root makes small shares darker.
    norm = PowerNorm(1.0 if numbers else 0.5, vmin=0, vmax=100)
    image = axes.imshow(shares, cmap=_SHADES, norm=norm)
    if numbers:
        shown = np.where(shares > 0, shares, np.nan)
        fontsize = float(np.clip(140 / rows, 7, 10))
        write_numbers(axes, range(columns), range(rows), shown, 45, fontsize)
    else:
        bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=[0, 1, 5, 10, 25, 50, 100])
        bar.set_label("percent of a class's points", fontsize=9)
        bar.outline.set_visible(False)
    _name_classes(axes, names, missing=columns > rows)
    gray = "" if totals.all() else " (a gray row: no points of that class)"
    axes.set(xlabel=f"predicted class{gray}", ylabel="true class")
    set_title(figure, "Confusion matrix (%)", label)
    return figure


def _name_classes(axes: Axes, names: list[str], *, missing: bool) -> None:
    across = [*names, "none"] if missing else names
    if len(names) > _MOST_NAMES:  # they would overlap: numbers of some classes
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=11, integer=True))
        return
    size = 9 if len(names) <= _MOST_NUMBERS else 7
    upright = max(map(len, across)) > 2 and len(names) > 2
    rotation = 90 if upright else 0
    axes.set_xticks(range(len(across)), across, rotation=rotation, fontsize=size, parse_math=False)
    axes.set_yticks(range(len(names)), names, fontsize=size, parse_math=False)


@plain()
def reliability_figure(measures: Mapping[str, Measured]) -> Figure:
    """Accuracy over confidence in bins, and the share of points in each."""
    figure = new_figure(5.6, 5.2)
    above, below = map(style, figure.subplots(2, 1, sharex=True, height_ratios=[3, 1]))
    above.plot([0, 100], [0, 100], "--", color=GRAY, linewidth=1.2, label="accuracy = confidence")
    of_words = {key: measures[key] for key in _WORDS if key in measures}
    shown = {key: one for key, one in of_words.items() if one.reliability}
    for index, (key, measured) in enumerate(shown.items()):
        of_bins = measured.reliability or {}
        bins = {name: np.array(values, float) for name, values in of_bins.items()}
        points, look = bins["points"], line_look(index)
        label = f"{_WORDS[key]}: ECE {measured.ece:.2f} %"
        many, few = points >= _FEW_POINTS, (points > 0) & (points < _FEW_POINTS)
        above.plot(bins["confidence"][many], bins["accuracy"][many], label=label, **look)
        if few.any():
            label = f"bin of fewer than {_FEW_POINTS} points"
            hollow = look | {"linestyle": "none", "markerfacecolor": "white", "alpha": 0.6}
            above.plot(bins["confidence"][few], bins["accuracy"][few], label=label, **hollow)
        edges = np.linspace(0, 100, len(points) + 1)
        look = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 1.4}
        below.stairs(100 * points / points.sum(), edges, **look)
    above.set(xlim=(0, 100), ylim=(0, 100), ylabel="points that are right (%)")
    below.set(xlabel="confidence: probability of the predicted class (%)", ylabel="points (%)")
    below.set_ylim(0, None)
    set_title(figure, "Reliability", f"test points, round {next(iter(shown.values())).round}")
    legend_below(figure, width=80)
    return figure


def client_accuracies(run: Run) -> dict[int, float]:
    """Estimated accuracy (percent) of the best round's model, by the client's number.

    It is the mean of the classes' recalls on the test set, weighted by the client's class shares:
    the accuracy on points like the client's, if points of a class are alike at all clients.
    Clients are left out if their class shares are not known, or if they have a class without a
    test point.
    """
    recall = run.measures.get("best", Measured()).recall
    if not recall:
        return {}
    recalls = np.array(recall, dtype=np.float64)
    accuracies = {}
    for client in run.clients:
        shares = client.class_shares()
        if shares is None or len(shares) != len(recalls):
            continue
        present = np.array(shares) > 0
        value = float(np.array(shares)[present] @ recalls[present])
        if np.isfinite(value):
            accuracies[client.id] = value
    return accuracies


@plain()
def client_accuracy_figure(
    accuracies: Mapping[int, float], label: str, names: Mapping[int, str]
) -> Figure:
    """Estimated accuracies (percent) of clients, the lowest first; ``names`` of their owners."""
    clients = sorted(accuracies, key=lambda client: (accuracies[client], client))
    figure = new_figure(7.2, 3.4)
    axes = style(figure.add_subplot())
    values = [accuracies[client] for client in clients]
    axes.plot(range(len(clients)), values, "o", color=COLORS[0])
    _label_clients(axes, clients, names)
    axes.set_ylim(max(values[0] - 5, -1), min(values[-1] + 5, 101))
    axes.set_ylabel("estimated accuracy (%)\nrecalls on test points × class shares")
    set_title(figure, "Estimated accuracy at each client", label)
    return figure


def _label_clients(axes: Axes, clients: list[int], names: Mapping[int, str]) -> None:
    """Name the clients below the axis."""
    # Numbers of many clients would overlap.
    shown = len(clients) <= _ALL_CLIENTS
    labels = [one_line(names.get(client) or str(client), _SHORT) for client in clients]
    upright = max(map(len, labels)) > 3 and len(labels) > 6
    if shown:
        size = 7 if len(clients) > 20 else 9
        rotation = 90 if upright else 0
        at = range(len(clients))
        axes.set_xticks(at, labels, rotation=rotation, fontsize=size, parse_math=False)
    else:
        axes.set_xticks([])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("client" if shown else f"{len(clients)} clients, by accuracy")
    axes.margins(x=0.03)


def label_figures(run: Run) -> Drawings:
    """Figures about labels: scores per source and per client, and errors of the most confident."""
    scores, scored = run.labels, scored_sources(run.labels)
    if not scored:
        return {}
    source, first = next(iter(scored.items()))
    drawn: Drawings = {
        "label_accuracy": partial(accuracy_figure, scores),
        "label_clients": partial(clients_figure, scores, run.owners),
        "label_coverage": partial(coverage_figure, scores),
    }
    if matrix := first.confusion:
        label = f"labels {source_in_words(source, scores.points)}"
        names = run.names_of(len(matrix))
        drawn["label_confusion"] = partial(confusion_figure, matrix, names, label)
    return drawn


@plain()
def accuracy_figure(scores: LabelScores, part: Figure | None = None) -> Figure:
    """Percent of correct labels, over points and balanced over classes, for each source."""
    scored = scored_sources(scores)
    figure = new_figure(7.2, 1.3 + 0.62 * len(scored), part)
    axes = style(figure.add_subplot())
    kinds = {
        "over all points": [100 - (score.error or 0) for score in scored.values()],
        "mean over classes (balanced)": [score.balanced_accuracy or 0 for score in scored.values()],
    }
    for index, (label, values) in enumerate(kinds.items()):
        positions = np.arange(len(scored)) + (index - 0.5) * 0.36
        bars = axes.barh(positions, values, 0.36, color=COLORS[index], label=label)
        axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9, color=INK)
    names = [source_in_words(name, scores.points) for name in scored]
    axes.set_yticks(range(len(scored)), names)
    axes.set_ylim(len(scored) - 0.45, -0.55)  # the first source on top
    axes.set_xlim(0, 109)  # with space for the numbers
    axes.set_xticks(range(0, 101, 20))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("points labeled rightly (%)")
    set_title(figure, "Accuracy of labels", f"{scores.points} points")
    legend_below(figure)
    return figure


@plain()
def clients_figure(scores: LabelScores, names: Mapping[int, str]) -> Figure:
    """Percent of correct labels per client: across clients, and within the client if measured;
    ``names`` of their owners."""
    scored = scored_sources(scores)
    first = XCLP if XCLP in scored else next(iter(scored))
    right = pd.DataFrame(
        {
            source: {one.id: 100 - (one.error or 0) for one in scored[source].clients}
            for source in dict.fromkeys([first, LOCAL_LP])
            if source in scored
        }
    )
    right = right.rename_axis("id").reset_index().dropna(subset=first).sort_values([first, "id"])
    figure = new_figure(7.2, 4.0)
    axes = style(figure.add_subplot())
    at = np.arange(len(right))
    if LOCAL_LP in right and first != LOCAL_LP:
        axes.vlines(at, right[LOCAL_LP], right[first], color=GRAY, linewidth=1.2, alpha=0.6)
    size = 6.5 if len(right) <= _ALL_CLIENTS else 4.0
    for index, source in enumerate(name for name in SOURCES if name in right):
        look = line_look(SOURCES.index(source)) | {"linestyle": "none", "markersize": size}
        look |= {"marker": MARKERS[index], "label": SOURCE_WORDS[source]}
        axes.plot(at, right[source], **look)
    _label_clients(axes, right["id"].tolist(), names)
    axes.set(ylim=(-3, 103), ylabel="points labeled rightly (%)")
    set_title(figure, "Accuracy at each client", f"{scores.points} points")
    legend_below(figure)
    return figure


@plain()
def coverage_figure(scores: LabelScores, part: Figure | None = None) -> Figure:
    """Percent of wrong labels among the most confident points, over the fraction of points."""
    figure = new_figure(7.2, 4.0, part)
    axes = style(figure.add_subplot())
    highest = 1.0
    for name, source in scored_sources(scores).items():
        look = line_look(SOURCES.index(name)) | {"marker": "", "linewidth": 1.8}
        covered = source.coverage or Coverage(share=[], error=[])
        shares, errors = 100 * np.asarray(covered.share), covered.error
        axes.plot(shares, errors, label=source_in_words(name, scores.points), **look)
        highest = max(highest, *errors)
    axes.set(xlim=(0, 100), ylim=(0, 1.05 * highest))
    axes.set_xlabel("share of points, the most confident first (%)")
    axes.set_ylabel("labels that are wrong or missing (%)")
    set_title(figure, "Error among the most confident", f"{scores.points} points")
    legend_below(figure)
    return figure
