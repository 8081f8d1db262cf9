"""The summary of a run: facts in words by their names, which a terminal and pages show."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedul_flwr.config.methods import METHODS
from fedul_flwr.data.run_files.label_files import SOURCE_WORDS, count_in_words, scored_sources
from fedul_flwr.data.run_files.parts import Measured, PersonalSummary, PriorFit, Summary
from fedul_flwr.data.run_files.records import AWAY, FAILED, REASONS, incident_rows
from fedul_flwr.data.run_files.run import BEST_MODEL, METRICS, Run

if TYPE_CHECKING:
    from rich.table import Table


NONE = "–"
"""What stands where a value is missing."""
_MEASURES = {
    "error": ("error", 2, "%"),
    "balanced_accuracy": ("balanced accuracy", 2, "%"),
    "auc": ("AUC", 3, ""),
    "ece": ("ECE", 2, "%"),
    "nll": ("NLL", 3, "nats"),
    "brier": ("Brier score", 3, ""),
}
"""Name, digits and unit of the measures on a test set."""
_PRIOR_SOURCES = {
    "given": "as given",
    "sets": "mean of the clients' sets",
    "em": "uniform in training, then estimated from the test images",
}


def facts(run: Run) -> dict[str, str]:
    """What came of a run, in words by name; of an unfinished one, from its rounds so far."""
    summary = run.outcome
    method = METHODS.get(summary.method)
    rows = _trained(summary) if run.trains else _labeled(run, summary)
    rows |= {
        "time": _time(summary),
        "traffic": _up_and_down(_bytes(summary.bytes_up), _bytes(summary.bytes_down)),
        **_protection(summary),
    }
    if method is None or method.updates:  # else sums travel
        changed = summary.nonzero_up_percent, summary.nonzero_down_percent
        rows |= {
            "of the model": _share(
                summary.percent_up, summary.percent_down, "the bytes of one whole model"
            ),
            "values changed": _share(*changed, "all of its values"),
        }
    rows |= incident_rows({FAILED: summary.failed, AWAY: summary.away, REASONS: summary.reasons})
    return {name: text for name, text in rows.items() if text}


def _trained(summary: Summary) -> dict[str, str]:
    is_for_priors = "validation_prior_error" in summary.model_fields_set
    chosen_by = {
        "validation": f"validation error{' for its class priors' * is_for_priors}",
        "balanced": "balanced validation error",
        "heldout": "held-out loss",
        "last": "being the last",
    }.get(summary.selection or "")
    best = f"round {summary.best_round} of {summary.rounds}"
    if summary.best_round is None:
        best = "no round chosen yet"
    best += f", by {chosen_by}" if chosen_by else ""
    if summary.evaluate == "local":
        best += ", mean over the clients' models"
    reweighed = ""
    if "test_error_reweighed" in summary.model_fields_set:
        measured = measures_in_words(summary.measures.get("reweighed", Measured()))
        reweighed = f"{percent(summary.test_error_reweighed)} for that prior"
        reweighed += f"; {measured}" if measured else ""
    start = summary.start_test_error
    calibrated = summary.temperature or "validation_error" not in summary.model_fields_set
    clients = "" if summary.num_clients is None else f", {summary.num_clients} clients"
    return {
        "test error": f"{percent(summary.test_error)} ({best})",
        "known error": _error_without_test_data(summary),
        "owners": _misfits(summary),
        "last round": percent(summary.final_test_error),
        "before round 1": "" if start is None else percent(start),
        "measures": _measures(summary),
        "calibration": "" if calibrated else "none: probabilities are not calibrated",
        "test prior": _PRIOR_SOURCES.get(summary.test_prior_source or "", ""),
        "re-weighed": reweighed,
        "personal": _personal(summary.personal),
        "priors of sets": _prior_fit(summary.prior_fit),
        "method": " on ".join(filter(None, [summary.method, summary.base])) + clients,
    }


def _error_without_test_data(summary: Summary) -> str:
    """Its error on the clients' points, known without test data."""
    if summary.known_error is None or summary.known_error_interval is None:
        return ""
    low, high = summary.known_error_interval
    error = f"{summary.known_error:.1f} % ({low:.1f} to {high:.1f}) of the clients' points"
    return f"{error}, from {summary.known_from}"


