"""Conversion of labels to Y, and of scores Z to labels (XCLP, phase 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from fedul_flwr.data.types import UNLABELED, Floats, Ints, Propagated
from fedul_flwr.errors import UserError
from fedul_flwr.learning.class_priors import estimate_prior, uniform_prior

SHARPNESS = 6.0
SPREAD = (0.4, 0.8)
"""Limits for exp(entropy) of an estimated prior, its effective number of classes, as a fraction of
K: below the first it is used as it is, above the second a uniform prior is used. Chosen on MNIST,
like the sharpness."""


def one_hot(labels: ArrayLike, num_classes: int) -> Floats:
    """Y: a one in the column of each given label, zero rows for unlabeled points.

    Parameters
    ----------
    labels : integers ``(n,)``, classes ``0..K-1`` or -1 for unlabeled.
    num_classes : K, at least 1.

    Returns
    -------
    float64 ``(n, K)``.

    Raises
    ------
    UserError
        For invalid labels, or K < 1.
    """
    given = checked_classes(labels, num_classes)
    labeled = given != UNLABELED
    rows = np.zeros((len(given), num_classes))
    rows[labeled, given[labeled]] = 1
    return rows


def labels_from_scores(scores: ArrayLike, given: ArrayLike | None = None) -> Propagated:
    """Label and confidence of every point (phase 3).

    The label is the class of the largest score, the first one on ties; the confidence is
    1 - entropy(z / sum z) / log K, and 1 with a single class. A row of zeros, which no label
    reaches, is labeled -1 with confidence 0, as its argmax would be arbitrary.

    Parameters
    ----------
    scores : Z, ``(n, K)``, finite, not negative; a factor of a row has no effect.
    given : ``(n,)``, given labels, which stay, with confidence 1; -1 for the others.

    Raises
    ------
    UserError
        Scores or labels that are something else.
    """
    scores = _checked_scores(scores)
    num_classes = scores.shape[1]
    shares = _shares(scores)
    entropy = entr(shares).sum(axis=1)
    reached = shares.any(axis=1)
    # For uniform rows rounding can make it slightly negative.
    confidence = np.maximum(1 - entropy / np.log(num_classes), 0) if num_classes > 1 else 1.0
    confidence = np.where(reached, confidence, 0.0)
    labels = np.where(reached, shares.argmax(axis=1), UNLABELED)
    if given is not None:
        known = checked_labels(given)
        if len(known) != len(labels):
            raise UserError(f"{len(known)} labels do not go with scores of {len(labels)} points")
        labels = np.where(known != UNLABELED, known, labels)
        confidence = np.where(known != UNLABELED, 1.0, confidence)
    return Propagated(labels.astype(np.int64), confidence)


def reweigh_by_prior(scores: ArrayLike, *, sharpness: float = SHARPNESS) -> Floats:
    """Re-weigh scores of one client's points by class priors estimated from them.

    Not in the paper, and local: nothing leaves the client. Propagated scores are too uniform to be
    posteriors; their power z^sharpness, divided by its sum, is used as one. From it expectation
    maximization estimates class priors pi
    (:func:`~fedul_flwr.learning.class_priors.estimate_prior`, one pseudo point per class). An
    estimate spread over :data:`SPREAD` [1] of the classes or more is treated as noise around
    uniform priors and dropped; one spread over :data:`SPREAD` [0] or less is used as it is; between
    them it is mixed with uniform priors. The resulting labels are those of z^sharpness · pi.

    Parameters
    ----------
    scores : Z, ``(n, K)``, rows of one client's unlabeled points, finite, not negative.
    sharpness : above 0; smaller values trust the priors more.

    Returns
    -------
    ``(n, K)``, z · (K pi)^(1 / sharpness): the unchanged scores if pi is uniform. Zero rows do not
    change and are not used in the estimate.

    Raises
    ------
    UserError
        For invalid scores or sharpness.
    """
    if not 0 < sharpness < np.inf:
        raise UserError(f"the sharpness of scores is {sharpness}; it must be positive")
    found = _checked_scores(scores)
    num_classes = found.shape[1]
    reached = found.any(axis=1)
    if num_classes == 1 or not reached.any():
        return found
    posterior = _shares(_shares(found[reached]) ** sharpness)
    uniform = uniform_prior(num_classes)
    prior = estimate_prior(posterior, uniform)
    spread = np.exp(-(prior * np.log(prior)).sum()) / num_classes
    low, high = SPREAD
    doubt = np.clip((spread - low) / (high - low), 0, 1)
    prior = prior + doubt * (uniform - prior)
    return np.asarray(found * (num_classes * prior) ** (1 / sharpness))


def checked_labels(labels: ArrayLike) -> Ints:
    """Labels ``(n,)`` as int64; refuses values that are neither a class nor -1."""
    given = np.asarray(labels)
    if given.size == 0:
        given = given.astype(np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise UserError(f"labels are {given.dtype} {given.shape}; they must be integers, (points,)")
    classes: Ints = given.astype(np.int64)
    if classes.min(initial=UNLABELED) < UNLABELED:
        raise UserError(f"label {classes.min()} is neither a class from 0 nor -1 for unlabeled")
    return classes


def checked_classes(labels: ArrayLike, num_classes: int) -> Ints:
    """As :func:`checked_labels`, and also refuses labels above K - 1, and K < 1."""
    if num_classes < 1:
        raise UserError(f"there are {num_classes} classes; labels need 1 or more")
    given = checked_labels(labels)
    if given.max(initial=UNLABELED) >= num_classes:
        raise UserError(f"label {given.max()} is none of the classes 0 to {num_classes - 1}")
    return given


def _checked_scores(scores: ArrayLike) -> Floats:
    found = np.asarray(scores, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] == 0 or not np.isfinite(found).all() or (found < 0).any():
        raise UserError("scores must be a matrix (points, classes), finite and not negative")
    return found


def _shares(rows: Floats) -> Floats:
    """Rows divided by their sum; zero rows stay."""
    # Divide by the largest first: a sum of tiny or huge scores could under- or overflow.
    largest = rows.max(axis=1, keepdims=True)
    scaled: Floats = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    total = scaled.sum(axis=1, keepdims=True)
    np.divide(scaled, total, out=scaled, where=total > 0)
    return scaled
