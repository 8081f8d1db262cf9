"""Content of a report's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedul_flwr.config.methods import METHOD_NOTES
from fedul_flwr.config.run_config import PLACE_SETTINGS, RESOLVED_SETTINGS, default_flat
from fedul_flwr.data.run_files.incidents import incidents, incidents_in_words
from fedul_flwr.data.run_files.label_names import scored_sources, source_in_words
from fedul_flwr.data.run_files.records import Client, Run, number
from fedul_flwr.errors import UserError
from fedul_flwr.results.measure_plots import client_accuracies
from fedul_flwr.results.printed_summary import duration, format_bytes, prior_fit_in_words
from fedul_flwr.results.report_measures import NONE, class_rows, measure_cells, measure_rows

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
    known = run.summary or {}
    last = run.metrics[-1]["round"] if run.metrics else 0
    clients = run.federation.clients if run.federation is not None else None
    errors, best = run.series("test_error")[1], _best_error(run)
    seconds = run.series("seconds")[1]
    total = number(known.get("seconds_total", sum(seconds) if seconds else None))
    per_round = number(known.get("seconds_per_round", total / last if total and last else None))
    return {
        heading: _percent(best),
        "above ceiling": _above(run, best, ceiling),
        "error, last round (%)": _percent(
            number(known.get("final_test_error", errors[-1] if errors else None))
        ),
        **measure_cells(known, "balanced_accuracy", "auc", "ece"),
        "best round": _text(run.best_round()),
        "rounds": _text(known.get("rounds", last) if run.trains else None),
        "status": _status(run, last),
        "clients": _text(known.get("num_clients", None if clients is None else len(clients))),
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
    if (
        ceiling is None or best is None or not run.trains
    ):  # errors of labels are measured on other points
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
        if is_of_note and name not in PLACE_SETTINGS:
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
        "classes": class_rows(run),
        "rounds": run.metrics[-1]["round"] if run.metrics else 0,
        "clients": _filled([_client(client, accuracies.get(client.id)) for client in clients]),
        "incidents": incidents_in_words(incidents(run.metrics) | (run.summary or {})),
        "dropped": [row for row, one in enumerate(clients) if one.status == "dropped"],
        "environment": _flat(run.environment or {}),
        "owners": _owners(run, clients),
    }


def _owners(run: Run, clients: Sequence[Client]) -> dict[str, Any] | None:
    """What a run among owners asked of them, and who saw what; None for a simulation.

    Raises
    ------
    UserError
        If ``disclosures.json`` is not as a run writes it.
    """
    if run.disclosures is None:
        return None
    note = METHOD_NOTES.get(str(run.settings.get("method")))
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
        raise UserError(f"{run.directory / 'disclosures.json'} is damaged: {error}.") from None
    return {
        "method": str(run.settings.get("method")),
        "line": note.line if note else "",
        "needs": note.needs if note else "",
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
            "points": f"{found['points']:,}",
            "right (%)": f"{100 - found['error']:.2f}",
            "right, mean over classes (%)": f"{found['balanced_accuracy']:.2f}",
            "without a label (%)": f"{found['unreached']:.2f}",
        }
        for name, found in scored_sources(scores).items()
    ]


def _test_prior(run: Run) -> str:
    """Class priors of a finished run, with ``em`` also the estimated ones; or an empty text."""
    known = run.summary or {}
    if known.get("test_prior_source") in (None, "uniform"):
        return ""
    values = known.get("test_prior_estimate", known.get("test_prior"))
    words = f"{known['test_prior_source']}: " + ", ".join(f"{p:.3g}" for p in values or ())
    reweighed = number(known.get("test_error_reweighed"))
    return words if reweighed is None else f"{words}; test error re-weighed {reweighed:.2f} %"


def _client(client: Client, accuracy: float | None) -> dict[str, str]:
    sizes = client.set_sizes
    return {
        "client": f"{client.id} ({client.name})" if client.name else str(client.id),
        "points": _text(client.num_points),
        "sets": NONE if sizes is None else str(len(sizes)),
        "labels": NONE if client.labeled_counts is None else str(sum(client.labeled_counts)),
        "accuracy (%)": _percent(accuracy),
        "priors": NONE if client.priors is None else "shared",
        "condition number": NONE
        if client.condition_number is None
        else f"{client.condition_number:.3g}",
        "status": client.status,
        "reason": client.reason or NONE,
    }


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
