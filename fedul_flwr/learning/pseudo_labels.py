"""Pseudo labels by a network, and local training on points that have them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.special import entr
from torch import Tensor
from torch.nn import functional

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.method_settings import (
    LabelsOnlySettings,
    PseudoLabelSettings,
    StageSettings,
)
from fedul_flwr.data.class_labels import labels_from_scores
from fedul_flwr.data.types import UNLABELED, Inputs, Propagated
from fedul_flwr.learning.batches import paired_batches, points_of_each
from fedul_flwr.learning.matching import ConfidentShare
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.randaugment import randaugment
from fedul_flwr.learning.task import Batch, Loss, Task


def network_labels(logits: Tensor) -> Propagated:
    """Labels of ``(n, K)`` logits with confidence 1 - entropy / log K of their softmax."""
    return labels_from_scores(logits.double().softmax(dim=1).cpu().numpy())


def released_network_labels(logits: Tensor) -> Propagated:
    """Labels of ``(n, K)`` logits with confidences as in XCLP's released code, almost always 0.

    There logits themselves are divided by their sum in place of a softmax. Where signs differ such
    shares have no entropy, and the confidence is 0.
    """
    scores = logits.double().cpu().numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = entr(scores / scores.sum(axis=1, keepdims=True)).sum(axis=1)
    confidence = np.where(np.isfinite(entropy), 1 - entropy / np.log(scores.shape[1]), 0.0)
    return Propagated(scores.argmax(axis=1), confidence)


def is_confident(logits: Tensor, threshold: float) -> Tensor:
    """Bool ``(n,)``: whether the top probability of ``(n, K)`` logits reaches ``threshold``."""
    return functional.softmax(logits.detach(), dim=1).amax(dim=1) >= threshold


def mixed_cross_entropy(
    logits: Tensor, first: Tensor, second: Tensor, ratio: float | Tensor
) -> Tensor:
    """r·CE(logits, y⁺) + (1 − r)·CE(logits, y⁻) of ``(n, K)`` logits of points mixed by r."""
    loss = ratio * functional.cross_entropy(logits, first)
    return loss + (1 - ratio) * functional.cross_entropy(logits, second)


def mixing_ratio(alpha: float, like: Tensor) -> Tensor:
    """r ~ Beta(alpha, alpha), from torch's own generator, of the type and device of ``like``."""
    a, b = torch.full((2,), float(alpha), device=like.device)
    drawn: Tensor = torch.distributions.Beta(a, b, validate_args=False).sample()
    return drawn.to(like.dtype)


@dataclass(frozen=True)
class FixMixObjective:
    """L_fix + weight·L_mix (FedUL paper, eq. 14 to 17; Diao et al. 2021).

    x+ are the points of a batch whose top probability is at least ``threshold``, x− the others.
    L_fix is the cross-entropy of x+. Every pair has x_mix = r·x+ + (1 − r)·x− and L_mix =
    r·CE(f(x_mix), y+) + (1 − r)·CE(f(x_mix), y−), one r ~ Beta(alpha, alpha) per batch. Without
    x− there is no L_mix, without x+ neither loss.

    Attributes
    ----------
    threshold : tau, in [0, 1].
    weight : of L_mix, at least 0.
    alpha : of the Beta distribution, above 0.
    mix : ``"inputs"``, or ``"outputs"``: r·f(x+) + (1 − r)·f(x−) in place of f(x_mix) (release).
    pairing : ``"all"``, every x+ with an x− drawn with replacement; or ``"shorter"``, pairs in
        order up to the size of the smaller group, and no step if a group is empty (release).
    relabel : whether the predicted classes replace the given labels (release).
    confidence : counts the points of the batches, and x+ among them.
    """

    threshold: float = 0.4
    weight: float = 0.3
    alpha: float = 0.75
    mix: str = "inputs"
    pairing: str = "all"
    relabel: bool = False
    confidence: ConfidentShare = field(default_factory=ConfidentShare)

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        """Loss of points and their ``(n,)`` pseudo labels."""
        inputs, labels = batch.inputs, batch.targets
        logits = network(inputs)
        if self.relabel:
            labels = logits.detach().argmax(dim=1)
        confident = is_confident(logits, self.threshold)
        self.confidence.add(confident)
        high, low = confident.nonzero()[:, 0], (~confident).nonzero()[:, 0]
        if self.pairing == "shorter" and not (len(high) and len(low)):
            # A new leaf: weights get no gradient, so that the optimizer does not change them.
            return torch.zeros((), dtype=logits.dtype, device=logits.device, requires_grad=True)
        if not len(high):
            return 0.0 * logits.sum()
        fix = functional.cross_entropy(logits[high], labels[high])
        if not len(low) or self.weight == 0:
            return fix
        first, second = self.pairs(high, low)
        ratio = self.ratio(inputs)
        if self.mix == "outputs":
            mixed = ratio * logits[first] + (1 - ratio) * logits[second]
        else:
            # Running statistics must describe unmixed points, as in testing.
            with frozen_statistics(network.model):
                mixed = network(ratio * inputs[first] + (1 - ratio) * inputs[second])
        mix = mixed_cross_entropy(mixed, labels[first], labels[second], ratio)
        return fix + self.weight * mix

    def pairs(self, high: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of x+ and x− of every pair, from the positions of both groups."""
        if self.pairing == "shorter":
            count = min(len(high), len(low))
            return high[:count], low[:count]  # batches are in random order
        return high, low[torch.randint(len(low), (len(high),), device=low.device)]

    def ratio(self, inputs: Tensor) -> Tensor:
        """r ~ Beta(alpha, alpha)."""
        return mixing_ratio(self.alpha, inputs)


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
