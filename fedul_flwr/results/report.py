"""Reports of runs as one HTML page: its tables of rounds, measures and comparisons."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import LOCATION_SETTINGS, RESOLVED_SETTINGS, default_flat
from fedul_flwr.config.user_files import read_text, user_path
from fedul_flwr.data.run_files.label_files import scored_sources
from fedul_flwr.data.run_files.records import ClientRecord, dotted, number
from fedul_flwr.data.run_files.run import Run, distinct_labels
from fedul_flwr.data.safe_files import output_file, write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.results.facts import NONE, facts, measure_cells
from fedul_flwr.results.figure_style import draw_svg
from fedul_flwr.results.measure_plots import client_accuracies
from fedul_flwr.results.model_file import render
from fedul_flwr.results.plots import curves, run_figures, save_plots

Rows = list[dict[str, str]]
"""Rows of a table as text by column; all have the same columns."""
_PREDICTIONS = {
    "best": "best round",
    "unscaled": "best round, before temperature scaling",
    "reweighed": "best round, re-weighed for estimated class priors",
    "last": "last round",
}


def measure_rows(run: Run) -> Rows:
    """One row for each kind of predictions that was measured on the test set."""
    return [
        {"predictions of": words, "round": str(one.round), **measure_cells(one)}
        for key, words in _PREDICTIONS.items()
        if (one := run.measures.get(key))
    ]


def class_rows(run: Run) -> Rows:
    """One row per class: points, recall, precision; of the best round, or of clients' labels."""
    sources = [one for one in scored_sources(run.labels).values() if one.confusion]
    measured = run.measures.get("best") or next(iter(sources), None)
    if measured is None:
        return []
    matrix = measured.confusion
    return [
        {
            "class": name,
            "points": f"{sum(row):,}",
            "recall (%)": _percent(recall),
            "precision (%)": _percent(precision),
        }
        for name, row, recall, precision in zip(
            *(run.names_of(len(matrix)), matrix, measured.recall, measured.precision),
            strict=True,
        )
    ]


CEILINGS = ("supervised", "all-labels")
"""Methods that use all labels of the clients' points: upper bounds for the others."""


def summaries(runs: Sequence[Run]) -> list[dict[str, str]]:
    """The facts of each run, its status and start; of several also how far above the ceiling."""
    rows = [facts(run) | _about(run) for run in runs]
    errors = [run.outcome.test_error for run in runs]
    ceilings = {
        _task(run): error
        for run, error in zip(runs, errors, strict=True)
        if _is_ceiling(run) and error is not None
    }
    for run, error, row in zip(runs, errors, rows, strict=True):
        # Errors of labels are measured on other points.
        if len(runs) > 1 and error is not None and run.trains and _task(run) in ceilings:
            above = f"{error - ceilings[_task(run)]:+.2f}"
            row["above ceiling"] = "ceiling" if _is_ceiling(run) else above
    return rows


def _about(run: Run) -> dict[str, str]:
    """Its status, and as far as they were recorded when it began and Flower's number of it."""
    environment = run.environment
    words = {"started": "started", "flower_run": "Flower's run"}
    recorded = {words[key]: str(environment[key]) for key in words if environment.get(key)}
    return {"status": _status(run), **recorded}


def _status(run: Run) -> str:
    if run.finished:
        return "completed"
    planned = run.settings.get("num-rounds")
    of_rounds = f", {run.last_round} of {planned} rounds" if planned and run.trains else ""
    return ("failed" if run.error else "unfinished") + of_rounds


def _is_ceiling(run: Run) -> bool:
    whole = run.settings.get("supervised.label-fraction", 1.0) == 1.0
    return run.settings.get("method") in CEILINGS and whole


def _task(run: Run) -> tuple[object, ...]:
    return run.settings.get("dataset"), run.settings.get("seed")


