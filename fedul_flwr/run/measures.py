"""Measures of class predictions on labeled points; pure functions of arrays.

Errors, accuracies, recalls, precisions and the calibration error are in percent, AUC is between 0
and 1, NLL is in nats, and the Brier score is between 0 and 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedul_flwr.data.types import Floats, Ints

BINS = 15
"""Bins of equal width in which confidences are compared with accuracies (Guo et al. 2017)."""
DETAILS = ("confusion", "reliability")
"""Entries of :func:`measures` that a run writes to ``measures.json``, not to its summary."""
NUMBERS = ("error", "balanced_accuracy", "auc", "ece", "nll", "brier")
"""Entries of :func:`measures` that are one number."""

Measured = dict[str, Any]


def measures(probabilities: Floats, labels: Ints) -> Measured:
    """All measures of predictions: a point gets the class of its largest probability.

    Parameters
    ----------
    probabilities : ``(n, K)``, n > 0.
    labels : ``(n,)``, true labels in 0 … K − 1.

    Returns
    -------
    ``points`` (n); ``error``; ``balanced_accuracy``; ``auc``; ``ece``, ``nll``, ``brier``; lists
    ``recall`` and ``precision`` of all classes; ``confusion`` and ``reliability``. None stands for
    a value that is not defined; without finite probabilities that is so for all that need them.

    Examples
    --------
    >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.2, 0.8]])
    >>> found = measures(probabilities, np.array([0, 0, 1, 1]))
    >>> found["error"], found["recall"], found["confusion"]
    (25.0, [100.0, 50.0], [[2, 0], [1, 1]])
    """
    num_classes = probabilities.shape[1]
    predicted = probabilities.argmax(axis=1)
    matrix = confusion(labels, predicted, num_classes)
    measured: Measured = {
        "points": len(labels),
        "error": 100 * float(np.mean(predicted != labels)),
        **per_class(matrix),
        **dict.fromkeys(("auc", "ece", "nll", "brier", "reliability")),
        "confusion": matrix.tolist(),
    }
    if np.isfinite(probabilities).all():
        bins = reliability(probabilities.max(axis=1), predicted == labels)
        measured |= {
            "auc": auc(probabilities, labels),
            "ece": calibration_error(bins),
            "nll": nll(probabilities, labels),
            "brier": brier(probabilities, labels),
            "reliability": {name: defined(values) for name, values in bins.items()},
        }
    return measured


def confusion(labels: Ints, predicted: Ints, num_classes: int) -> Ints:
    """Number of points of each class (row) that were named each class (column).

    Parameters
    ----------
    labels, predicted : ``(n,)``, true and predicted labels; a prediction of −1 is none.

    Returns
    -------
    ``(K, K)``, or ``(K, K + 1)`` if a prediction is missing: the last column counts these.

    Examples
    --------
    >>> confusion(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), num_classes=2).tolist()
    [[2, 0], [1, 1]]
    >>> confusion(np.array([0, 1]), np.array([0, -1]), num_classes=2).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    width = num_classes + bool((predicted < 0).any())
    columns = np.where(predicted < 0, num_classes, predicted)
    counts = np.bincount(labels * width + columns, minlength=num_classes * width)
    return np.asarray(counts.reshape(num_classes, width), dtype=np.int64)


def recalls(matrix: Ints) -> Floats:
    """``(K,)`` percent of the points of each class that were named it; NaN for an absent class."""
    return _percent(matrix.diagonal(), matrix.sum(axis=1))


def precisions(matrix: Ints) -> Floats:
    """``(K,)`` percent of the points named each class that are of it; NaN if none was named it."""
    return _percent(matrix.diagonal(), matrix[:, : len(matrix)].sum(axis=0))


def balanced_accuracy(matrix: Ints) -> float | None:
    """Mean recall in percent over the classes that occur; None if none does."""
    of_present = recalls(matrix)[matrix.sum(axis=1) > 0]
    return float(of_present.mean()) if len(of_present) else None


