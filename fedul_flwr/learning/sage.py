"""SAGE's loss: pseudo labels of the local model, corrected by those of the received one.

Liu et al., CVPR 2025 (arXiv:2503.13227).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.matching import ConfidentShare
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.views import View, unchanged

SENSITIVITY = math.log(2) / 0.05
"""κ: a difference of 0.05 in confidence gives both models the same weight."""
_LEAST = 1e-6
"""Added to the difference, which is at least this (authors' code)."""


def corrected_target(local: Tensor, received: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
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
    local_one_hot = functional.one_hot(of_local, local.shape[1])
    others = functional.one_hot(of_received, local.shape[1])
    return share * local_one_hot + (1 - share) * others, sure | (other_top >= threshold)


@dataclass(frozen=True)
class SageObjective:
    """λ_s · CE of labeled points + λ_u · mean over unlabeled ones of 1[counts] · KL(target ‖ q).

    q is the network's posterior of the strong view. Labeled points, weak and strong views pass
    through the network as one batch, so that batch norm sees them together (authors' code).

    Attributes
    ----------
    received : the model at the start of the round, in evaluation mode.
    threshold : smallest top probability of a model that is sure.
    supervised_weight, unsupervised_weight : λ_s and λ_u.
    strong_view, weak_view : make views of points.
    confidence : counts the unlabeled points of the batches, and those that count in the loss.
    """

    received: nn.Module
    threshold: float
    supervised_weight: float
    unsupervised_weight: float
    strong_view: View
    weak_view: View = unchanged
    confidence: ConfidentShare = field(default_factory=ConfidentShare)

    def __call__(self, network: Network, inputs: Tensor, labels: Tensor) -> Tensor:
        """Loss of ``(n, …)`` inputs, labeled ones first; ``labels`` of the others are -1."""
        count = int((labels >= 0).sum())
        seen, unseen = inputs[:count], inputs[count:]
        weak, strong = self.weak_view(unseen), self.strong_view(unseen)
        logits = network(torch.cat([seen, weak, strong]))
        terms = []
        if len(seen):
            supervised = functional.cross_entropy(logits[:count], labels[:count])
            terms.append(self.supervised_weight * supervised)
        if len(unseen):
            with torch.no_grad():
                received = network.twin(self.received)(weak).softmax(dim=1)
            of_weak, of_strong = logits[count:].chunk(2)
            target, counts = corrected_target(
                of_weak.detach().softmax(dim=1), received, self.threshold
            )
            self.confidence.add(counts)
            log_q = functional.log_softmax(of_strong, dim=1)
            divergence = functional.kl_div(log_q, target, reduction="none").sum(dim=1)
            terms.append(self.unsupervised_weight * (divergence * counts).mean())
        return torch.stack(terms).sum()