def side_by_side(heading: str, columns: Mapping[str, Mapping[str, str]]) -> Rows:
    """One row for each name in any of the columns, named in the column ``heading``."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    return [
        {heading: name, **{label: column.get(name, NONE) for label, column in columns.items()}}
        for name in names
    ]


def settings_rows(runs: Sequence[Run], labels: Sequence[str]) -> tuple[Rows, list[int]]:
    """All settings of any run, shared ones first, with a column of values for each run."""
    columns = [{name: _text(value) for name, value in run.settings.items()} for run in runs]
    rows = side_by_side("setting", dict(zip(labels, columns, strict=True)))
    rows.sort(key=lambda row: ("." in row["setting"], row["setting"]))
    defaults = {name: _text(value) for name, value in default_flat().items()}

    def is_of_note(name: str, *values: str) -> bool:
        if len(runs) == 1:
            return name not in RESOLVED_SETTINGS and values[0] != defaults.get(name)
        # A table that a method does not have does not count as a difference.
        return len(set(values) - ({NONE} if "." in name else set())) > 1

    shown = [row["setting"] not in LOCATION_SETTINGS and is_of_note(*row.values()) for row in rows]
    return rows, [position for position, is_shown in enumerate(shown) if is_shown]


def tables_of(run: Run) -> dict[str, Any]:
    """Tables of one run, below the common figures."""
    clients, shape, summary = run.clients, run.data.shape, run.outcome
    accuracies = client_accuracies(run)
    prior = summary.test_prior_estimate or summary.test_prior
    is_uniform = summary.test_prior_source in (None, "uniform")
    return {
        "points": _points(shape) if shape else "",
        "test_prior": "" if is_uniform else ", ".join(f"{share:.3g}" for share in prior or ()),
        "class_names": run.data.class_names,
        "directory": str(run.path),
        "finished": run.finished,
        "error": run.error,
        "scored": run.trains or bool(scored_sources(run.labels)),
        "warnings": summary.warnings,
        "measures": _filled(measure_rows(run)),
        "personal": _filled(personal_rows(run)),
        "classes": class_rows(run),
        "rounds": run.last_round,
        "clients": _filled([_client(client, accuracies.get(client.id)) for client in clients]),
        "dropped": [row for row, one in enumerate(clients) if one.status == "dropped"],
        "environment": [
            {"name": name, "value": _text(value)} for name, value in dotted(run.environment).items()
        ],
        "owners": _owners(run),
    }


def _owners(run: Run) -> dict[str, Any] | None:
    """What a run among owners asked of them, and who saw what; None for a simulation."""
    if run.disclosures is None:
        return None
    name = str(run.settings.get("method"))
    method = METHODS.get(name)
    return {
        "method": name,
        "line": method.line if method else "",
        "needs": method.needs if method else "",
        "sent": [
            {"what left each owner": one.what, "who sees it": one.reader, "when": one.often}
            for one in run.disclosures.sent
        ],
        "unprotected": run.disclosures.unprotected,
        "settings": run.disclosures.settings,
    }


def _points(shape: Sequence[int]) -> str:
    kind = "images of" if len(shape) > 1 else "vectors of length"
    return f"{kind} {' × '.join(map(str, shape))}"


def _client(client: ClientRecord, accuracy: float | None) -> dict[str, str]:
    sizes, condition = client.set_sizes, client.condition_number
    return {
        "client": _client_text(client.id, {client.id: client.name}),
        "points": _text(client.num_points),
        "sets": NONE if sizes is None else str(len(sizes)),
        "labels": NONE if client.labeled_counts is None else str(sum(client.labeled_counts)),
        "estimated accuracy (%)": _percent(accuracy),
        "priors": NONE if client.priors is None else "shared",
        "condition number": NONE if condition is None else f"{condition:.3g}",
        "status": client.status,
        "reason": client.reason or NONE,
    }


def _client_text(client: int, names: Mapping[int, str]) -> str:
    return f"{client} ({names[client]})" if names.get(client) else str(client)


def personal_rows(run: Run) -> Rows:
    """One row per client of a simulation: errors of the global and of its personal model."""
    return [
        {
            "client": _client_text(one.client, run.owners),
            "global, test points (%)": _percent(one.global_test_error),
            "personal, test points (%)": _percent(one.test_error),
            "global, labels set aside (%)": _percent(one.global_error),
            "personal, labels set aside (%)": _percent(one.error),
            "labels set aside": str(one.labels_aside or NONE),
            "differs": "yes" if one.differs else one.missing or "no",
        }
        for one in (run.personal.clients if run.personal else ())
    ]


def _filled(rows: Rows) -> Rows:
    """``rows`` without columns that are empty in all rows."""
    return [
        {name: value for name, value in row.items() if any(other[name] != NONE for other in rows)}
        for row in rows
    ]


def _text(value: object) -> str:
    if value is None:
        return NONE
    if isinstance(value, str):
        return value if value else '""'
    return json.dumps(value, ensure_ascii=False)


def _percent(value: object) -> str:
    return NONE if (finite := number(value)) is None else f"{finite:.2f}"


PAGE = "report.html"
_COMPARISON = ("comparison.md", "trials.csv")


def is_comparison(directory: Path) -> bool:
    """Whether the directory has the files of a comparison."""
    return all((directory / name).is_file() for name in _COMPARISON)


_CAPTIONS = {
    "evaluation": "Left: sensitivity over 1 − specificity. Center: how often the class is true "
    "where the model says so, in tenths of the points. Right: net benefit of acting from a "
    "threshold on, against acting for all or none.",
    "error": "Errors after each round, in percent. A star marks the best round, which was chosen "
    "without test data.",
    "loss": "Losses over rounds. They are different functions of different points: compare their "
    "course, not their height.",
    "pseudo_labels": "How many unlabeled points had a pseudo label in each round, and how many of "
    "these labels were wrong, which a simulation knows.",
    "priors": "What is known of the clients' points: classes in the columns, and how many points "
    "there are.",
    "time_traffic": "Seconds of each round, and bytes of its messages from and to all clients "
    "together.",
    "confusion": "Which classes the best round's model predicted for test points of each class, in "
    "percent of that class's points.",
    "known_confusion": "Which classes the best round's model predicts for the clients' points of "
    "each class, in percent of these points, from sums over clients: no test point was read.",
    "reliability": "Of the points whose predicted class has a probability in one of 15 bins, how "
    "many are right. ECE is the mean distance from the diagonal over all points.",
    "client_accuracy": "Estimate of the best round's accuracy at each client: recalls of the "
    "classes on the test points, weighted by the client's class shares. No point of a client was "
    "tested.",
    "label_confusion": "Which classes the points of each class were labeled, in percent of that "
    "class's points.",
    "label_accuracy": "Accuracy of labels by their source, over points and as mean over classes.",
    "label_clients": "Accuracy of labels at each client, from labels across clients and within it.",
    "label_coverage": "Error among the most confident labels, over their share of all points.",
    "comparison": "Left: the mean over seeds after each round, with a band of one standard "
    "deviation, for runs that train. Right: the result of every seed, with mean and standard "
    "deviation of each run.",
}
_PIXELS_PER_POINT = 94 / 72  # a little smaller than CSS's 96


def report(
    directories: str | Path | Sequence[str | Path], output: str | Path | None = None
) -> Path:
    """Redraw the plots of runs and write one HTML page about them.

    Parameters
    ----------
    directories : of runs, or of one comparison.
    output : HTML file to write, by default one in the directory, or above those of several runs.

    Raises
    ------
    UserError
        If one is no run, or the page cannot be written.
    """
    named = [directories] if isinstance(directories, str | Path) else directories
    dirs = [user_path(one) for one in named]
    if not dirs:
        raise UserError("A report needs the directory of at least one run.", "run-missing")
    compared = [directory for directory in dirs if is_comparison(directory)]
    if compared and len(dirs) > 1:
        raise UserError(
            f"{compared[0]} is a comparison, which has a page of its own: name it alone.",
            "argument-not-allowed",
        )
    if output is None:
        shared = Path(os.path.commonpath(dirs))
        page_file = (dirs[0] if len(dirs) == 1 else shared) / PAGE
        if page_file.parent == page_file.parent.parent:
            page_file = Path(PAGE)
    else:
        page_file = output_file(Path(output), dirs, ".html")
    if not compared:
        page = _page([Run.read(path) for path in dirs])
    elif (written := read_text(compared[0] / PAGE)) is None:
        raise UserError(
            f"{compared[0]} holds no {PAGE}: the same fedul-flwr compare writes it.", "file-missing"
        )
    else:
        page = written
    write_atomically(page_file, page)
    return page_file


def _page(runs: Sequence[Run]) -> str:
    figures = [{name: draw() for name, draw in run_figures(run).items()} for run in runs]
    for run, drawn in zip(runs, figures, strict=True):
        save_plots(drawn, run.plots)
    labels = distinct_labels(runs)
    several = len(runs) > 1
    columns = labels if several else ["value"]
    settings, of_note = settings_rows(runs, columns)
    common = {name: draw() for name, draw in curves(runs).items()}
    return render(
        "report.html.template.md",
        title=f"{len(runs)} runs" if several else labels[0],
        labels=labels,
        facts=side_by_side("fact", dict(zip(columns, summaries(runs), strict=True))),
        tested=any(run.series("test_error")[0] for run in runs),
        over_rounds=pictures(common),
        settings=settings,
        told=[settings[row] for row in of_note],
        differing=of_note if several else [],
        sections=[
            tables_of(run)
            | {"figures": pictures({n: drawn[n] for n in drawn if n not in (*common, "summary")})}
            for run, drawn in zip(runs, figures, strict=True)
        ],
    )


def pictures(figures: Mapping[str, Figure]) -> list[dict[str, Any]]:
    """Figures as a page has them, with the captions of their names."""
    return [
        {
            "src": f"data:image/svg+xml;base64,{base64.b64encode(draw_svg(figure)).decode()}",
            "width": round(72 * figure.get_figwidth() * _PIXELS_PER_POINT),
            "alt": re.sub(r"\s+", " ", figure.get_suptitle()),
            "caption": _CAPTIONS[name],
        }
        for name, figure in figures.items()
    ]
