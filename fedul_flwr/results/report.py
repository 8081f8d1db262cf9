"""Reports of runs as one HTML page: its tables of rounds, measures and comparisons."""

from __future__ import annotations

import base64
import csv
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from fedul_flwr.config.methods import METHODS
from fedul_flwr.config.run_config import LOCATION_SETTINGS, RESOLVED_SETTINGS, default_flat
from fedul_flwr.config.user_files import regular_file
from fedul_flwr.data.csv_files import read_cell
from fedul_flwr.data.run_files.label_files import scored_sources, source_in_words
from fedul_flwr.data.run_files.records import (
    ClientRecord,
    Run,
    distinct_labels,
    incidents,
    incidents_in_words,
    number,
    read_run,
)
from fedul_flwr.data.safe_files import output_file, write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.results.figure_style import DPI, draw_svg
from fedul_flwr.results.measure_plots import client_accuracies
from fedul_flwr.results.plots import (
    error_figure,
    has_error,
    has_loss,
    loss_figure,
    run_figures,
    save_plots,
)
from fedul_flwr.results.printed_summary import (
    NONE,
    duration,
    format_bytes,
    measure_cells,
    prior_fit_in_words,
)

_PREDICTIONS = {
    "best": "best round",
    "unscaled": "best round, before temperature scaling",
    "reweighed": "best round, re-weighed for estimated class priors",
    "last": "last round",
}


def measure_rows(run: Run) -> list[dict[str, str]]:
    """One row for each kind of predictions that was measured on the test set."""
    measures = run.measures or {}
    return [
        {
            "predictions of": words,
            "round": str(measures[key]["round"]),
            **measure_cells(measures[key]),
        }
        for key, words in _PREDICTIONS.items()
        if key in measures
    ]


def class_rows(run: Run) -> list[dict[str, str]]:
    """One row per class: points, recall, precision; of the best round, or of clients' labels."""
    sources = [one for one in scored_sources(run.labels or {}).values() if "confusion" in one]
    measured = (run.measures or {}).get("best") or next(iter(sources), None)
    if measured is None:
        return []
    matrix = measured["confusion"]
    names = run.data.get("class_names")
    if not isinstance(names, list) or len(names) != len(matrix):
        names = list(range(len(matrix)))
    return [
        {
            "class": str(name),
            "points": f"{sum(row):,}",
            "recall (%)": NONE if recall is None else f"{recall:.2f}",
            "precision (%)": NONE if precision is None else f"{precision:.2f}",
        }
        for name, row, recall, precision in zip(
            names, matrix, measured["recall"], measured["precision"], strict=True
        )
    ]


CEILINGS = ("supervised", "all-labels")
"""Methods that use all labels of the clients' points: upper bounds for the others."""
_CHOSEN = {
    "validation": "by validation error",
    "balanced": "by balanced validation error",
    "heldout": "by the loss on held-out sets",
    "last": "because it is the last",
}
_HEADINGS = {True: "error, best round (%)", False: "error of labels (%)"}


