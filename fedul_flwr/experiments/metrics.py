"""The metrics of the papers' tables, computed from the files of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedul_flwr.data.run_files.label_names import LEFT_OUT, LOCAL_LP, NETWORK, XCLP
from fedul_flwr.data.run_files.records import Run, number
from fedul_flwr.run.summary import RELEASED_DOWN, SHARES

Values = Mapping[str, float]


@dataclass(frozen=True)
class Metric:
    """A metric of a paper's table.

    Attributes
    ----------
    heading : name and unit.
    digits : number of digits after the point.
    of : takes the metric from the result of :func:`metrics_of`, or gives None if the run does not
        have it. A metric without ``of`` is measured by a benchmark.
    """

    heading: str
    digits: int
    of: Callable[[Values], float | None] | None = None


def _first(*keys: str) -> Callable[[Values], float | None]:
    """The first of ``keys`` that the run has."""
    return lambda values: next((values[key] for key in keys if key in values), None)


def _accuracy(values: Values) -> float | None:
    error = values.get("test_error")
    return None if error is None else 100 - error


def _balanced(source: str) -> str:
    return f"balanced_accuracy_{source}"


METRICS: Mapping[str, Metric] = {
    "test-error": Metric("test error (%)", 2, _first("test_error")),
    "accuracy": Metric("accuracy (%)", 2, _accuracy),
    "s2c": Metric("S2C (%)", 0, _first("nonzero_down_percent", "percent_down")),
    "c2s": Metric("C2S (%)", 0, _first("nonzero_up_percent", "percent_up")),
    "s2c-release": Metric("S2C as released (%)", 0, _first(RELEASED_DOWN)),
    "labeled-error": Metric("error on labeled points (%)", 2, _first("labeled_error")),
    "balanced-accuracy": Metric(
        "balanced accuracy (%)", 2, _first(_balanced(LEFT_OUT), _balanced(XCLP))
    ),
    "balanced-accuracy-alone": Metric("within each client (%)", 2, _first(_balanced(LOCAL_LP))),
    "balanced-accuracy-network": Metric("the model itself (%)", 2, _first(_balanced(NETWORK))),
    "epoch-seconds": Metric("seconds an epoch", 2),
    "gflops": Metric("forward FLOPs (G)", 3),
}
"""Metrics by their names in the tables' files. S2C and C2S are FedMatch's traffic from and to the
server: values that were sent because they changed, in percent of a dense model per client;
``s2c-release`` counts as its authors' code, where a client's first exchange costs a later one's
price."""


def metrics_of(run: Run) -> dict[str, float]:
    """All values of a finished run that a metric may need.

    ``test_error`` is the error of the round that the run chose, ``last_test_error`` that of the
    last round, and ``lowest_test_error`` the lowest of all rounds (percent). Traffic is in percent
    of a dense model, balanced accuracies of labels in percent.
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
        **{key: summary.get(key) for key in (*SHARES, RELEASED_DOWN)},
    }
    for source, score in ((run.labels or {}).get("sources") or {}).items():
        found[_balanced(source)] = score.get("balanced_accuracy")
    return {key: value for key, given in found.items() if (value := number(given)) is not None}
