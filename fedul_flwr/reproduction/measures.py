"""What the papers' tables measure, worked out of what a run leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedul_flwr.results.label_names import LEFT_OUT, LOCAL_LP, NETWORK, XCLP
from fedul_flwr.results.records import Run, number
from fedul_flwr.results.summary import SHARES

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Measure:
    """One kind of figure.

    Attributes
    ----------
    heading : with its unit.
    digits : after the point.
    of : takes it from :func:`figures_of`'s figures, giving None where the run has it not; without
        it a benchmark measures the figure, and no run.
    """

    heading: str
    digits: int
    of: Callable[[Figures], float | None] | None = None


def _plain(*keys: str) -> Callable[[Figures], float | None]:
    """The first of ``keys`` that is there."""
    return lambda figures: next((figures[key] for key in keys if key in figures), None)


def _accuracy(figures: Figures) -> float | None:
    error = figures.get("test_error")
    return None if error is None else 100 - error


def _balanced(source: str) -> str:
    return f"balanced_accuracy_{source}"


MEASURES: Mapping[str, Measure] = {
    "test-error": Measure("test error (%)", 2, _plain("test_error")),
    "accuracy": Measure("accuracy (%)", 2, _accuracy),
    "s2c": Measure("S2C (%)", 0, _plain("nonzero_down_percent", "percent_down")),
    "c2s": Measure("C2S (%)", 0, _plain("nonzero_up_percent", "percent_up")),
    "labeled-error": Measure("error on labeled points (%)", 2, _plain("labeled_error")),
    "balanced-accuracy": Measure(
        "balanced accuracy (%)", 2, _plain(_balanced(LEFT_OUT), _balanced(XCLP))
    ),
    "balanced-accuracy-alone": Measure("within each client (%)", 2, _plain(_balanced(LOCAL_LP))),
    "balanced-accuracy-network": Measure("the model itself (%)", 2, _plain(_balanced(NETWORK))),
    "epoch-seconds": Measure("seconds an epoch", 2),
    "gflops": Measure("forward FLOPs (G)", 3),
}
"""By the name that a table's file has for it. FedMatch counts values that were sent because
they differ, in percent of a dense model for each client: S2C from the server, C2S to it."""


def figures_of(run: Run) -> dict[str, float]:
    """All figures of a finished run that a table may need.

    ``test_error`` is of the round that the run chose, ``last_test_error`` of the last,
    ``lowest_test_error`` of the best by the test set itself (percent); traffic is in percent of a
    dense model, balanced accuracies of labels in percent.
    """
    summary = run.summary or {}
    _, errors = run.series("test_error")
    _, labeled = run.series("labeled_error")
    found = {
        "test_error": summary.get("test_error"),
        "chosen_round": summary.get("best_round"),
        "last_test_error": summary.get("final_test_error"),
        "lowest_test_error": min(errors, default=None),
        "labeled_error": labeled[-1] if labeled else None,
        **{key: summary.get(key) for key in SHARES},
    }
    for source, score in ((run.labels or {}).get("sources") or {}).items():
        found[_balanced(source)] = score.get("balanced_accuracy")
    return {key: value for key, given in found.items() if (value := number(given)) is not None}
