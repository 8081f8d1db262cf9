"""How good labels are where the truth is known; free of Flower."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedul_flwr.data.types import UNLABELED, Floats, Ints


class Score(NamedTuple):
    """Of labels against the truth.

    Attributes
    ----------
    points : number of points with a known truth.
    error : percent of them labelled wrongly or not at all.
    balanced_accuracy : mean over classes that occur of the percent of their points labelled
        rightly.
    unreached : percent without a label.
    """

    points: int
    error: float
    balanced_accuracy: float
    unreached: float


def score(labels: Ints, truth: Ints) -> Score | None:
    """Compare ``(n,)`` labels with the truth, -1 where either is not known; None without truth."""
    known = truth != UNLABELED
    if not known.any():
        return None
    labels, truth = labels[known], truth[known]
    right = labels == truth
    present = np.unique(truth)
    recalls = [right[truth == k].mean() for k in present]
    return Score(
        points=len(truth),
        error=100 * float(1 - right.mean()),
        balanced_accuracy=100 * float(np.mean(recalls)),
        unreached=100 * float((labels == UNLABELED).mean()),
    )


def risk_coverage(confidence: Floats, right: Floats, at: int = 100) -> tuple[Floats, Floats]:
    """Error among the most confident points, for growing shares of all of them.

    Parameters
    ----------
    confidence, right : ``(n,)``, n > 0; whether a label is right, as 0 or 1.
    at : number of shares.

    Returns
    -------
    Shares of points in (0, 1], and percent wrong among that share; points of equal confidence
    count by their mean, for their order says nothing.
    """
    order = np.argsort(-confidence, kind="stable")
    _, group, sizes = np.unique(-confidence[order], return_inverse=True, return_counts=True)
    expected = np.bincount(group, right[order]) / sizes
    found = np.cumsum(expected[group])
    counts = np.unique(np.ceil(np.linspace(0, 1, at + 1)[1:] * len(order)).astype(np.int64))
    return counts / len(order), 100 * (1 - found[counts - 1] / counts)
