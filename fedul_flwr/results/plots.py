"""Figures of runs: as matplotlib figures, and as files in a run's directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedul_flwr.data.run_files.best_round import CRITERION
from fedul_flwr.data.run_files.records import Run, distinct_labels
from fedul_flwr.errors import UserError
from fedul_flwr.results.figure_style import (
    COLOURS,
    DASHES,
    FORMATS,
    HIGHLIGHT,
    INK,
    MARKERS,
    legend_below,
    new_figure,
    one_line,
    save,
    say_nothing_recorded,
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
from fedul_flwr.results.traffic_figure import has_time_traffic, time_traffic_figure

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
    figures: dict[str, tuple[Callable[[Run], bool], Callable[[], Figure]]] = {
        "error": (has_error, lambda: error_figure([run])),
        "loss": (has_loss, lambda: loss_figure([run])),
        "pseudo_labels": (has_pseudo_labels, lambda: pseudo_labels_figure(run)),
        "priors": (has_priors, lambda: priors_figure(run)),
        "time_traffic": (has_time_traffic, lambda: time_traffic_figure(run)),
    }
    drawn = {name: draw() for name, (recorded, draw) in figures.items() if recorded(run)}
    names = run.data.get("class_names")
    drawn |= measure_figures(run.measures or {}, names)
    if accuracies := client_accuracies(run):
        label = f"test points, round {(run.measures or {})['best']['round']}"
        drawn["client_accuracy"] = client_accuracy_figure(accuracies, label)
    return drawn | label_figures(run.labels or {}, names)


def draw_plots(run: Run, directory: Path) -> list[Path]:
    """Write :func:`run_figures` into ``directory``; returns the PNG files."""
    return save_plots(run_figures(run), directory)


def save_plots(figures: Mapping[str, Figure], directory: Path) -> list[Path]:
    """Write figures as ``<name>.png``, PDF and SVG into ``directory``; returns the PNG files.

    The directory is made if there is none.

    Raises
    ------
    UserError
        If they cannot be written, or ``directory`` is a link: a stranger's folder could lead
        anywhere.
    """
    if directory.is_symlink():
        raise UserError(f"{directory} is a link to another place: nothing is written through it.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in figures:
            for form in FORMATS:
                (directory / f"{name}.{form}").unlink(missing_ok=True)  # it may be a link, too
        return [save(figure, directory / f"{name}.png") for name, figure in figures.items()]
    except OSError as error:
        raise UserError(f"Cannot write plots to {directory}: {error.strerror or error}.") from error


def has_error(run: Run) -> bool:
    """Whether any error was measured."""
    return any(run.series(key)[0] for key in _ERRORS)


def has_loss(run: Run) -> bool:
    """Whether any loss was measured."""
    return any(run.series(key)[0] for key in _loss_names([run]))


def has_pseudo_labels(run: Run) -> bool:
    """Whether pseudo labels were scored."""
    return bool(run.series("pseudo_label_error")[0])


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
    notes = [note for note in (_mark_best(axes, run, names, "%") for run in runs) if note]
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
    by_loss = [run for run in runs if _chooser(run) in _LOSSES]
    notes = [note for note in (_mark_best(axes, run, _LOSSES, "nats") for run in by_loss) if note]
    if notes:
        label = notes[0] if len(runs) == 1 else "best round of a run"
        entries.append(Line2D([], [], label=label, **_STAR))
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
            # Many markers would hide the curve; keep some if colors repeat.
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


def _chooser(run: Run) -> str:
    """Key of the metric that chose the best round."""
    selection = str((run.summary or {}).get("selection") or run.settings.get("selection"))
    return CRITERION.get(selection, "")


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
        say_nothing_recorded(axes)
        return
    legend_below(figure, entries)
