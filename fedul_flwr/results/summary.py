"""Summary of a run: ``summary.json``, the plots, and a few printed lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul_flwr.config.semi import XCLPSettings
from fedul_flwr.results import store
from fedul_flwr.results.incidents import incident_rows, incidents, incidents_in_words
from fedul_flwr.results.label_names import SOURCE_WORDS, XCLP, count_in_words

if TYPE_CHECKING:  # the command line prints summaries without importing torch
    from rich.table import Table

    from fedul_flwr.config.run_config import RunConfig
    from fedul_flwr.federated.round_record import RoundRecord
    from fedul_flwr.results.recorder import Recorder

SHARES = ("percent_up", "percent_down", "nonzero_up_percent", "nonzero_down_percent")
"""Traffic of a round in percent of a dense model per client: bytes, and values sent because they
changed. A summary has the means over its rounds."""

_PRIOR_SOURCES = {
    "given": "as given",
    "sets": "mean of the clients' sets",
    "em": "uniform in training, then estimated from the test images",
}


def write_summary(
    directory: store.RunDirectory,
    settings: RunConfig,
    recorder: Recorder,
    num_clients: int,
    seconds: float,
    about: Mapping[str, Any],
) -> None:
    """Write ``summary.json`` and the plots of a finished run.

    Parameters
    ----------
    seconds : time of this process; rounds before a resume are added from their lines.
    about : entries about class priors at test time, and about differential privacy.
    """
    lines = recorder.lines
    best = recorder.best() or lines[-1]
    directory.write_json(
        store.SUMMARY,
        {
            "status": "completed",
            "method": settings.method,
            "base": settings.base,
            "model": settings.model,
            "dataset": settings.dataset,
            **_secure(settings),
            "partition": settings.partition,
            "num_clients": num_clients,
            "rounds": len(lines),
            "seed": settings.seed,
            "selection": settings.selection,
            "evaluate": settings.evaluate,
            "best_round": best["round"],
            "test_error": best["test_error"],
            "final_test_error": lines[-1]["test_error"],
            "validation_error": best["validation_error"],
            **about,
            "seconds_total": max(seconds, _total(lines, "seconds")),
            "seconds_per_round": _total(lines, "seconds") / len(lines),
            "bytes_up": _total(lines, "bytes_up"),
            "bytes_down": _total(lines, "bytes_down"),
            **_mean_shares(lines),
            "failures": _total(lines, "failures"),
            **incidents(lines),
        },
    )
    draw_pictures(directory)


def write_labeling_summary(
    directory: store.RunDirectory,
    settings: RunConfig,
    record: RoundRecord,
    num_clients: int,
    seconds: float,
    scores: Mapping[str, Any],
) -> None:
    """Write ``summary.json`` and the plots of a run that labeled its clients' points.

    Parameters
    ----------
    record : traffic and failures.
    scores : from :func:`fedul_flwr.results.label_scores.score_labels`; empty if unknown.
    """
    sources = scores.get("sources", {})
    errors = {source: found.get("error") for source, found in sources.items()}
    directory.write_json(
        store.SUMMARY,
        {
            "status": "completed",
            "method": settings.method,
            "model": settings.model,
            "dataset": settings.dataset,
            **_secure(settings),
            "partition": settings.partition,
            "num_clients": num_clients,
            "labeled_clients": record.clients,
            "seed": settings.seed,
            "test_error": errors.get(XCLP),
            "balanced_accuracy": sources.get(XCLP, {}).get("balanced_accuracy"),
            "scored_points": scores.get("points"),
            "errors": errors,
            "seconds_total": seconds,
            "bytes_up": record.bytes_up,
            "bytes_down": record.bytes_down,
            "failures": record.failures,
            **incidents([{"round": 0, **record.incidents()}]),
        },
    )
    draw_pictures(directory)


def draw_pictures(directory: store.RunDirectory) -> None:
    """Draw the plots of a run that has its summary.

    Raises
    ------
    UserError
        If they cannot be drawn or written, with the command that tries again.
    """
    from fedul_flwr.results.plots import draw_plots
    from fedul_flwr.results.records import read_run

    directory.replace_plots(lambda folder: draw_plots(read_run(directory.path), folder))


def _total(lines: list[dict[str, Any]], key: str) -> Any:
    return sum(line[key] for line in lines)


def _mean_shares(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Mean of each recorded percentage over the rounds that have it."""
    known = {key: [line[key] for line in lines if key in line] for key in SHARES}
    return {key: sum(values) / len(values) for key, values in known.items() if values}


