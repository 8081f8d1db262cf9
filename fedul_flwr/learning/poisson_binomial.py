"""Probability of exact class counts in a set, by Poisson-binomial distributions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

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
