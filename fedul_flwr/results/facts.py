"""The summary of a run: facts in words by their names, which a terminal and pages show."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul_flwr.config.methods import METHODS
from fedul_flwr.data.run_files import store
from fedul_flwr.data.run_files.label_files import SOURCE_WORDS, count_in_words, scored_sources
from fedul_flwr.data.run_files.records import Run, incident_rows, incidents, number, read_run
from fedul_flwr.data.run_files.store import LABELS, SUMMARY
from fedul_flwr.errors import UserError

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
    summary = outcome(run)
    method = METHODS.get(str(summary.get("method")))
    of_model = summary if method is None or method.updates else {}  # else sums travel
    with damaged(run.directory / SUMMARY):
        rows = _trained(summary) if run.trains else _labeled(run, summary)
        rows |= {
            "time": _time(summary),
            "traffic": _up_and_down(*(_bytes(summary.get(f"bytes_{way}")) for way in _WAYS)),
            **_protection(summary),
            "of the model": _share(of_model, "percent_{}", "the bytes of one whole model"),
            "values changed": _share(of_model, "nonzero_{}_percent", "all of its values"),
            **incident_rows(summary),
        }
    return {name: text for name, text in rows.items() if text}


@contextmanager
def damaged(file: Path) -> Iterator[None]:
    """Context that refuses content of ``file`` that cannot be what a run has written."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{file} is damaged: {error!r}.", "file-damaged") from error


def outcome(run: Run) -> dict[str, Any]:
    """Its summary; of an unfinished run what its settings and its rounds so far say."""
    if run.summary is not None:
        return run.summary
    errors = dict(zip(*run.series("test_error"), strict=True))
    best, last = run.best_round(), run.metrics[-1]["round"] if run.metrics else 0
    sums = {key: sum(run.series(key)[1]) for key in ("seconds", "bytes_up", "bytes_down")}
    seconds = sums.pop("seconds")
    return {
        **{key: run.settings.get(key) for key in ("method", "base", "selection", "evaluate")},
        **{"best_round": best, "rounds": last},
        "test_error": errors.get(best or 0),
        "final_test_error": next(reversed(errors.values()), None),
        "num_clients": len(run.federation.clients) if run.federation else None,
        **({"seconds_total": seconds} if seconds else {}),
        **({"seconds_per_round": seconds / last} if seconds and last else {}),
        **{key: value for key, value in sums.items() if value},
        **incidents(run.metrics),
    }


def _trained(summary: Mapping[str, Any]) -> dict[str, str]:
    of_priors = " for its class priors" if "validation_prior_error" in summary else ""
    chosen_by = {
        "validation": f"validation error{of_priors}",
        "balanced": "balanced validation error",
        "heldout": "held-out loss",
        "last": "being the last",
    }.get(summary.get("selection", ""))
    best = f"round {summary.get('best_round')} of {summary.get('rounds')}"
    if summary.get("best_round") is None:
        best = "no round chosen yet"
    best += f", by {chosen_by}" if chosen_by else ""
    if summary.get("evaluate") == "local":
        best += ", mean over the clients' models"
    clients = number(summary.get("num_clients"))
    reweighed = ""
    if "test_error_reweighed" in summary:
        measured = measures_in_words(summary.get("measures", {}).get("reweighed", {}))
        reweighed = f"{percent(summary['test_error_reweighed'])} for that prior"
        reweighed += f"; {measured}" if measured else ""
    start = summary.get("start_test_error")
    calibrated = summary.get("temperature") or "validation_error" not in summary
    return {
        "test error": f"{percent(summary.get('test_error'))} ({best})",
        "last round": percent(summary.get("final_test_error")),
        "before round 1": "" if start is None else percent(start),
        "measures": _measures(summary),
        "calibration": "" if calibrated else "none: probabilities are not calibrated",
        "test prior": _PRIOR_SOURCES.get(summary.get("test_prior_source", ""), ""),
        "re-weighed": reweighed,
        "personal": _personal(summary),
        "priors of sets": _prior_fit(summary.get("prior_fit", {})),
        "method": " on ".join(filter(None, [summary.get("method"), summary.get("base")]))
        + (f", {clients:.0f} clients" if clients is not None else ""),
    }


def _labeled(run: Run, summary: Mapping[str, Any]) -> dict[str, str]:
    rows = {}
    with damaged(run.directory / LABELS):
        for source, scores in scored_sources(run.labels or {}).items():
            points = count_in_words(scores["points"], source, (run.labels or {})["points"])
            text = f"{percent(100 - scores['error'])} of {points} right, "
            text += f"balanced {percent(scores['balanced_accuracy'])}"
            missing = scores["unreached"]
            text += f", {percent(missing)} without a label" if missing else ""
            rows[SOURCE_WORDS[source]] = text
    rows["method"] = str(summary.get("method"))
    if "answered_clients" in summary:
        answered, every = summary["answered_clients"], summary["num_clients"]
        rows["method"] += f", {answered} of {every} clients answered"
    return rows


