"""A report's tables of measures: of a run's models, and of single classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedul_flwr.data.run_files.label_names import scored_sources
from fedul_flwr.data.run_files.records import Run, number

NONE = "–"
_PREDICTIONS = {
    "best": "best round",
    "unscaled": "best round, before temperature scaling",
    "reweighed": "best round, re-weighed for estimated class priors",
    "last": "last round",
}
_COLUMNS = {
    "error": ("error (%)", 2),
    "balanced_accuracy": ("balanced accuracy (%)", 2),
    "auc": ("AUC", 3),
    "ece": ("ECE (%)", 2),
    "nll": ("NLL (nats)", 3),
    "brier": ("Brier score", 3),
}


def measure_cells(measured: Mapping[str, Any], *keys: str) -> dict[str, str]:
    """Measures by their headings as text; all of them, or those of ``keys``."""
    return {
        heading: NONE if (value := number(measured.get(key))) is None else f"{value:.{digits}f}"
        for key, (heading, digits) in _COLUMNS.items()
        if not keys or key in keys
    }


def measure_rows(run: Run) -> list[dict[str, str]]:
    """One row for each kind of predictions that was measured on the test set."""
    found = run.measures or {}
    return [
        {"predictions of": words, "round": str(found[key]["round"]), **measure_cells(found[key])}
        for key, words in _PREDICTIONS.items()
        if key in found
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
            names,
            matrix,
            measured["recall"],
            measured["precision"],
            strict=True,
        )
    ]