def prior_error(matrix: Ints, prior: Floats) -> float | None:
    """Error in percent of points with class priors ``prior``, by the errors in each class.

    Classes without points are left out: the mean is over the classes that occur.

    Parameters
    ----------
    matrix : ``(K, K)`` or ``(K, K + 1)``, from :func:`confusion`.
    prior : ``(K,)``, all positive.

    Returns
    -------
    Σ_k pi_k (100 - recall_k) / Σ_k pi_k; None if no class occurs.
    """
    occurs = matrix.sum(axis=1) > 0
    if not occurs.any():
        return None
    return float(np.average(100 - recalls(matrix)[occurs], weights=prior[occurs]))


def per_class(matrix: Ints) -> Measured:
    """``balanced_accuracy``, ``recall`` and ``precision`` of a confusion matrix."""
    return {
        "balanced_accuracy": balanced_accuracy(matrix),
        "recall": defined(recalls(matrix)),
        "precision": defined(precisions(matrix)),
    }


def auc(probabilities: Floats, labels: Ints) -> float | None:
    """Area under the ROC curve of each class against the rest, mean over the classes that occur.

    For two classes both areas are equal: it is the usual, binary AUC. None if only one class
    occurs.

    Examples
    --------
    Of the four pairs of a point of each class, three are in the right order:

    >>> probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
    >>> auc(probabilities, np.array([0, 0, 1, 1]))
    0.75
    """
    classes = np.unique(labels)
    if len(classes) < 2:
        return None
    return float(np.mean([_area(probabilities[:, k], labels == k) for k in classes]))


def _area(scores: Floats, positive: Any) -> float:
    """Share of the pairs with a positive point that have it in front; a tie is half a pair.

    It is counted with ranks: those of equal scores are their mean (Mann and Whitney 1947).
    """
    _, position, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[position]
    ours = np.count_nonzero(positive)
    ahead = ranks[positive].sum() - ours * (ours + 1) / 2
    return float(ahead / (ours * (len(scores) - ours)))


def reliability(confidence: Floats, right: Any) -> dict[str, Floats]:
    """Confidence and accuracy of the points in each of :data:`BINS` bins of their confidence.

    A bin of width w = 1 / BINS has the confidences in ((i − 1) w, i w].

    Parameters
    ----------
    confidence, right : ``(n,)``: the largest probability, and whether its class is the true one.

    Returns
    -------
    Per bin ``points``, and in percent ``confidence`` and ``accuracy``, NaN for an empty bin.
    """
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    points = np.bincount(bins, minlength=BINS)
    sums = [np.bincount(bins, weights, BINS) for weights in (confidence, right)]
    return {
        "points": points.astype(np.float64),
        **{n: _percent(s, points) for n, s in zip(("confidence", "accuracy"), sums, strict=True)},
    }


def calibration_error(bins: dict[str, Floats]) -> float:
    """Expected calibration error in percent: mean of |accuracy − confidence| over all points.

    Parameters
    ----------
    bins : from :func:`reliability`.
    """
    is_filled = bins["points"] > 0
    gaps = np.abs(bins["accuracy"] - bins["confidence"])[is_filled]
    return float(np.average(gaps, weights=bins["points"][is_filled]))


def nll(probabilities: Floats, labels: Ints) -> float:
    """Mean of −log p(true class) in nats; a probability of 0 counts as the smallest float."""
    of_truth = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(of_truth, np.finfo(np.float64).tiny)).mean())


def brier(probabilities: Floats, labels: Ints) -> float:
    """Mean over points of Σ_k (p_k − [k is the true class])²."""
    of_truth = probabilities[np.arange(len(labels)), labels]
    return float(np.mean((probabilities**2).sum(axis=1) - 2 * of_truth + 1))


def defined(values: Floats) -> list[float | None]:
    """``values`` with None for NaN, as JSON has it."""
    return [None if np.isnan(value) else float(value) for value in values]


def _percent(part: Any, whole: Any) -> Floats:
    values = np.full(len(whole), np.nan)
    return np.asarray(np.divide(100.0 * part, whole, out=values, where=whole > 0))
