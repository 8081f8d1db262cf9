"""Results of finished runs as printed lines."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul_flwr.data.run_files import store
from fedul_flwr.data.run_files.label_files import SOURCE_WORDS, count_in_words
from fedul_flwr.data.run_files.records import incident_rows, incidents_in_words, number

if TYPE_CHECKING:  # imported where it is used: this module is imported at every start
    from rich.table import Table

_GAP, _LEAST = 4, 20
"""Columns between a name and its value, and the least that a value has in a terminal."""
NONE = "–"
"""What a table shows where a value is missing."""
NOT_CALIBRATED = "none: probabilities are not calibrated"
_COLUMNS = {
    "error": ("error (%)", 2),
    "balanced_accuracy": ("balanced accuracy (%)", 2),
    "auc": ("AUC", 3),
    "ece": ("ECE (%)", 2),
    "nll": ("NLL (nats)", 3),
    "brier": ("Brier score", 3),
}
_PRIOR_SOURCES = {
    "given": "as given",
    "sets": "mean of the clients' sets",
    "em": "uniform in training, then estimated from the test images",
}


def print_summary(directory: Path) -> None:
    """Print the results of a finished run and its directory."""
    for line in _in_lines(summary_rows(directory)):
        print(line)
    summary = store.RunDirectory(directory).read_json(store.SUMMARY)
    for warning in summary.get("warnings", ()):
        print(f"Warning: {warning}")
    if text := incidents_in_words(summary):
        print(f"Finished, with {text}.")


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


def summary_rows(directory: Path) -> dict[str, str]:
    """Results of a finished run and its directory, as text."""
    summary = store.RunDirectory(directory).read_json(store.SUMMARY)
    if "best_round" not in summary:
        return _labeling_rows(directory, summary)
    criteria = {"balanced": "balanced validation error"}
    if "validation_prior_error" in summary:
        criteria["validation"] = "validation error for its class priors"
    chosen_by = criteria.get(summary["selection"])
    best = f"round {summary['best_round']} of {summary['rounds']}, by "
    best += chosen_by or summary["selection"]
    if summary.get("evaluate") == "local":
        best += ", mean over the clients' models"
    about_prior = {}
    if summary.get("test_prior_source") in _PRIOR_SOURCES:
        about_prior["test prior"] = _PRIOR_SOURCES[summary["test_prior_source"]]
    if "test_error_reweighed" in summary:
        reweighed = measures_in_words(summary.get("measures", {}).get("reweighed", {}))
        about_prior["re-weighed"] = "; ".join(
            filter(None, [f"{percent(summary['test_error_reweighed'])} for that prior", reweighed])
        )
    start = summary.get("start_test_error")
    up, down = (summary[key] / 1e6 for key in ("bytes_up", "bytes_down"))
    waited = number(summary.get("seconds_waiting")) or 0.0
    return {
        "test error": f"{percent(summary['test_error'])} ({best})",
        "last round": percent(summary["final_test_error"]),
        **({} if start is None else {"before round 1": percent(start)}),
        **_measure_rows(summary),
        **({} if summary.get("temperature") else {"calibration": NOT_CALIBRATED}),
        **about_prior,
        **({"personal": words} if (words := personal_in_words(summary)) else {}),
        **({"priors of sets": fits} if (fits := prior_fit_in_words(summary)) else {}),
        "method": f"{summary['method']} on {summary['base']}, {summary['num_clients']} clients",
        "time": f"{summary['seconds_total']:.0f} s ({summary['seconds_per_round']:.2f} s a round)"
        + (f", {waited:.0f} s of it waiting for evaluations" if waited >= 1 else ""),
        "traffic": f"{up:.1f} MB up, {down:.1f} MB down",
        **_seen(summary),
        **_privacy_rows(summary),
        **_share_rows(summary),
        **incident_rows(summary),
        "model": str(directory / store.BEST_MODEL),
        "metrics": str(directory / store.METRICS),
        "plots": str(directory / "plots"),
    }


def measure_cells(measured: Mapping[str, Any], *keys: str) -> dict[str, str]:
    """Measures by their headings as text; all of them, or those of ``keys``."""
    return {
        heading: NONE if (value := number(measured.get(key))) is None else f"{value:.{digits}f}"
        for key, (heading, digits) in _COLUMNS.items()
        if not keys or key in keys
    }


def measures_in_words(measured: Mapping[str, Any]) -> str:
    """``balanced accuracy 94.10 %, AUC 0.991, ECE 2.10 %``, without those that are not known."""
    measures = {key: measured.get(key) for key in ("balanced_accuracy", "auc", "ece")}
    words = {
        "balanced_accuracy": "balanced accuracy {:.2f} %",
        "auc": "AUC {:.3f}",
        "ece": "ECE {:.2f} %",
    }
    return ", ".join(words[key].format(x) for key, x in measures.items() if x is not None)


def prior_fit_in_words(summary: Mapping[str, Any]) -> str:
    """Sets whose class priors do not fit, if a simulation has some or was told wrong ones."""
    fit = summary.get("prior_fit", {})
    if not fit.get("misfits") and not fit.get("told_distance"):
        return ""
    text = f"{fit['misfits']} of {fit['sets']} do not fit the model's predictions"
    if "told_distance" in fit:
        stated, seen = fit["told_distance"], fit["found_distance"]
        text += f"; mean distance to the truth {stated:.3f} as told, {seen:.3f} as predicted"
    return text


def personal_in_words(summary: Mapping[str, Any]) -> str:
    """Mean errors of personal models and of the run's model; empty without personal models."""
    personal = summary.get("personal")
    if personal is None:
        return ""
    if "error" not in personal:
        where = "nothing to compare" if "measured_on" in personal else "where each client runs"
        return f"{personal['kind']}: {where}"
    return (
        f"{personal['kind']}: mean error {percent(personal['error'])}, of the one model "
        f"{percent(personal['global_error'])}, on {personal['measured_on']}; better at "
        f"{personal['better']} of {personal['clients']} clients, worse at {personal['worse']}"
    )