def summaries(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Results of each run, as text by column; all have the same keys.

    Values that are not in a summary come from settings and metrics. Empty columns are left out.
    """
    ceilings = {_task(run): error for run in runs if (error := _ceiling(run)) is not None}
    if len(runs) == 1:
        ceilings = {}
    kinds = {run.trains for run in runs}
    heading = _HEADINGS[kinds.pop()] if len(kinds) == 1 else "error (%)"
    rows = [_summary(run, heading, ceilings.get(_task(run))) for run in runs]
    filled = [name for name in rows[0] if any(row[name] != NONE for row in rows)]
    return [{name: row[name] for name in filled} for row in rows]


def _summary(run: Run, heading: str, ceiling: float | None) -> dict[str, str]:
    summary = run.summary or {}
    last = run.metrics[-1]["round"] if run.metrics else 0
    clients = run.federation.clients if run.federation is not None else None
    errors, best = run.series("test_error")[1], _best_error(run)
    seconds = run.series("seconds")[1]
    total = number(summary.get("seconds_total", sum(seconds) if seconds else None))
    per_round = number(summary.get("seconds_per_round", total / last if total and last else None))
    return {
        heading: _percent(best),
        "above ceiling": _above(run, best, ceiling),
        "error, last round (%)": _percent(
            number(summary.get("final_test_error", errors[-1] if errors else None))
        ),
        **measure_cells(summary, "balanced_accuracy", "auc", "ece"),
        "best round": _text(run.best_round()),
        "rounds": _text(summary.get("rounds", last) if run.trains else None),
        "status": _status(run, last),
        "clients": _text(summary.get("num_clients", None if clients is None else len(clients))),
        "time": duration(total),
        "a round": duration(per_round),
        "traffic up": _traffic(run, "bytes_up"),
        "traffic down": _traffic(run, "bytes_down"),
    }


def _status(run: Run, last: int) -> str:
    if run.finished:
        return str((run.summary or {}).get("status", "finished"))
    planned = run.settings.get("num-rounds")
    of_rounds = f", {last} of {planned} rounds" if planned and run.trains else ""
    return ("failed" if run.error else "unfinished") + of_rounds


def _best_error(run: Run) -> float | None:
    rounds, errors = run.series("test_error")
    best = run.best_round()
    measured = errors[rounds.index(best)] if best in rounds else None
    return number((run.summary or {}).get("test_error", measured))


def _ceiling(run: Run) -> float | None:
    whole = run.settings.get("supervised.label-fraction", 1.0) == 1.0
    return _best_error(run) if run.settings.get("method") in CEILINGS and whole else None


def _above(run: Run, best: float | None, ceiling: float | None) -> str:
    # Errors of labels are measured on other points.
    if ceiling is None or best is None or not run.trains:
        return NONE
    return "ceiling" if _ceiling(run) is not None else f"{best - ceiling:+.2f}"


def _task(run: Run) -> tuple[object, ...]:
    return run.settings.get("dataset"), run.settings.get("seed")


def _traffic(run: Run, key: str) -> str:
    recorded = run.series(key)[1]
    total = number((run.summary or {}).get(key, sum(recorded) if recorded else None))
    return NONE if total is None else format_bytes(total)


def settings_rows(
    runs: Sequence[Run], columns: Sequence[str]
) -> tuple[list[dict[str, str]], list[int]]:
    """All settings of any run, shared ones first, with a column of values for each run.

    Returns
    -------
    The rows, and the positions of those of note: of one run what is not the default, of several
    what differs between the runs that have the setting.
    """
    defaults, rows, of_note = default_flat(), [], []
    names = {name for run in runs for name in run.settings}
    for row, name in enumerate(sorted(names, key=lambda name: ("." in name, name))):
        values = [_text(run.settings[name]) if name in run.settings else NONE for run in runs]
        rows.append({"setting": name, **dict(zip(columns, values, strict=True))})
        # A table that a method does not have does not count as a difference.
        shown = set(values) - ({NONE} if "." in name else set())
        if len(runs) == 1:
            default = _text(defaults[name]) if name in defaults else None
            is_of_note = name not in RESOLVED_SETTINGS and values[0] != default
        else:
            is_of_note = len(shown) > 1
        if is_of_note and name not in LOCATION_SETTINGS:
            of_note.append(row)
    return rows, of_note


def tables_of(run: Run) -> dict[str, Any]:
    """Tables of one run, below the common figures."""
    clients = run.federation.clients if run.federation is not None else ()
    shape, names = run.data.get("input_shape"), run.data.get("class_names")
    accuracies = client_accuracies(run)
    return {
        "points": _points(shape) if isinstance(shape, list) else "",
        "test_prior": _test_prior(run),
        "prior_fit": prior_fit_in_words(run.summary or {}),
        "class_names": [str(name) for name in names] if isinstance(names, list) else [],
        "directory": str(run.directory),
        "chosen": _CHOSEN.get(str(run.settings.get("selection")), "without test data"),
        "finished": run.finished,
        "error": run.error,
        "trains": run.trains,
        "sources": _sources(run.labels or {}),
        "warnings": [str(warning) for warning in (run.summary or {}).get("warnings", ())],
        "measures": _filled(measure_rows(run)),
        "personal": _filled(personal_rows(run)),
        "classes": class_rows(run),
        "rounds": run.metrics[-1]["round"] if run.metrics else 0,
        "clients": _filled([_client(client, accuracies.get(client.id)) for client in clients]),
        "incidents": incidents_in_words(incidents(run.metrics) | (run.summary or {})),
        "dropped": [row for row, one in enumerate(clients) if one.status == "dropped"],
        "environment": _flat(run.environment or {}),
        "owners": _owners(run, clients),
    }


def _owners(run: Run, clients: Sequence[ClientRecord]) -> dict[str, Any] | None:
    """What a run among owners asked of them, and who saw what; None for a simulation."""
    if run.disclosures is None:
        return None
    method = METHODS.get(str(run.settings.get("method")))
    try:
        sent = [
            {
                "what left each owner": str(entry["what"]),
                "who sees it": str(entry["reader"]),
                "when": str(entry["often"]),
            }
            for entry in run.disclosures["sent"]
        ]
        unprotected = [str(sentence) for sentence in run.disclosures["unprotected"]]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{run.directory / 'disclosures.json'} is damaged: {error}.", "file-damaged"
        ) from None
    return {
        "method": str(run.settings.get("method")),
        "line": method.line if method else "",
        "needs": method.needs if method else "",
        "names": [
            {
                "owner": client.name or f"client {client.id}",
                "client": str(client.id),
                "points": _text(client.num_points),
                "status": client.status,
            }
            for client in clients
        ],
        "sent": sent,
        "unprotected": unprotected,
        "settings": str(run.disclosures.get("settings", "")),
    }


def _points(shape: list[int]) -> str:
    kind = "images of" if len(shape) > 1 else "vectors of length"
    return f"{kind} {' × '.join(map(str, shape))}"


def _sources(scores: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row per source of labels: number of points and scores."""
    return [
        {
            "labels": source_in_words(name, scores["points"]),
            "points": f"{source['points']:,}",
            "right (%)": f"{100 - source['error']:.2f}",
            "right, mean over classes (%)": f"{source['balanced_accuracy']:.2f}",
            "without a label (%)": f"{source['unreached']:.2f}",
        }
        for name, source in scored_sources(scores).items()
    ]


def _test_prior(run: Run) -> str:
    """Class priors of a finished run, with ``em`` also the estimated ones; or an empty text."""
    summary = run.summary or {}
    if summary.get("test_prior_source") in (None, "uniform"):
        return ""
    values = summary.get("test_prior_estimate", summary.get("test_prior"))
    words = f"{summary['test_prior_source']}: " + ", ".join(f"{p:.3g}" for p in values or ())
    reweighed = number(summary.get("test_error_reweighed"))
    return words if reweighed is None else f"{words}; test error re-weighed {reweighed:.2f} %"


def _client(client: ClientRecord, accuracy: float | None) -> dict[str, str]:
    sizes, condition = client.set_sizes, client.condition_number
    return {
        "client": f"{client.id} ({client.name})" if client.name else str(client.id),
        "points": _text(client.num_points),
        "sets": NONE if sizes is None else str(len(sizes)),
        "labels": NONE if client.labeled_counts is None else str(sum(client.labeled_counts)),
        "estimated accuracy (%)": _percent(accuracy),
        "priors": NONE if client.priors is None else "shared",
        "condition number": NONE if condition is None else f"{condition:.3g}",
        "status": client.status,
        "reason": client.reason or NONE,
    }


def personal_rows(run: Run) -> list[dict[str, str]]:
    """One row per client of a simulation: errors of the global and of its personal model."""
    try:
        return [
            {
                "client": str(row["client"]),
                "global, test points (%)": _percent(number(row.get("global_test_error"))),
                "personal, test points (%)": _percent(number(row.get("test_error"))),
                "global, labels set aside (%)": _percent(number(row["global_error"])),
                "personal, labels set aside (%)": _percent(number(row["error"])),
                "labels set aside": str(row["labels_aside"] or NONE),
                "differs": "yes" if row["differs"] else row["missing"] or "no",
            }
            for row in (run.personal or {"clients": []})["clients"]
        ]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{run.directory / 'personal.json'} is damaged: {error}.", "run-file-wrong"
        ) from None


