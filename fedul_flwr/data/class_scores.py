"""Labels and confidences from scores of classes (XCLP, phase 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from fedul_flwr.data.types import UNLABELED, Floats, Ints, Propagated
from fedul_flwr.errors import UserError


def labels_from_scores(scores: ArrayLike, known_labels: ArrayLike | None = None) -> Propagated:
    """Label and confidence of every point (phase 3).

    The label is the class of the largest score, the first one on ties; the confidence is
    1 - entropy(z / sum z) / log K, and 1 with a single class. A row of zeros, which no label
    reaches, is labeled -1 with confidence 0, as its argmax would be arbitrary.

    Parameters
    ----------
    scores : Z, ``(n, K)``, finite, not negative; a factor of a row has no effect.
    known_labels : ``(n,)``, given labels, which stay, with confidence 1; -1 for the others.
    """
    scores = checked_scores(scores)
    num_classes = scores.shape[1]
    shares = shares_of_rows(scores)
    entropy = entr(shares).sum(axis=1)
    reached = shares.any(axis=1)
    # For uniform rows rounding can make it slightly negative.
    confidence = np.maximum(1 - entropy / np.log(num_classes), 0) if num_classes > 1 else 1.0
    confidence = np.where(reached, confidence, 0.0)
    labels = np.where(reached, shares.argmax(axis=1), UNLABELED)
    if known_labels is not None:
        checked = checked_labels(known_labels)
        if len(checked) != len(labels):
            raise UserError(
                f"{len(checked)} labels do not go with scores of {len(labels)} points",
                "points-and-labels-differ",
            )
        labels = np.where(checked != UNLABELED, checked, labels)
        confidence = np.where(checked != UNLABELED, 1.0, confidence)
    return Propagated(labels.astype(np.int64), confidence)


def checked_labels(labels: ArrayLike) -> Ints:
    """Labels ``(n,)`` as int64; refuses values that are neither a class nor -1.

    Examples
    --------
    >>> checked_labels([0, -2])
    Traceback (most recent call last):
    fedul_flwr.errors.UserError: label -2 is neither a class from 0 nor -1 for unlabeled
    """
    checked = np.asarray(labels)
    if checked.size == 0:
        checked = checked.astype(np.int64)
    if checked.ndim != 1 or checked.dtype.kind not in "iu":
        raise UserError(
            f"labels are {checked.dtype} {checked.shape}; they must be integers, (points,)",
            "labels-type",
        )
    classes: Ints = checked.astype(np.int64)
    if classes.min(initial=UNLABELED) < UNLABELED:
        raise UserError(
            f"label {classes.min()} is neither a class from 0 nor -1 for unlabeled", "labels-wrong"
        )
    return classes


def checked_scores(scores: ArrayLike) -> Floats:
    """Scores ``(n, K)`` as float64; refuses others than finite ones that are not negative."""
    checked = np.asarray(scores, dtype=np.float64)
    if (
        checked.ndim != 2
        or checked.shape[1] == 0
        or not np.isfinite(checked).all()
        or (checked < 0).any()
    ):
        raise UserError(
            "scores must be a matrix (points, classes), finite and not negative", "array-wrong"
        )
    return checked


def shares_of_rows(rows: Floats) -> Floats:
    """Rows divided by their sum; zero rows stay."""
    # Divide by the largest first: a sum of tiny or huge scores could under- or overflow.
    largest = rows.max(axis=1, keepdims=True)
    scaled: Floats = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    total = scaled.sum(axis=1, keepdims=True)
    np.divide(scaled, total, out=scaled, where=total > 0)
    return scaled
