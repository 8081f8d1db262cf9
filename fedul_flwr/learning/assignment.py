"""Assigns the points of a set to classes, as many to each as the set's class shares say."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from fedul_flwr.data.types import Floats, Ints

EXACT_UP_TO = 256
"""Points of the largest set that is assigned exactly; the time grows with their cube."""
ITERATIONS = 100
"""Largest number of Sinkhorn's iterations; each scales columns, then rows."""
TOLERANCE = 1e-6
"""Sinkhorn ends once no column's sum is further from its count, as a share of the points."""


def largest_remainders(shares: Floats, size: int) -> Ints:
    """Whole counts ``(K,)`` that sum to ``size`` and are next to ``size`` times ``shares``.

    Every class has the whole part of its count; those with the largest remainders have one more,
    at a tie the first of them.

    Parameters
    ----------
    shares : ``(K,)``, at least 0, with sum 1.

    Examples
    --------
    Of 1.5, 1.2 and 2.3 points:

    >>> largest_remainders(np.array([0.3, 0.24, 0.46]), 5).tolist()
    [2, 1, 2]
    """
    wanted = shares / shares.sum() * size
    # A share of 0.3 of 10 points is 3, also where rounding makes it 2.9999999999999996.
    counts: Ints = np.floor(wanted + 1e-9).astype(np.int64)
    first = np.argsort(-(wanted - counts), kind="stable")[: size - counts.sum()]
    counts[first] += 1
    return counts


def exact_assignment(log_p: Floats, counts: Ints) -> Ints:
    """Classes ``(n,)`` of the largest total log-probability of which class k comes n_k times.

    Parameters
    ----------
    log_p : ``(n, K)``, log-probabilities of the classes of each point. A constant added to a
        column changes nothing, so class priors need not be divided out.
    counts : ``(K,)`` with sum n.
    """
    classes = np.repeat(np.arange(len(counts)), counts)
    rows, columns = linear_sum_assignment(-log_p[:, classes])
    result = np.empty(len(log_p), dtype=np.int64)
    result[rows] = classes[columns]
    return result


def sinkhorn_plan(log_p: Floats, counts: Floats) -> Floats:
    """The matrix ``(n, K)`` nearest to ``exp(log_p)`` with rows of sum 1 and columns of ``counts``.

    Nearest by Kullback-Leibler divergence (Cuturi 2013, with a regularization of 1). Row i has
    probabilities of the classes of point i that agree with the class shares of the whole set. Rows
    are scaled last, so their sums are exact; those of columns are to about :data:`TOLERANCE`.

    Parameters
    ----------
    log_p : ``(n, K)``, finite.
    counts : ``(K,)``, at least 0, with sum n.
    """
    present = counts > 0
    log_counts = np.log(counts[present])
    result = log_p[:, present] - logsumexp(log_p[:, present], axis=1, keepdims=True)
    for _ in range(ITERATIONS):
        result = result + (log_counts - logsumexp(result, axis=0))
        result = result - logsumexp(result, axis=1, keepdims=True)
        if np.abs(np.exp(result).sum(axis=0) - counts[present]).max() <= TOLERANCE * len(log_p):
            break
    plan = np.zeros(log_p.shape)
    plan[:, present] = np.exp(result)
    return plan


def assign_set(log_p: Floats, shares: Floats) -> Ints:
    """Classes ``(n,)`` of a set's points under its class shares.

    Up to :data:`EXACT_UP_TO` points each class comes as often as :func:`largest_remainders` says.
    A point of a larger set has the most likely class of :func:`sinkhorn_plan`, and counts are near
    the shares.

    Parameters
    ----------
    log_p : ``(n, K)``, finite log-probabilities of the classes of each point.
    shares : ``(K,)``, with sum 1.
    """
    if len(log_p) <= EXACT_UP_TO:
        return exact_assignment(log_p, largest_remainders(shares, len(log_p)))
    plan = sinkhorn_plan(log_p, shares / shares.sum() * len(log_p))
    return np.asarray(plan.argmax(axis=1), np.int64)


def assign_sets(log_p: Floats, sets: Ints, shares: Floats) -> Ints:
    """:func:`assign_set` of every set.

    Parameters
    ----------
    log_p : ``(n, K)``.
    sets : ``(n,)``, the set of each point.
    shares : ``(M, K)``, class shares of every set.
    """
    result = np.empty(len(sets), dtype=np.int64)
    for m in np.unique(sets):
        members = np.flatnonzero(sets == m)
        result[members] = assign_set(log_p[members], shares[m])
    return result
