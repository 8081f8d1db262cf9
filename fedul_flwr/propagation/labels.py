"""Conversion of labels to Y, and scores Z re-weighed by class priors (XCLP, phase 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedul_flwr.data.class_priors import estimate_prior, uniform_prior
from fedul_flwr.data.class_scores import checked_labels, checked_scores, shares_of_rows
from fedul_flwr.data.types import UNLABELED, Floats, Ints
from fedul_flwr.errors import UserError

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


def reweigh_by_prior(scores: ArrayLike, *, sharpness: float = SHARPNESS) -> Floats:
    """Re-weigh scores of one client's points by class priors estimated from them.

    Not in the paper, and local: nothing leaves the client. Propagated scores are too uniform to be
    posteriors; their power z^sharpness, divided by its sum, is used as one. From it expectation
    maximization estimates class priors pi
    (:func:`~fedul_flwr.data.class_priors.estimate_prior`, one pseudo point per class). An
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
    found = checked_scores(scores)
    num_classes = found.shape[1]
    reached = found.any(axis=1)
    if num_classes == 1 or not reached.any():
        return found
    posterior = shares_of_rows(shares_of_rows(found[reached]) ** sharpness)
    uniform = uniform_prior(num_classes)
    prior = estimate_prior(posterior, uniform)
    spread = np.exp(-(prior * np.log(prior)).sum()) / num_classes
    low, high = SPREAD
    doubt = np.clip((spread - low) / (high - low), 0, 1)
    prior = prior + doubt * (uniform - prior)
    return np.asarray(found * (num_classes * prior) ** (1 / sharpness))


def checked_classes(labels: ArrayLike, num_classes: int) -> Ints:
    """As :func:`checked_labels`, and also refuses labels above K - 1, and K < 1."""
    if num_classes < 1:
        raise UserError(f"there are {num_classes} classes; labels need 1 or more")
    given = checked_labels(labels)
    if given.max(initial=UNLABELED) >= num_classes:
        raise UserError(f"label {given.max()} is none of the classes 0 to {num_classes - 1}")
    return given