def _misfits(summary: Summary) -> str:
    """How many owners' points the model's predictions do not fit."""
    if not summary.misfits:
        return ""
    which = ", ".join(map(str, summary.misfitting_clients))
    who = f"client {which}" if which else f"{summary.misfits} of them (their logs say who)"
    return f"predictions do not follow from class shares: {who}"


def _labeled(run: Run, summary: Summary) -> dict[str, str]:
    rows = {}
    for source, score in scored_sources(run.labels).items():
        points = count_in_words(score.points, source, run.labels.points)
        text = f"{percent(100 - (score.error or 0))} of {points} right, "
        text += f"balanced {percent(score.balanced_accuracy)}"
        missing = score.unreached
        text += f", {percent(missing)} without a label" if missing else ""
        rows[SOURCE_WORDS[source]] = text
    rows["method"] = summary.method
    if summary.answered_clients is not None:
        answered, every = summary.answered_clients, summary.num_clients
        rows["method"] += f", {answered} of {every} clients answered"
    return rows


def _measures(summary: Summary) -> str:
    words = measures_in_words(summary)
    if not words:
        return ""
    before = summary.measures.get("unscaled", Measured()).ece
    if before is not None:
        words += f" ({percent(before)} before temperature {summary.temperature:.2f})"
    # Recalls of classes without a test point are undefined and in no mean.
    absent = summary.measures.get("best", Measured()).recall.count(None)
    if absent:
        which = "1 class that has" if absent == 1 else f"{absent} classes that have"
        words += f"; without {which} no test points"
    return words


def _personal(personal: PersonalSummary | None) -> str:
    """Mean errors of personal models and of the run's model."""
    if personal is None:
        return ""
    if personal.error is None:
        where = "nothing to compare" if personal.measured_on else "where each client runs"
        return f"{personal.kind}: {where}"
    return (
        f"{personal.kind}: mean error {percent(personal.error)}, of the one model "
        f"{percent(personal.global_error)}, on {personal.measured_on}; better at "
        f"{personal.better} of {personal.clients} clients, worse at {personal.worse}"
    )


def _prior_fit(fit: PriorFit) -> str:
    """Sets whose class priors do not fit, if a simulation has some or was told wrong ones."""
    if not fit.misfits and not fit.told_distance:
        return ""
    text = f"{fit.misfits} of {fit.sets} do not fit the model's predictions"
    if fit.told_distance is not None:
        stated, seen = fit.told_distance, fit.found_distance
        text += f"; mean distance to the truth {stated:.3f} as told, {seen:.3f} as predicted"
    return text


def _protection(summary: Summary) -> dict[str, str]:
    seen = "plaintext: the server saw the codes of all points"
    rows = {"secure": seen} if summary.secure == "plaintext" else {}
    if summary.epsilon is not None:
        rows["privacy"] = (
            f"epsilon {summary.epsilon:.2f} at delta {summary.delta:g}, "
            f"{summary.releases} releases"
            + (", dp.max-epsilon reached" if summary.budget_exhausted else "")
        )
        rows["covers"] = summary.epsilon_covers or ""
    if summary.conspirators:
        rows["one owner's part"] = f"can be read by the server with {summary.conspirators} owners"
    return rows


def _time(summary: Summary) -> str:
    if summary.seconds_total is None:
        return ""
    text, of_round = duration(summary.seconds_total), summary.seconds_per_round
    text += f" ({duration(of_round)} a round)" if of_round is not None else ""
    waited = summary.seconds_waiting or 0
    return text + (f", {duration(waited)} of it waiting for evaluations" if waited >= 1 else "")


def _up_and_down(up: str, down: str) -> str:
    return f"{up} up, {down} down" if {up, down} != {NONE} else ""


def _bytes(count: float | None) -> str:
    return NONE if count is None else format_bytes(count)


def _share(up: float | None, down: float | None, whole: str) -> str:
    """Traffic to and from a client in percent of a dense model, mean over rounds."""
    shares = _up_and_down(percent(up), percent(down))
    return shares and f"{shares}, per client and round; 100 % are {whole}"


def measure_cells(measured: Measured) -> dict[str, str]:
    """Measures by their headings as text."""
    return {
        f"{name} ({unit})" if unit else name: NONE if value is None else f"{value:.{digits}f}"
        for key, (name, digits, unit) in _MEASURES.items()
        for value in [getattr(measured, key)]
    }