def _measure_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    words = measures_in_words(summary)
    if not words:
        return {}
    every = summary.get("measures", {})
    before = every.get("unscaled", {}).get("ece")
    if before is not None:
        words += f" ({percent(before)} before temperature {summary['temperature']:.2f})"
    # Recalls of classes without a test point are undefined and in no mean.
    absent = sum(recall is None for recall in every.get("best", {}).get("recall", ()))
    if absent:
        which = "1 class that has" if absent == 1 else f"{absent} classes that have"
        words += f"; without {which} no test points"
    return {"measures": words}


def _seen(summary: Mapping[str, Any]) -> dict[str, str]:
    if summary.get("secure") != "plaintext":
        return {}
    return {"secure": "plaintext: the server saw the codes of all points"}


def _privacy_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    if "epsilon" not in summary:
        return {}
    spent = (
        f"epsilon {summary['epsilon']:.2f} at delta {summary['delta']:g}, "
        f"{summary['releases']} releases"
    )
    if summary["budget_exhausted"]:
        spent += ", dp.max-epsilon reached"
    return {"privacy": spent, "covers": summary["epsilon_covers"]}


def _share_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """Traffic to and from a client in percent of a dense model, mean over rounds."""
    keys = {
        "of the model": ("percent_up", "percent_down", "the bytes of one whole model"),
        "values changed": ("nonzero_up_percent", "nonzero_down_percent", "all of its values"),
    }
    return {
        name: f"{percent(summary.get(up))} up, {percent(summary.get(down))} down, per client "
        f"and round; 100 % are {whole}"
        for name, (up, down, whole) in keys.items()
        if up in summary or down in summary
    }


def _labeling_rows(directory: Path, summary: Mapping[str, Any]) -> dict[str, str]:
    rows = {}
    if summary["errors"]:
        labels = store.RunDirectory(directory).read_json(store.LABELS)
        for source, scores in labels["sources"].items():
            if "error" not in scores:
                continue
            unreached = scores["unreached"]
            rows[SOURCE_WORDS[source]] = (
                f"{percent(100 - scores['error'])} of "
                f"{count_in_words(scores['points'], source, labels['points'])} right, "
                f"balanced {percent(scores['balanced_accuracy'])}"
                + (f", {percent(unreached)} without a label" if unreached else "")
            )
    up, down = (summary[key] / 1e6 for key in ("bytes_up", "bytes_down"))
    answered, total = summary["labeled_clients"], summary["num_clients"]
    clients, plots = directory / "clients", directory / "plots"
    return {
        **rows,
        "method": f"{summary['method']}, {answered} of {total} clients answered",
        "time": f"{summary['seconds_total']:.0f} s",
        "traffic": f"{up:.1f} MB up, {down:.1f} MB down",
        **_seen(summary),
        **incident_rows(summary),
        "labels": f"{clients}/*/labels.csv" if clients.exists() else "where each client runs",
        **({"plots": str(plots)} if any(plots.glob("*.png")) else {}),
    }


def percent(value: float | None) -> str:
    """``2.5`` as ``2.50 %``; a dash for ``None``."""
    return "–" if value is None else f"{value:.2f} %"


def duration(seconds: float | None) -> str:
    """``200`` as ``3.3 min``; a dash for ``None``."""
    if seconds is None:
        return "–"
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


def print_comparison(outputs: Mapping[str, Path], seconds: float) -> None:
    """Print a table of the demo's finished runs.

    Parameters
    ----------
    outputs : directory of the run by method.
    seconds : time of all runs together.
    """
    from rich.console import Console
    from rich.table import Table

    labels = {"fedul": "none, class priors of sets", "supervised": "all (the ceiling)"}
    table = Table(title="Handwritten digits: same clients, same points")
    for name in ("method", "labels used", "test error", "best round", "chosen by"):
        table.add_column(name, justify="right" if name in ("test error", "best round") else "left")
    criteria = {"heldout": "held-out loss", "validation": "validation labels"}
    console = Console(soft_wrap=True, highlight=False)
    for method, output in outputs.items():
        summary = store.RunDirectory(output).read_json(store.SUMMARY)
        best = f"{summary['best_round']} of {summary['rounds']}"
        chosen_by = criteria[summary["selection"]]
        table.add_row(method, labels[method], percent(summary["test_error"]), best, chosen_by)
    console.print(table)
    for method, output in outputs.items():
        console.print(f"{method}: {output}")
        console.print(f"  {store.BEST_MODEL}, {store.METRICS}, plots/")
    console.print(f"Total time: {seconds:.0f} s")