def print_summary(directory: Path) -> None:
    """Print the results of a finished run and its directory."""
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, value in summary_rows(directory).items():
        table.add_row(name, value)
    said = incidents_in_words(store.RunDirectory(directory).read_json(store.SUMMARY))
    print_wide(table, *([f"Finished, with {said}."] if said else []))


def print_wide(table: Table, *lines: str) -> None:
    """Print a table, wider than the terminal if it must be, and lines of text below it."""
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False, markup=False)
    # A line that wraps can still be read; a path that is cut off cannot.
    unlimited = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(table, options=unlimited).maximum)
    for item in (table, *lines):
        console.print(item)


def summary_rows(directory: Path) -> dict[str, str]:
    """Results of a finished run and its directory, as text."""
    summary = store.RunDirectory(directory).read_json(store.SUMMARY)
    if "best_round" not in summary:
        return _labeling_rows(directory, summary)
    best = f"round {summary['best_round']} of {summary['rounds']}, by {summary['selection']}"
    if summary.get("evaluate") == "local":
        best += ", mean over the clients' models"
    about_prior = {}
    if summary.get("test_prior_source") in _PRIOR_SOURCES:
        about_prior["test prior"] = _PRIOR_SOURCES[summary["test_prior_source"]]
    if "test_error_reweighed" in summary:
        about_prior["re-weighed"] = f"{percent(summary['test_error_reweighed'])} for that prior"
    up, down = (summary[key] / 1e6 for key in ("bytes_up", "bytes_down"))
    return {
        "test error": f"{percent(summary['test_error'])} ({best})",
        "last round": percent(summary["final_test_error"]),
        **about_prior,
        **_prior_fit_row(summary),
        "method": f"{summary['method']} on {summary['base']}, {summary['num_clients']} clients",
        "time": f"{summary['seconds_total']:.0f} s ({summary['seconds_per_round']:.2f} s a round)",
        "traffic": f"{up:.1f} MB up, {down:.1f} MB down",
        **_seen(summary),
        **_privacy_rows(summary),
        **_share_rows(summary),
        **incident_rows(summary),
        "model": str(directory / store.BEST_MODEL),
        "metrics": str(directory / store.METRICS),
        "plots": str(directory / "plots"),
    }


def _secure(settings: RunConfig) -> dict[str, str]:
    """How clients compared their points, if the method does that."""
    table = settings.sections.get("xclp")
    return {"secure": table.secure} if isinstance(table, XCLPSettings) else {}


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
        "of the model": ("percent_up", "percent_down"),
        "values changed": ("nonzero_up_percent", "nonzero_down_percent"),
    }
    return {
        name: f"{percent(summary.get(up))} up, {percent(summary.get(down))} down, per client "
        "and round"
        for name, (up, down) in keys.items()
        if up in summary or down in summary
    }


def _prior_fit_row(summary: Mapping[str, Any]) -> dict[str, str]:
    """Sets whose class priors do not fit, if a simulation has some or was told wrong ones."""
    found = summary.get("prior_fit", {})
    if not found.get("misfits") and not found.get("told_distance"):
        return {}
    text = f"{found['misfits']} of {found['sets']} do not fit the model's predictions"
    if "told_distance" in found:
        told, seen = found["told_distance"], found["found_distance"]
        text += f"; mean distance to the truth {told:.3f} as told, {seen:.3f} as predicted"
    return {"priors of sets": text}


def _labeling_rows(directory: Path, summary: Mapping[str, Any]) -> dict[str, str]:
    rows = {}
    if summary["errors"]:
        found = store.RunDirectory(directory).read_json(store.LABELS)
        for source, scores in found["sources"].items():
            if "error" not in scores:
                continue
            unreached = scores["unreached"]
            rows[SOURCE_WORDS[source]] = (
                f"{percent(100 - scores['error'])} of "
                f"{count_in_words(scores['points'], source, found['points'])} right, "
                f"balanced {percent(scores['balanced_accuracy'])}"
                + (f", {percent(unreached)} without a label" if unreached else "")
            )
    up, down = (summary[key] / 1e6 for key in ("bytes_up", "bytes_down"))
    answered, asked = summary["labeled_clients"], summary["num_clients"]
    clients, plots = directory / "clients", directory / "plots"
    return {
        **rows,
        "method": f"{summary['method']}, {answered} of {asked} clients answered",
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
