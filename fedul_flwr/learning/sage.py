"""SAGE's loss: pseudo labels of the local model, corrected by those of the received one.

Liu et al., CVPR 2025 (arXiv:2503.13227).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.matching import PartlyLabeledObjective
from fedul_flwr.learning.network import Network

SENSITIVITY = math.log(2) / 0.05
"""κ: a difference of 0.05 in confidence gives both models the same weight."""
_LEAST = 1e-6
"""Added to the difference, which is at least this (authors' code)."""


def corrected_target(
    local: Tensor, received: Tensor, threshold: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Targets of unlabeled points, and which of them count (confidence-driven soft correction).

    Where the local model is sure, the target is λ·onehot(its class) + (1 − λ)·onehot(that of the
    received model), λ = exp(−κ·|difference of their top probabilities|); elsewhere it is the
    received model's class. A point counts where one of both is sure.

    Parameters
    ----------
    local, received : ``(n, K)``, posteriors of both models.
    threshold : smallest top probability of a model that is sure.

    Returns
    -------
    ``(n, K)``, and bool ``(n,)``.
    """
    (top, of_local), (other_top, of_received) = local.max(dim=1), received.max(dim=1)
    difference = ((top - other_top).abs() + _LEAST).clamp(max=1.0)
    share = torch.exp(-SENSITIVITY * difference).clamp(min=_LEAST)
    sure = top >= threshold
    share = torch.where(sure, share, torch.zeros_like(share))[:, None]
    classes = torch.arange(local.shape[1], device=local.device)
    local_one_hot = (of_local[:, None] == classes).long()
    others = (of_received[:, None] == classes).long()
    return share * local_one_hot + (1 - share) * others, sure | (other_top >= threshold)


@dataclass(frozen=True, kw_only=True)
class SageObjective(PartlyLabeledObjective):
    """CE of labeled points, and the mean over unlabeled ones of 1[counts] · KL(target ‖ q).

    q is the network's posterior of the strong view. Labeled points, weak and strong views pass
    through the network as one batch, so that batch norm sees them together (authors' code).

    Attributes
    ----------
    received : the model at the start of the round, in evaluation mode.
    """

    received: nn.Module

    def _losses(
        self, network: Network, labeled: Tensor, labels: Tensor, unlabeled: Tensor
    ) -> tuple[Tensor, Tensor]:
        weak, strong = self.weak_view(unlabeled), self.strong_view(unlabeled)
        logits = network(torch.cat([labeled, weak, strong]))
        supervised = functional.cross_entropy(logits[: len(labeled)], labels)
        if not len(unlabeled):
            return supervised, logits.new_zeros(())
        with torch.no_grad():
            received = network.twin(self.received)(weak).softmax(dim=1)
        of_weak, of_strong = logits[len(labeled) :].chunk(2)
        target, counts = corrected_target(of_weak.detach().softmax(dim=1), received, self.threshold)
        self.confidence.add(counts)
        log_q = functional.log_softmax(of_strong, dim=1)
        divergence = functional.kl_div(log_q, target, reduction="none").sum(dim=1)
        return supervised, (divergence * counts).mean()
