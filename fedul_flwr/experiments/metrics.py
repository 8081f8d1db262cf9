"""The metrics of the papers' tables, and what a run has of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedul_flwr.data.run_files.label_files import LEFT_OUT, LOCAL_LP, NETWORK, XCLP
from fedul_flwr.data.run_files.records import number
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.run.summary import RELEASED_DOWN, SHARES


class Metric(NamedTuple):
    """A metric of a paper's table: its name with the unit, digits after the point, and figures.

    A run has the first of the figures ``of`` that it has; without any a benchmark measures it.
    """

    heading: str
    digits: int
    of: tuple[str, ...] = ()

    def values(self, runs: pd.DataFrame) -> pd.Series:
        """The metric of each line of the table of runs, NaN where a run does not have it."""
        keys = dict.fromkeys(["test_error", "bytes_up", "bytes_down", *self.of])
        some = runs.reindex(columns=[*keys]).astype(float)
        some["accuracy"] = 100 - some["test_error"]
        some["megabytes"] = (some["bytes_up"] + some["bytes_down"]) / 1e6
        return some.reindex(columns=[*self.of, "none"]).bfill(axis="columns").iloc[:, 0]


def _balanced(source: str) -> str:
    return f"balanced_accuracy_{source}"


METRICS: Mapping[str, Metric] = {
    "test-error": Metric("test error (%)", 2, ("test_error",)),
    **{
        f"test-error-{i}": Metric(f"test error, share {i} (%)", 2, (f"test_error_share_{i}",))
        for i in range(1, 6)
    },
    "accuracy": Metric("accuracy (%)", 2, ("accuracy",)),
    "s2c": Metric("S2C (%)", 0, ("nonzero_down_percent", "percent_down")),
    "c2s": Metric("C2S (%)", 0, ("nonzero_up_percent", "percent_up")),
    "s2c-release": Metric("S2C as released (%)", 0, (RELEASED_DOWN,)),
    "start-error": Metric("test error before round 1 (%)", 2, ("start_test_error",)),
    "last-error": Metric("test error of the last round (%)", 2, ("last_test_error",)),
    "seconds": Metric("seconds", 0, ("seconds",)),
    "steps": Metric("steps of a client and round", 0, ("steps",)),
    "megabytes": Metric("traffic (MB)", 1, ("megabytes",)),
    "labeled-error": Metric("error on labeled points (%)", 2, ("labeled_error",)),
    "balanced-accuracy": Metric("balanced accuracy (%)", 2, (_balanced(LEFT_OUT), _balanced(XCLP))),
    "balanced-accuracy-alone": Metric("within each client (%)", 2, (_balanced(LOCAL_LP),)),
    "balanced-accuracy-network": Metric("the model itself (%)", 2, (_balanced(NETWORK),)),
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