def _filled(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """``rows`` without columns that are empty in all rows."""
    return [
        {name: value for name, value in row.items() if any(other[name] != NONE for other in rows)}
        for row in rows
    ]


def _flat(values: dict[str, Any], prefix: str = "") -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append({"name": f"{prefix}{name}", "value": _text(value)})
    return rows


def _text(value: object) -> str:
    if value is None:
        return NONE
    if isinstance(value, str):
        return value if value else '""'
    return json.dumps(value, ensure_ascii=False)


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


_TABLE, _TRIALS, _PICTURE = "comparison.md", "trials.csv", "comparison.png"
_TRIAL_COLUMNS = {
    "run": "run",
    "seed": "seed",
    "status": "status",
    "test_error": "error (%)",
    "best_round": "best round",
    "directory": "directory",
}


def is_comparison(directory: Path) -> bool:
    """Whether the directory has the files of a comparison."""
    return all((directory / name).is_file() for name in (_TABLE, _TRIALS))


def read_comparison(directory: Path) -> dict[str, Any]:
    """Read ``comparison.md``, ``trials.csv`` and ``comparison.png``.

    Returns
    -------
    The comparison's ``name``; the ``rows`` of its table, and which of them are among the ``best``;
    ``notes`` in two groups, on the meaning of the table, and on its conditions; ``trials``; a
    sentence on their ``seeds``; and the ``picture``, if there is one.
    """
    try:
        text = regular_file(directory / _TABLE).read_text(encoding="utf-8")
        with regular_file(directory / _TRIALS).open(encoding="utf-8", newline="") as file:
            trials = [
                {words: read_cell(row.get(key) or NONE) for key, words in _TRIAL_COLUMNS.items()}
                for row in csv.DictReader(file)
            ]
        for row in trials:
            error = row[_TRIAL_COLUMNS["test_error"]]
            row[_TRIAL_COLUMNS["test_error"]] = error if error == NONE else f"{float(error):.2f}"
        picture = directory / _PICTURE
        shown = _png(picture.read_bytes()) if picture.is_file() else None
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(
            f"Cannot read the comparison in {directory}: {error}.", "file-damaged"
        ) from error
    above, _, below = text.partition("\n## ")
    lines = [line for line in above.splitlines() if line.startswith("|")]
    if len(lines) < 3:
        raise UserError(f"{directory / _TABLE} holds no table.", "file-damaged")
    head, _, *rows = map(_split, lines)
    return {
        "name": directory.resolve().name,
        "rows": [dict(zip(map(_plain, head), map(_plain, row), strict=False)) for row in rows],
        "best": [at for at, row in enumerate(rows) if any(c.startswith("**") for c in row)],
        "notes": (_notes(above), _notes(below)),
        "trials": trials,
        "seeds": _seeds_in_words(trials),
        "picture": shown,
    }


def _seeds_in_words(trials: Sequence[Mapping[str, str]]) -> str:
    """Whether all runs finished the same seeds, and else which each has."""
    seeds: dict[str, list[str]] = {row["run"]: [] for row in trials}
    for row in trials:
        if row["status"] == "finished":
            seeds[row["run"]].append(row["seed"])
    if len({frozenset(of_run) for of_run in seeds.values()}) == 1:
        return "Every run had the same seeds."
    each = "; ".join(f"{run}: {', '.join(of_run) or 'none'}" for run, of_run in seeds.items())
    return f"Runs have different seeds. {each}."


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _notes(text: str) -> list[str]:
    return [_plain(line[2:]) for line in text.splitlines() if line.startswith("- ")]


def _plain(markdown: str) -> str:
    """Text without marks of emphasis and code, and without escapes."""
    return re.sub(r"\\(.)|[*`]", lambda match: match[1] or "", markdown)


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
}
_COMPARED = (
    "Left: the mean over seeds after each round, with a band of one standard deviation, for runs "
    "that train. Right: the result of every seed, with mean and standard deviation of each run."
)
_OVER_ROUNDS = ("error", "loss")
_PIXELS_PER_POINT = 94 / 72  # a little smaller than CSS's 96


