"""Sets whose class shares are known: losses of mean predictions and of exact counts, assignment."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from torch import Tensor
from torch.nn import functional

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.learning.task import Loss


def log_mean_prediction(logits: Tensor) -> Tensor:
    """Logarithm ``(K,)`` of the mean softmax of ``(n, K)`` logits, log pi_hat of a set.

    Computed in log space, so that it is finite even if probabilities underflow.
    """
    log_p = functional.log_softmax(logits, dim=1)
    return torch.logsumexp(log_p, dim=0) - math.log(len(logits))


def proportion_loss(logits: Tensor, prior: Tensor) -> Tensor:
    """−Σ_k Pi_mk log pi_hat_mk of one set (FedUL paper, eq. 18; Dulac-Arnold et al. 2019).

    Parameters
    ----------
    logits : ``(n, K)``, outputs for the points of the set.
    prior : ``(K,)``, class priors Pi_m of the set.
    """
    return -(prior * log_mean_prediction(logits)).sum()


@dataclass(frozen=True)
class ProportionLoss:
    """:func:`proportion_loss` of batches that are whole sets.

    Attributes
    ----------
    priors : ``(M, K)``, class priors Pi of a client's sets.
    """

    priors: Tensor

    def __call__(self, logits: Tensor, sets: Tensor) -> Tensor:
        """Loss of one set's ``(n, K)`` logits; ``sets`` ``(n,)`` repeats its index."""
        # Losses are built on the CPU: move the priors to the device of the logits.
        priors = self.priors.to(logits.device, logits.dtype)
        return proportion_loss(logits, priors[sets[0]])


def bags_of(targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Positions and sets of the points of each bag of a batch, int64 ``(n_b,)`` both.

    Parameters
    ----------
    targets : ``(n, 2)``, set and bag of each point, or ``(n,)``, one bag's set.
    """
    if targets.dim() == 1:
        return [(torch.arange(len(targets)), targets)]
    sets, bags = targets.cpu().unbind(1)
    positions = [torch.nonzero(bags == bag)[:, 0] for bag in torch.unique(bags)]
    return [(rows, sets[rows]) for rows in positions]


def over_bags(loss: Loss) -> Loss:
    """The mean over a batch's bags of the ``loss`` of each; targets as in :func:`bags_of`."""

    def mean(logits: Tensor, targets: Tensor) -> Tensor:
        bags = bags_of(targets)
        return torch.stack([loss(logits[rows.to(logits.device)], m) for rows, m in bags]).mean()

    return mean


IMPOSSIBLE = -1e30
"""Log-probability of what cannot be: -inf would have NaN gradients."""


def log_count_probability(log_p: Tensor, log_q: Tensor, counts: Tensor) -> Tensor:
    """Log-probability that so many of n independent events happen, for K groups of events.

    By dynamic programming over the events in log space: all terms are positive, so no digits
    cancel, and nothing underflows. Time grows with n².

    Parameters
    ----------
    log_p, log_q : ``(n, K)``, log-probabilities that event i of group k happens, and that not.
    counts : int64 ``(K,)``, from 0 to n.

    Returns
    -------
    Tensor ``(K,)``, as float64.

    Examples
    --------
    One of two fair coins shows heads with probability 1/2:

    >>> half = torch.full((2, 1), 0.5).log()
    >>> log_count_probability(half, half, torch.tensor([1])).exp()
    tensor([0.5000], dtype=torch.float64)
    """
    log_p, log_q = log_p.double(), log_q.double()
    # Of the first i events, j happened: state (K, j). No more than the largest count is needed.
    most = int(counts.max())
    state = torch.full((log_p.shape[1], most + 1), IMPOSSIBLE, dtype=torch.float64)
    state[:, 0] = 0.0
    state = state.to(log_p.device)
    for happens, fails in zip(log_p, log_q, strict=True):
        stays = state + fails[:, None]
        rises = functional.pad(state[:, :-1] + happens[:, None], (1, 0), value=IMPOSSIBLE)
        state = torch.logaddexp(stays, rises)
    return state.gather(1, counts.to(state.device)[:, None])[:, 0]


def count_loss(logits: Tensor, counts: Tensor) -> Tensor:
    """−Σ_k log P(N_k = n_k) of a set in which class k comes n_k times (LLP-PVC).

    N_k, the number of points of class k, is Poisson-binomial of the points' probabilities p_ik.

    Parameters
    ----------
    logits : ``(n, K)``, outputs for the points of the set, with K at least 2.
    counts : int64 ``(K,)`` with sum n.
    """
    log_p = functional.log_softmax(logits.double(), dim=1)
    num_classes = log_p.shape[1]
    # log(1 - p_k) as the sum over the other classes: exact where p_k is almost 1.
    same_class = torch.eye(num_classes, dtype=torch.bool, device=log_p.device)
    others = log_p[:, None, :].expand(-1, num_classes, -1).masked_fill(same_class, IMPOSSIBLE)
    log_q = torch.logsumexp(others, dim=2)
    return -log_count_probability(log_p, log_q, counts).sum().to(logits.dtype)


@dataclass(frozen=True)
class CountLoss:
    """:func:`count_loss` of batches that are whole sets.

    Attributes
    ----------
    counts : int64 ``(M, K)``, class counts of a client's sets.
    """

    counts: Tensor

    def __call__(self, logits: Tensor, sets: Tensor) -> Tensor:
        """Loss of one set's ``(n, K)`` logits; ``sets`` ``(n,)`` repeats its index."""
        return count_loss(logits, self.counts[sets[0].cpu()])


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