def measures_in_words(measured: Measured | Summary) -> str:
    """``balanced accuracy 94.10 %, AUC 0.991, ECE 2.10 %``, without those that are not known."""
    texts = []
    for key in ("balanced_accuracy", "auc", "ece"):
        name, digits, unit = _MEASURES[key]
        if (value := getattr(measured, key)) is not None:
            texts.append(f"{name} {value:.{digits}f} {unit}".rstrip())
    return ", ".join(texts)


def percent(value: float | None) -> str:
    """``2.5`` as ``2.50 %``; a dash for ``None``."""
    return NONE if value is None else f"{value:.2f} %"


def duration(seconds: float | None) -> str:
    """``200`` as ``3.3 min``; a dash for ``None``."""
    if seconds is None:
        return NONE
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_bytes(count: float) -> str:
    """``count`` bytes with three digits and a decimal unit, e.g. ``12.3 MB``."""
    scale, unit = byte_unit(count)
    value = count / scale
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def byte_unit(count: float) -> tuple[float, str]:
    """The largest decimal unit of which ``count`` bytes are one or more, and its bytes."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return scale, unit
    return 1.0, "bytes"


# The summary of finished runs as printed lines.

_GAP, _LEAST = 4, 20
"""Columns between a name and its value, and the least that a value has in a terminal."""


def print_summary(directory: Path) -> None:
    """Print the results of a finished run and its directory."""
    run = Run.read(directory)
    for line in _in_lines(summary_rows(run)):
        print(line)
    for warning in run.outcome.warnings:
        print(f"Warning: {warning}")


def summary_rows(run: Run) -> dict[str, str]:
    """The facts of a finished run, and its files."""
    rows = facts(run)
    if run.trains:
        rows |= {"model": str(run.path / BEST_MODEL), "metrics": str(run.path / METRICS)}
    else:
        is_here = run.memory.exists()
        rows["labels"] = f"{run.memory}/*/labels.csv" if is_here else "where each client runs"
    has_plots = run.trains or any(run.plots.glob("*.png"))
    return rows | ({"plots": str(run.plots)} if has_plots else {})


def _in_lines(rows: Mapping[str, str]) -> Iterator[str]:
    """Names and values beside each other.

    Values wrap at the width of a terminal, and elsewhere have one line each. Paths are never cut.
    """
    beside = max(map(len, rows), default=0) + _GAP
    width = shutil.get_terminal_size().columns - beside - 2
    wrapper = textwrap.TextWrapper(
        max(width, _LEAST), break_long_words=False, break_on_hyphens=False
    )
    for name, value in rows.items():
        first, *others = (wrapper.wrap(value) if sys.stdout.isatty() else [value]) or [""]
        yield f"  {name:<{beside}}{first}"
        yield from (" " * (beside + 2) + line for line in others)


def print_wide(table: Table, *lines: str) -> None:
    """Print a table, wider than the terminal if it must be, and lines of text below it."""
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False, markup=False)
    # A line that wraps can still be read; a path that is cut off cannot.
    unlimited = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(table, options=unlimited).maximum)
    with console.capture() as printed:
        console.print(table)
    for row in printed.get().splitlines():
        print(row.rstrip())  # in a narrower terminal spaces at the end would be empty lines
    for line in lines:
        console.print(line)


def print_comparison(outputs: Mapping[str, Path], seconds: float) -> None:
    """Print a table of the demo's finished runs by their methods, and the time of all."""
    from rich.table import Table

    labels = {"fedul": "none, class shares of sets", "supervised": "all (the ceiling)"}
    criteria = {"heldout": "held-out loss", "validation": "validation labels"}
    table = Table(title="Handwritten digits: same clients, same points")
    for name in ("method", "labels used", "test error", "best round", "chosen by"):
        table.add_column(name, justify="right" if name in ("test error", "best round") else "left")
    lines = []
    for method, output in outputs.items():
        summary = Run.read(output).outcome
        best, chosen_by = f"{summary.best_round} of {summary.rounds}", summary.selection or ""
        error = percent(summary.test_error)
        table.add_row(method, labels[method], error, best, criteria[chosen_by])
        lines += [f"{method}: {output}", f"  {BEST_MODEL}, {METRICS}, plots/"]
    print_wide(table, *lines, f"Total time: {seconds:.0f} s")