def report(dirs: list[Path], output: Path | None = None) -> Path:
    """Redraw the plots of runs and write one HTML page about them.

    Parameters
    ----------
    dirs : output directories of runs, finished or not, or that of one comparison.
    output : the page; by default ``report.html`` in the one directory, or in the folder that
        several runs share. The working directory takes the place of the root of the file system.

    Returns
    -------
    The page. It needs no other file and no network, as it contains the figures.
    """
    if not dirs:
        raise UserError("A report needs the directory of at least one run.", "run-missing")
    compared = [directory for directory in dirs if is_comparison(directory)]
    if compared and len(dirs) > 1:
        raise UserError(
            f"{compared[0]} is a comparison, which has a page of its own: name it alone.",
            "argument-not-allowed",
        )
    target = output_file(output, dirs, ".html") if output else None
    if output is None:
        shared = Path(os.path.commonpath([path.absolute() for path in dirs]))
        output = (dirs[0] if len(dirs) == 1 else shared) / "report.html"
        if output.parent == output.parent.parent:
            output = Path(output.name)
    if compared:
        page = render("report_comparison.html.template.md", **read_comparison(dirs[0]))
    else:
        page = _page([read_run(path) for path in dirs])
    write_atomically(target or output, page)
    return output


def _page(runs: Sequence[Run]) -> str:
    figures = [run_figures(run) for run in runs]
    for run, drawn in zip(runs, figures, strict=True):
        save_plots(drawn, run.directory / "plots")
    labels = distinct_labels(runs)
    several = len(runs) > 1
    settings, of_note = settings_rows(runs, labels if several else ["value"])
    rows = summaries(runs)
    return render(
        "report.html.template.md",
        title=f"{len(runs)} runs" if several else labels[0],
        labels=labels,
        summaries=[{"run": label} | row for label, row in zip(labels, rows, strict=True)]
        if several
        else rows,
        begun=[_begun(run) for run in runs],
        tested=any(run.series("test_error")[0] for run in runs),
        labels_points=not all(run.trains for run in runs),
        over_rounds=pictures(_over_rounds(runs, figures)),
        settings=settings,
        told=[settings[row] for row in of_note],
        differing=of_note if several else [],
        sections=[
            tables_of(run) | {"figures": pictures(_of_one_run(drawn))}
            for run, drawn in zip(runs, figures, strict=True)
        ],
    )


