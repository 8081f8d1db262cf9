"""Learning from label proportions: compares a set's mean prediction with its class priors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

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
