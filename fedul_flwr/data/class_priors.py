"""Class priors at test time: re-weighing, estimating and averaging; does not use Flower.

A posterior is valid for the class priors pi of its training. If classes have other priors pi' but
the same p(x | y), Bayes' rule gives the posterior under pi' without new training, and pi' itself
can be estimated from unlabeled points.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.base import checked_prior

FLOOR = 1e-3
"""Smallest class prior of an estimate, as a fraction of the uniform prior 1/K: an unseen class may
still occur, and the transition divides by pi."""
MOST_STEPS, TOLERANCE = 1000, 1e-6
"""Most steps of an estimate, which ends once no entry changes by more than this."""


def uniform_prior(num_classes: int) -> Floats:
    """``(K,)``, all classes equally frequent."""
    return np.full(num_classes, 1 / num_classes)


def floored(prior: Floats) -> Floats:
    """Class priors ``(K,)`` with no entry below :data:`FLOOR` / K, divided by their sum."""
    return _normalized(np.maximum(_normalized(prior), FLOOR / len(prior)))


def rounded_shares(shares: Floats, digits: int) -> Floats:
    """Rows of shares ``(M, K)`` with so many digits after the point, 0 for all of them.

    What is missing to 1 is added to the largest share of a row.

    Examples
    --------
    >>> rounded_shares(np.array([[0.26, 0.26, 0.48]]), 1).tolist()
    [[0.3, 0.3, 0.4]]
    """
    if not digits:
        return shares
    rounded = np.round(shares, digits)
    rows = np.arange(len(shares))
    largest = shares.argmax(axis=1)
    rounded[rows, largest] += 1 - rounded.sum(axis=1)
    return np.round(rounded, digits)


def class_masses(priors: Floats, set_sizes: Ints) -> Floats:
    """``(K,)``, expected number of points of every class in one client's sets, Σ_m n_m Pi_m."""
    return np.asarray(set_sizes @ priors, dtype=np.float64)


def mean_prior(masses: Iterable[ArrayLike]) -> Floats:
    """Mean of all clients' class priors weighted by set sizes, floored (:func:`floored`).

    ``masses`` are every client's :func:`class_masses`. A ValueError says that there is no mean.
    """
    total = np.sum([np.asarray(mass, dtype=np.float64) for mass in masses], axis=0)
    if total.ndim != 1 or not np.isfinite(total).all() or (total < 0).any() or not total.any():
        raise ValueError("class masses must be finite, not negative and not all zero")
    return floored(total)


def reweigh(posterior: Floats, trained: ArrayLike, wanted: ArrayLike) -> Floats:
    """``(n, K)``, the posterior under other class priors: p'(k | x) ∝ p(k | x) · pi'_k / pi_k.

    ``trained`` and ``wanted`` are pi and pi', all positive. A ValueError says what is invalid.
    """
    ratios = _per_prior(posterior, trained)
    prior = checked_prior(wanted)
    if len(prior) != ratios.shape[1]:
        raise ValueError(f"has {len(prior)} entries; there are {ratios.shape[1]} classes")
    return _normalized(ratios * prior)


def estimate_prior(posterior: Floats, trained: ArrayLike, *, pseudo_points: float = 1.0) -> Floats:
    """Class priors of the points of ``posterior``, by expectation maximization.

    Saerens, Latinne & Decaestecker, *Adjusting the outputs of a classifier to new a priori
    probabilities*, Neural Computation 14(1), 2002, eq. 2.9: starting with ``trained``, re-weigh the
    posterior by the current priors; its mean over the points gives the next priors. No step lowers
    the likelihood of the points, which is concave in the priors. The estimate is only as good as
    the calibration of the posterior.

    With few points the maximum-likelihood priors exclude classes too easily. Therefore pseudo
    points with the priors of training are added (a Dirichlet prior; the likelihood is then
    penalized). Their influence vanishes as n grows.

    The estimate is :func:`floored`. With ``pseudo_points`` 0 per class it is the paper's. Errors
    are those of :func:`reweigh`.
    """
    ratios = _per_prior(posterior, trained)
    if len(ratios) == 0:
        raise ValueError("needs one point or more")
    prior = checked_prior(trained)
    imagined = pseudo_points * len(prior) * prior
    for _ in range(MOST_STEPS):
        before = prior
        prior = _normalized(_normalized(ratios * prior).sum(axis=0) + imagined)
        if np.abs(prior - before).max() <= TOLERANCE:
            break
    return floored(prior)


def _per_prior(posterior: Floats, trained: ArrayLike) -> Floats:
    """p(k | x) / pi_k, which is p(x | k) up to a factor per point."""
    prior = checked_prior(trained)
    is_right = posterior.ndim == 2 and posterior.shape[1] == len(prior)
    is_right = is_right and np.isfinite(posterior).all() and (posterior >= 0).all()
    if not is_right or not posterior.any(axis=1).all():
        raise ValueError(
            f"a posterior {posterior.shape} must have {len(prior)} classes, finite, not negative, "
            "and not zero for all of them"
        )
    return np.asarray(posterior / prior, dtype=np.float64)


def _normalized(rows: Floats) -> Floats:
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True), dtype=np.float64)
