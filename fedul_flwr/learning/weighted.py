"""Cross-entropy with weights of points, by confidence and by class."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedul_flwr.learning.local import Loss


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
