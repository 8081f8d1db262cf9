"""Training on given labels and pseudo labels (XCLP, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedul_flwr.config.method_settings import (
    LabelsOnlySettings,
    PropagatedLabelSettings,
    PseudoLabelSettings,
    StageSettings,
)
from fedul_flwr.data.types import UNLABELED, Bools, Floats, Inputs, Ints, Propagated
from fedul_flwr.learning.batches import paired_batches
from fedul_flwr.learning.local import Loss
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.randaugment import randaugment
from fedul_flwr.learning.task import LocalTask


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


def class_weights(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:
    """n/(K · n_k) for every class k with n_k ``labels``; 0 for a class without labels.

    With these weights all classes that occur have the same total weight.

    Parameters
    ----------
    labels : ``(n,)`` in 0 to K − 1.
    num_classes : K.

    Returns
    -------
    ``(K,)``.
    """
    counts = np.bincount(labels, minlength=num_classes)
    weights = np.zeros(num_classes)
    np.divide(len(labels), num_classes * counts, out=weights, where=counts > 0)
    return weights


@dataclass(frozen=True)
class PseudoLabels:
    """Pseudo labels of a client's unlabeled training points.

    Attributes
    ----------
    labels : int64 ``(u,)``, classes ``0..K-1``, -1 for none.
    confidence : float64 ``(u,)``, between 0 and 1.
    largest : divisor of the confidences with setting ``relative-confidence``.
    """

    labels: Ints
    confidence: Floats
    largest: float

    @classmethod
    def of(cls, found: Propagated) -> PseudoLabels:
        """``found``, with the largest of its confidences as divisor."""
        return cls(*found, largest=float(found.confidence.max(initial=0.0)))

    @classmethod
    def none(cls, size: int) -> PseudoLabels:
        """No labels for ``size`` points."""
        return cls(np.full(size, UNLABELED, dtype=np.int64), np.zeros(size), 0.0)


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
    found: PseudoLabels,
    settings: StageSettings,
    num_classes: int,
) -> WeightedPoints:
    """The points to train on: labeled ones, and those with a pseudo label that ``settings`` use.

    Parameters
    ----------
    inputs : the data, images or vectors.
    labeled, labels : ``(l,)``, rows of ``inputs`` with given labels, and these.
    unlabeled : ``(u,)``, rows of ``inputs`` that ``found`` is about.
    num_classes : K.
    """
    usable = _usable(found, settings)
    classes = np.concatenate([labels, found.labels[usable]])
    confidence = found.confidence[usable]
    if isinstance(settings, PseudoLabelSettings):
        if isinstance(settings, PropagatedLabelSettings) and settings.relative_confidence:
            confidence = confidence / found.largest if len(confidence) else confidence
        weights = np.concatenate([np.ones(len(labeled)), confidence])
        if settings.class_weights and len(confidence):
            weights = weights * class_weights(classes, num_classes)[classes]
    else:
        weights = np.ones(len(classes))
    points = np.concatenate([labeled, unlabeled[usable]])
    return WeightedPoints(inputs, points, classes, weights, len(labeled))


def pseudo_label_task(
    data: WeightedPoints,
    settings: StageSettings,
    plan: LocalPlan,
    options: LabelsOnlySettings = LabelsOnlySettings(),  # noqa: B008 (frozen)
) -> LocalTask:
    """Weighted cross-entropy on labeled points and as many pseudo-labeled ones per batch.

    Pseudo-labeled points are seen in strong views if ``settings`` say so. ``options`` are for
    training on given labels alone.
    """
    classes, weights = torch.from_numpy(data.classes), torch.from_numpy(data.weights).float()
    operations = 0
    if isinstance(settings, PseudoLabelSettings):
        operations = settings.operations
        if settings.recipe == "release" and data.num_labeled == 0:
            plan = replace(plan, batch_size=2 * plan.batch_size)

    def objective(network: Network, inputs: Tensor, positions: Tensor) -> Tensor:
        at, device = positions.cpu(), positions.device
        pseudo = at >= data.num_labeled
        if operations and pseudo.any():
            inputs = inputs.clone()
            inputs[pseudo] = randaugment(inputs[pseudo], operations)
        logits = network(inputs)
        given = classes[at].to(device), weights[at].to(device)
        return weighted_cross_entropy(logits, *given, focal_gamma=options.focal_gamma)

    batches = paired_batches(
        data.inputs, data.points, data.num_labeled, plan, steps=options.epoch_steps
    )
    return LocalTask(len(data.points), batches, objective)


def _usable(found: PseudoLabels, settings: StageSettings) -> Bools:
    """Mask of the pseudo labels to train on: those of highest confidence; ties all or none."""
    usable = (found.labels != UNLABELED) & (found.confidence > 0)
    least = 0.0
    if isinstance(settings, PseudoLabelSettings) and usable.any():
        confidence = found.confidence[usable]
        least = float(np.quantile(confidence, 1 - settings.top_fraction, method="higher"))
    return np.asarray(usable & (found.confidence >= least))
