"""Loss of labeled and unlabeled points: UDA, FixMatch and SAGE (Liu et al., CVPR 2025)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.data.types import CONFIDENT_SHARE, Inputs
from fedul_flwr.learning.lanes import fixed_shapes
from fedul_flwr.learning.local import predict_logits
from fedul_flwr.learning.network import Network, frozen_statistics, has_batch_norm
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Batch, Loss, Report
from fedul_flwr.learning.views import View, unchanged

_ROUNDING = 1e-6
"""A batch may round a probability differently than the pass over all points."""


class ConfidentShare:
    """Counts points, and the confident ones among them, without waiting for the device."""

    def __init__(self) -> None:
        self._counts = torch.zeros(2, dtype=torch.int64)

    def add(self, confident: Tensor) -> None:
        """Count a batch: bool ``(n,)``, whether a point is confident."""
        if self._counts.device != confident.device:
            self._counts = self._counts.to(confident.device)
        self._counts[0] += len(confident)
        self._counts[1] += confident.detach().sum()

    @property
    def share(self) -> float:
        """Confident points of all, in [0, 1]; 0 without points."""
        points, confident = (float(count) for count in self._counts)
        return confident / max(points, 1.0)

    @property
    def reports(self) -> dict[str, Report]:
        """The share as a report of the round."""
        return {CONFIDENT_SHARE: lambda: self.share}


def top_probabilities(
    model: nn.Module,
    inputs: Inputs,
    points: NDArray[Any],
    plan: LocalPlan,
    views: np.random.Generator | None = None,
) -> Tensor:
    """``(n,)``: the probability of the class that ``model`` predicts, for rows ``points``.

    ``views`` draws views of the points by ``plan.augment``; without it there are none.
    """
    if not len(points):  # a stream that has run dry
        return torch.empty(0)
    return predict_logits(model, inputs, points, plan, views).softmax(dim=1).amax(dim=1)


def threshold_for(threshold: float, top: Tensor) -> float:
    """The smallest top probability of a confident point.

    Parameters
    ----------
    threshold : a probability, or :data:`~fedul_flwr.config.base.ADAPTIVE`: the mean of ``top``
        (as the global threshold of FreeMatch, Wang et al. 2023, eq. 5, here of one client's
        points and the model that it received). Some point always reaches it.
    top : ``(n,)``, the client's top probabilities at the start of the round.
    """
    if threshold != ADAPTIVE:
        return threshold
    return float(top.double().mean()) - _ROUNDING if len(top) else 0.0


Consistency = Callable[[Tensor, Tensor, float | Tensor], tuple[Tensor, Tensor]]
"""``(log_target (n, K), log_q (n, K), threshold) -> (mean over the n points, masked share)``, such
as :func:`~fedul_flwr.learning.consistency.fixmatch_loss`."""


def annealed_cross_entropy(threshold: float) -> Loss:
    """Cross-entropy without points that are already learned (Xie et al. 2020, section 2.3).

    Points whose true class has a probability above ``threshold`` are skipped; the loss is the mean
    over the others, and 0 without others.
    """

    most = torch.tensor(threshold, dtype=torch.float64)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        losses = functional.cross_entropy(logits, labels, reduction="none")
        mask = losses.detach().neg().exp() <= most
        return (losses * mask).sum() / mask.sum().clamp(min=1)

    return loss


@dataclass(frozen=True, kw_only=True)
class PartlyLabeledObjective(ABC):
    """λ_s · loss of the labeled points of a batch + λ_u · loss of its unlabeled ones.

    Attributes
    ----------
    supervised_weight, unsupervised_weight : λ_s and λ_u.
    threshold : smallest top probability of a target; becomes a tensor.
    strong_view, weak_view : make views ``(n, …)`` of points.
    confidence : counts the unlabeled points of the batches, and those that reach the threshold.
    """

    supervised_weight: float
    unsupervised_weight: float
    threshold: float | Tensor
    strong_view: View
    weak_view: View = unchanged
    confidence: ConfidentShare = field(default_factory=ConfidentShare)

    def __post_init__(self) -> None:
        least = torch.as_tensor(self.threshold, dtype=torch.float64)
        object.__setattr__(self, "threshold", least)

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        """Loss of a batch of labeled and unlabeled points."""
        losses = self._losses(network, batch.labeled, batch.labels, batch.unlabeled)
        weights = (self.supervised_weight, self.unsupervised_weight)
        sizes = (len(batch.labeled), len(batch.unlabeled))
        terms = zip(weights, losses, sizes, strict=True)
        return torch.stack([weight * loss for weight, loss, size in terms if size]).sum()

    @abstractmethod
    def _losses(
        self, network: Network, labeled: Tensor, labels: Tensor, unlabeled: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Losses of both kinds of points; that of an empty kind is left out."""


@dataclass(frozen=True, kw_only=True)
class MatchingObjective(PartlyLabeledObjective):
    """Consistency of unlabeled points between two views (FedMatch, A.1 and A.3).

    The network's prediction for the weak view of an unlabeled image, without a gradient, is the
    target of its prediction for the image's strong view. By default, as in FedMatch's paper, the
    weak view is the unchanged image. Points below the threshold have loss 0 but count in the mean.

    Attributes
    ----------
    supervised, consistency : losses of the labeled and of the unlabeled points.
    """

    supervised: Loss
    consistency: Consistency

    def _losses(
        self, network: Network, labeled: Tensor, labels: Tensor, unlabeled: Tensor
    ) -> tuple[Tensor, Tensor]:
        nothing = unlabeled.new_zeros(())
        return (
            self.supervised(network(labeled), labels) if len(labeled) else nothing,
            self._inconsistency(network, unlabeled) if len(unlabeled) else nothing,
        )

    def _inconsistency(self, network: Network, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            log_target = functional.log_softmax(network(self.weak_view(inputs)), dim=1)
        sure = log_target.amax(dim=1).exp() >= self.threshold
        self.confidence.add(sure)
        chosen = _worth_a_pass(network.model, sure)
        # Running statistics must describe unchanged points, or weak views, as in testing.
        with frozen_statistics(network.model):
            log_q = functional.log_softmax(network(self.strong_view(inputs[chosen])), dim=1)
        value, _ = self.consistency(log_target[chosen], log_q, self.threshold)
        return value * (len(chosen) / len(inputs))


def _worth_a_pass(model: nn.Module, sure: Tensor) -> Tensor:
    """Positions whose strong views have to be computed; the others have loss 0 anyway.

    With batch norm these are all, as outputs of the ``sure`` ones (bool ``(n,)``) depend on the
    others; and where shapes are fixed. There is at least one, because penalties need an existing
    gradient, even a zero one.
    """
    if has_batch_norm(model) or fixed_shapes(sure):
        return torch.arange(len(sure), device=sure.device)
    indices = sure.nonzero()[:, 0]
    return indices if len(indices) else sure.new_zeros(1, dtype=torch.int64)


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