def _measures(summary: Mapping[str, Any]) -> str:
    words = measures_in_words(summary)
    if not words:
        return ""
    every = summary.get("measures", {})
    before = every.get("unscaled", {}).get("ece")
    if before is not None:
        words += f" ({percent(before)} before temperature {summary['temperature']:.2f})"
    # Recalls of classes without a test point are undefined and in no mean.
    absent = sum(recall is None for recall in every.get("best", {}).get("recall", ()))
    if absent:
        which = "1 class that has" if absent == 1 else f"{absent} classes that have"
        words += f"; without {which} no test points"
    return words


def _personal(summary: Mapping[str, Any]) -> str:
    """Mean errors of personal models and of the run's model."""
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


def _prior_fit(fit: Mapping[str, Any]) -> str:
    """Sets whose class priors do not fit, if a simulation has some or was told wrong ones."""
    if not fit.get("misfits") and not fit.get("told_distance"):
        return ""
    text = f"{fit['misfits']} of {fit['sets']} do not fit the model's predictions"
    if "told_distance" in fit:
        stated, seen = fit["told_distance"], fit["found_distance"]
        text += f"; mean distance to the truth {stated:.3f} as told, {seen:.3f} as predicted"
    return text


def _protection(summary: Mapping[str, Any]) -> dict[str, str]:
    seen = "plaintext: the server saw the codes of all points"
    rows = {"secure": seen} if summary.get("secure") == "plaintext" else {}
    if "epsilon" in summary:
        rows["privacy"] = (
            f"epsilon {summary['epsilon']:.2f} at delta {summary['delta']:g}, "
            f"{summary['releases']} releases"
            + (", dp.max-epsilon reached" if summary["budget_exhausted"] else "")
        )
        rows["covers"] = summary["epsilon_covers"]
    return rows


def _time(summary: Mapping[str, Any]) -> str:
    total, of_round, waited = (
        number(summary.get(f"seconds_{key}")) for key in ("total", "per_round", "waiting")
    )
    if total is None:
        return ""
    text = duration(total) + (f" ({duration(of_round)} a round)" if of_round is not None else "")
    return text + (
        f", {duration(waited)} of it waiting for evaluations" if (waited or 0) >= 1 else ""
    )


_WAYS = ("up", "down")


def _up_and_down(up: str, down: str) -> str:
    return f"{up} up, {down} down" if {up, down} != {NONE} else ""


def _bytes(count: object) -> str:
    return NONE if number(count) is None else format_bytes(number(count) or 0)


def _share(summary: Mapping[str, Any], key: str, whole: str) -> str:
    """Traffic to and from a client in percent of a dense model, mean over rounds."""
    shares = _up_and_down(*(percent(summary.get(key.format(way))) for way in _WAYS))
    return shares and f"{shares}, per client and round; 100 % are {whole}"


def measure_cells(measured: Mapping[str, Any]) -> dict[str, str]:
    """Measures by their headings as text."""
    return {
        f"{name} ({unit})" if unit else name: NONE if value is None else f"{value:.{digits}f}"
        for key, (name, digits, unit) in _MEASURES.items()
        for value in [number(measured.get(key))]
    }


def measures_in_words(measured: Mapping[str, Any]) -> str:
    """``balanced accuracy 94.10 %, AUC 0.991, ECE 2.10 %``, without those that are not known."""
    shown = [(key, number(measured.get(key))) for key in ("balanced_accuracy", "auc", "ece")]
    texts = []
    for key, value in shown:
        name, digits, unit = _MEASURES[key]
        texts += [] if value is None else [f"{name} {value:.{digits}f} {unit}".rstrip()]
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
    for line in _in_lines(summary_rows(directory)):
        print(line)
    for warning in store.RunDirectory(directory).read_json(store.SUMMARY).get("warnings", ()):
        print(f"Warning: {warning}")


def summary_rows(directory: Path) -> dict[str, str]:
    """The facts of a finished run, and its files."""
    run = read_run(directory)
    clients, plots = directory / "clients", directory / "plots"
    rows = facts(run)
    if run.trains:
        rows |= {
            "model": str(directory / store.BEST_MODEL),
            "metrics": str(directory / store.METRICS),
        }
    else:
        here = f"{clients}/*/labels.csv" if clients.exists() else "where each client runs"
        rows |= {"labels": here}
    return rows | ({"plots": str(plots)} if run.trains or any(plots.glob("*.png")) else {})


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
        summary = store.RunDirectory(output).read_json(store.SUMMARY)
        best = f"{summary['best_round']} of {summary['rounds']}"
        chosen_by = criteria[summary["selection"]]
        table.add_row(method, labels[method], percent(summary["test_error"]), best, chosen_by)
        lines += [f"{method}: {output}", f"  {store.BEST_MODEL}, {store.METRICS}, plots/"]
    print_wide(table, *lines, f"Total time: {seconds:.0f} s")
