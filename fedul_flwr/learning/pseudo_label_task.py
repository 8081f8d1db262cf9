"""Training on given labels and pseudo labels (XCLP, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedul_flwr.config.method_settings import (
    LabelsOnlySettings,
    PseudoLabelSettings,
    StageSettings,
)
from fedul_flwr.data.types import UNLABELED, Floats, Inputs, Ints, Propagated
from fedul_flwr.learning.batches import paired_batches, points_of_each
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.randaugment import randaugment
from fedul_flwr.learning.task import Batch, Loss, Task


def scaled_cross_entropy(weight: float) -> Loss:
    """The loss weight · mean CE(logits ``(b, K)``, labels ``(b,)``)."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return weight * functional.cross_entropy(logits, labels)

    return loss


def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor, focal_gamma: float = 0.0
) -> Tensor:
    """(1/b) Σ_i w_i · CE(logits_i, labels_i), the loss of XCLP's pseudo labels (algorithm 2).

    The sum is divided by the number of points, not by their weights, so that a batch of low
    confidence makes a small step.

    Parameters
    ----------
    logits : ``(b, K)``.
    labels : int64 ``(b,)`` in 0 to K − 1.
    weights : ``(b,)``, at least 0.
    focal_gamma : above 0, points count less the larger the probability p of their label is: their
        losses are multiplied by (1 − p)^gamma (focal loss; Lin et al. 2017).
    """
    losses = functional.cross_entropy(logits, labels, reduction="none")
    if focal_gamma:
        # 1 − p by expm1, so that it is not 0 where p is almost 1.
        losses = (-torch.expm1(-losses)).clamp(min=1e-12) ** focal_gamma * losses
    return (weights.to(losses) * losses).mean()


@dataclass(frozen=True)
class PseudoLabels:
    """Pseudo labels of a client's unlabeled training points.

    Attributes
    ----------
    labels : int64 ``(u,)``, classes ``0..K-1``, -1 for none.
    confidence : float64 ``(u,)``, between 0 and 1.
    divisor : of the confidences in the loss.
    """

    labels: Ints
    confidence: Floats
    divisor: float = 1.0

    @classmethod
    def of(cls, propagated: Propagated) -> PseudoLabels:
        """``propagated``, with the largest of its confidences as divisor."""
        return cls(*propagated, divisor=float(propagated.confidence.max(initial=0.0)))

    @classmethod
    def none(cls, size: int) -> PseudoLabels:
        """No labels for ``size`` points."""
        return cls(np.full(size, UNLABELED, dtype=np.int64), np.zeros(size))


@dataclass(frozen=True)
class WeightedPoints:
    """Training points with classes and weights, labeled points first.

    Attributes
    ----------
    inputs : the data, images or vectors.
    points : int64 ``(n,)``, rows of ``inputs``.
    classes : int64 ``(n,)``, given labels, then pseudo labels.
    weights : float64 ``(n,)``, weights in the loss.
    num_labeled : number of points with given labels.
    """

    inputs: Inputs
    points: Ints
    classes: Ints
    weights: Floats
    num_labeled: int


def weighted_points(
    inputs: Inputs,
    labeled: Ints,
    labels: Ints,
    unlabeled: Ints,
    pseudo: PseudoLabels,
    settings: StageSettings,
) -> WeightedPoints:
    """The points to train on: labeled ones, and those with a pseudo label of any confidence.

    Parameters
    ----------
    inputs : the data, images or vectors.
    labeled, labels : ``(l,)``, rows of ``inputs`` with given labels, and these.
    unlabeled : ``(u,)``, rows of ``inputs`` that ``pseudo`` is about.
    """
    usable = pseudo.labels != UNLABELED
    if not (isinstance(settings, PseudoLabelSettings) and settings.recipe == "release"):
        usable &= pseudo.confidence > 0  # in the release they are in batches, with weight 0
    classes = np.concatenate([labels, pseudo.labels[usable]])
    confidence = pseudo.confidence[usable]
    if isinstance(settings, PseudoLabelSettings):
        if len(confidence):
            confidence = confidence / pseudo.divisor
        weights = np.concatenate([np.ones(len(labeled)), confidence])
    else:
        weights = np.ones(len(classes))
    points = np.concatenate([labeled, unlabeled[usable]])
    return WeightedPoints(inputs, points, classes, weights, len(labeled))


def weighted_task(
    data: WeightedPoints,
    settings: StageSettings,
    plan: LocalPlan,
    options: LabelsOnlySettings = LabelsOnlySettings(),  # noqa: B008 (frozen)
) -> Task:
    """Weighted cross-entropy on labeled points and as many pseudo-labeled ones per batch.

    Pseudo-labeled points are seen in strong views if ``settings`` say so. ``options`` are for
    training on given labels alone.
    """
    operations = 0
    if isinstance(settings, PseudoLabelSettings):
        operations = settings.operations
        if settings.recipe == "release" and data.num_labeled == 0:
            plan = replace(plan, batch_size=2 * plan.batch_size)
    batches = paired_batches(
        *(data.inputs, data.points, data.num_labeled, plan),
        targets=np.stack([data.classes, data.weights], axis=1),
    )
    others = len(data.points) - data.num_labeled
    count = min(others, points_of_each(len(data.points), data.num_labeled, plan))
    pseudo = torch.arange(count if operations else 0, device=plan.device)
    gamma = options.focal_gamma

    def loss(network: Network, batch: Batch) -> Tensor:
        inputs, (classes, weights) = batch.inputs, batch.targets.unbind(1)
        if len(pseudo):
            inputs = inputs.clone()
            inputs[pseudo] = randaugment(inputs[pseudo], operations)
        return weighted_cross_entropy(network(inputs), classes.long(), weights.float(), gamma)

    return Task(batches, loss)
