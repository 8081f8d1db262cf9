"""The metrics of the papers' tables, and what a run has of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedul_flwr.data.run_files.label_files import LEFT_OUT, LOCAL_LP, NETWORK, XCLP
from fedul_flwr.data.run_files.records import number
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.run.summary import RELEASED_DOWN, SHARES

Of = Callable[[pd.DataFrame], pd.Series]


def _first(*keys: str) -> Of:
    """Of each run the first of ``keys`` that it has."""
    return lambda runs: runs.reindex(columns=list(keys)).astype(float).bfill(axis=1).iloc[:, 0]


def _megabytes(runs: pd.DataFrame) -> pd.Series:
    return (_first("bytes_up")(runs) + _first("bytes_down")(runs)) / 1e6


def _balanced(source: str) -> str:
    return f"balanced_accuracy_{source}"


_NOT_RUN = _first("measured by a benchmark")


@dataclass(frozen=True)
class Metric:
    """A metric of a paper's table.

    Attributes
    ----------
    heading : name and unit.
    digits : number of digits after the point.
    of : takes the metric from the table of runs, NaN where a run does not have it. No run has one
        that a benchmark measures.
    """

    heading: str
    digits: int
    of: Of = _NOT_RUN


METRICS: Mapping[str, Metric] = {
    "test-error": Metric("test error (%)", 2, _first("test_error")),
    **{
        f"test-error-{i}": Metric(f"test error, share {i} (%)", 2, _first(f"test_error_share_{i}"))
        for i in range(1, 6)
    },
    "accuracy": Metric("accuracy (%)", 2, lambda runs: 100 - _first("test_error")(runs)),
    "s2c": Metric("S2C (%)", 0, _first("nonzero_down_percent", "percent_down")),
    "c2s": Metric("C2S (%)", 0, _first("nonzero_up_percent", "percent_up")),
    "s2c-release": Metric("S2C as released (%)", 0, _first(RELEASED_DOWN)),
    "start-error": Metric("test error before round 1 (%)", 2, _first("start_test_error")),
    "last-error": Metric("test error of the last round (%)", 2, _first("last_test_error")),
    "seconds": Metric("seconds", 0, _first("seconds")),
    "steps": Metric("steps of a client and round", 0, _first("steps")),
    "megabytes": Metric("traffic (MB)", 1, _megabytes),
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
price. ``megabytes`` is all that was sent in both directions. ``test-error-1`` to ``-5`` are the
model's errors on five equal shares of the test points, as FedUL's table 2 has one a client."""


def metrics_of(run: Run) -> dict[str, float]:
    """All values of a finished run that a metric may need.

    ``test_error`` is the error of the round that the run chose, ``last_test_error`` that of the
    last round, and ``lowest_test_error`` the lowest of all rounds (percent). Traffic is in percent
    of a dense model, balanced accuracies of labels in percent.
    """
    summary = run.outcome
    _, errors = run.series("test_error")
    _, labeled = run.series("labeled_error")
    _, steps = run.series("steps")
    metrics = {
        "test_error": summary.test_error,
        "chosen_round": summary.best_round,
        "start_test_error": summary.start_test_error,
        "last_test_error": summary.final_test_error,
        "lowest_test_error": min(errors, default=None),
        "labeled_error": labeled[-1] if labeled else None,
        "steps": float(np.mean(steps)) if steps else None,
        **{key: run.figure(key) for key in (*SHARES, RELEASED_DOWN, "bytes_up", "bytes_down")},
    }
    for i, error in enumerate(summary.test_error_by_share or (), 1):
        metrics[f"test_error_share_{i}"] = error
    for source, score in run.labels.sources.items():
        metrics[_balanced(source)] = score.balanced_accuracy
    return {key: value for key, raw in metrics.items() if (value := number(raw)) is not None}