def _begun(run: Run) -> str:
    """When a run began, and Flower's number of it, as far as they were recorded."""
    environment = run.environment or {}
    words = {"started": "Started", "flower_run": "Flower's run"}
    return ", ".join(f"{words[key]} {environment[key]}" for key in words if environment.get(key))


def render(template: str, **values: Any) -> str:
    """A page from a template beside this file."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values)


def _over_rounds(runs: Sequence[Run], figures: Sequence[Mapping[str, Figure]]) -> dict[str, Figure]:
    """Errors and losses, with several runs in common figures."""
    if len(runs) == 1:
        return {name: figures[0][name] for name in _OVER_ROUNDS if name in figures[0]}
    drawn = {}
    if any(map(has_error, runs)):
        drawn["error"] = error_figure(runs)
    if any(map(has_loss, runs)):
        drawn["loss"] = loss_figure(runs)
    return drawn


def _of_one_run(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """Figures of a single run; those of its labels, which are its outcome, come first."""
    names = [name for name in figures if name not in _OVER_ROUNDS]
    names.sort(key=lambda name: not name.startswith("label_"))
    return {name: figures[name] for name in names}


def pictures(figures: Mapping[str, Figure]) -> list[dict[str, Any]]:
    """Figures as a page has them, with the captions of their names."""
    return [
        {
            "src": _address("svg+xml", draw_svg(figure)),
            "width": round(72 * figure.get_figwidth() * _PIXELS_PER_POINT),
            "alt": re.sub(r"\s+", " ", figure.get_suptitle()),
            "caption": _CAPTIONS[name],
        }
        for name, figure in figures.items()
    ]


def _png(png: bytes) -> dict[str, Any]:
    return {
        "src": _address("png", png),
        # Bytes 16 to 19 of a PNG are its width in pixels.
        "width": round(int.from_bytes(png[16:20]) * 72 * _PIXELS_PER_POINT / DPI),
        "alt": "Test error over rounds and at the end, of every run",
        "caption": _COMPARED,
    }


def _address(kind: str, picture: bytes) -> str:
    """A figure as ``data:`` address, which needs no other file."""
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode("ascii")
