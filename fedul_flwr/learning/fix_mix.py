"""SemiFL's and (FL)²'s client: which points it trains on, and its loss.

Diao, Ding & Tarokh 2022 (arXiv:2106.01432); Lee, Le, Shin & Lee 2024 (arXiv:2410.23227).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.pseudo_labels import mixed_cross_entropy, mixing_ratio
from fedul_flwr.learning.task import Batch
from fedul_flwr.learning.views import View

ALPHA = 0.75
"""Of the Beta distribution of mixing ratios (both papers' code)."""
SURE = 0.95
"""Smallest top probability of a point on which the sharpness counts ((FL)²)."""
ROUNDING = 1e-9
"""The mean of equal numbers may be rounded above them."""
STEADY = 0.01
"""Added to |w| where it scales the ascent of a weight (ASAM; Kwon et al. 2021)."""


class Selection(NamedTuple):
    """Pseudo labels of a client's points, and which it trains on.

    Attributes
    ----------
    labels : int64 ``(n,)``, the top class of every point.
    chosen : bool ``(n,)``, whether a point is in the fix set.
    sure : bool ``(n,)``, whether the top probability is at least :data:`SURE`.
    mean_top : τ, the mean top probability in [1/K, 1]: how far the model has learned the points.
    """

    labels: Tensor
    chosen: Tensor
    sure: Tensor
    mean_top: float


def select(probabilities: Tensor, threshold: float) -> Selection:
    """The points of the fix set by ``(n, K)`` probabilities of the received model.

    Parameters
    ----------
    threshold : smallest top probability; or :data:`~fedul_flwr.config.base.ADAPTIVE` for that of
        (FL)², τ·p̄_k / max p̄ for a point of top class k, where p̄ are the mean probabilities of
        the classes: a class that the model seldom predicts needs less (CAT).
    """
    if not len(probabilities):
        none = torch.zeros(0, dtype=torch.bool)
        return Selection(torch.zeros(0, dtype=torch.int64), none, none, 1.0)
    top, labels = probabilities.max(dim=1)
    mean_top = min(float(top.mean()), 1.0)
    if threshold != ADAPTIVE:
        return Selection(labels, top >= threshold, top >= SURE, mean_top)
    of_classes = probabilities.mean(dim=0)
    least = (mean_top - ROUNDING) * (of_classes / of_classes.max())[labels]
    return Selection(labels, top >= least, top >= SURE, mean_top)


def class_factors(label_counts: Ints, mean_posterior: Floats, num_points: float) -> Floats:
    """``(K,)``, the factors with which a model predicts each class as often as it is labeled.

    That is distribution alignment (Berthelot et al. 2020, arXiv:1911.09785), with one
    more label and one more point of each class, so that none is lost.

    Parameters
    ----------
    label_counts : ``(K,)``, labels of each class.
    mean_posterior : ``(K,)``, the mean over the points of the model's posteriors; its sum is 1.
    num_points : how many points these are.
    """
    labels, points = label_counts + 1, mean_posterior * num_points + 1
    factors: Floats = labels / labels.sum() / (points / points.sum())
    return factors


def aligned(probabilities: Tensor, factors: Tensor) -> Tensor:
    """``(n, K)`` probabilities times ``(K,)`` factors, each row with sum 1 again."""
    scaled = probabilities * factors
    return scaled / scaled.sum(dim=1, keepdim=True)


@dataclass(frozen=True)
class FixMixLoss:
    """CE(f(strong x), ŷ) + w·[r·CE(f(m), ŷ) + (1 − r)·CE(f(m), ŷ′)].

    m = r·weak x + (1 − r)·weak x′. x are the points of the fix set, x′ those of the mix set,
    r ~ Beta(α, α) is one number for a batch. Running statistics of batch norm do not change: they
    are computed apart.

    Attributes
    ----------
    num_classes : K.
    strong_view, weak_view : make views of points.
    mix_weight : w, at least 0; with 0 nothing is mixed.
    sharpness : ρ, at least 0: the radius of (FL)²'s consistency; 0 leaves it out.
    """

    num_classes: int
    strong_view: View
    weak_view: View
    mix_weight: float = 1.0
    sharpness: float = 0.0

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        """Loss of ``2b`` points, first of the fix set, then of the mix set.

        Targets are pseudo labels ŷ, of sure points of the fix set ŷ + K.
        """
        inputs, targets = batch.inputs, batch.targets
        count = len(inputs) // 2
        points, others = inputs[:count], inputs[count:]
        classes = targets % self.num_classes
        labels, other_labels = classes[:count], classes[count:]
        sure = targets[:count] >= self.num_classes
        strong = self.strong_view(points)
        terms = []
        with frozen_statistics(network.model):
            # First, as it moves the weights and back: graphs made before could not be used then.
            if self.sharpness and sure.any():
                terms.append(sharpness_aware(network, strong, labels, sure, self.sharpness))
            terms.append(functional.cross_entropy(network(strong), labels))
            if self.mix_weight:
                r = mixing_ratio(ALPHA, points)
                mixed = r * self.weak_view(points) + (1 - r) * self.weak_view(others)
                of_mixed = mixed_cross_entropy(network(mixed), labels, other_labels, r)
                terms.append(self.mix_weight * of_mixed)
        return torch.stack(terms).sum()


def sharpness_aware(
    network: Network, inputs: Tensor, labels: Tensor, sure: Tensor, radius: float
) -> Tensor:
    """(FL)²'s consistency of ``sure`` points between weights w and w + ε (SACR).

    ε is ASAM's ascent of the cross-entropy of these points. The value is Σ KL(p_w ‖ p_{w+ε}) over
    sure points / n, its gradient that at w + ε, as if ε were constant.

    Parameters
    ----------
    inputs : ``(n, …)``, strong views.
    labels, sure : ``(n,)``, pseudo labels, and whether a point counts, at least one.
    radius : ρ, above 0.
    """
    named = [(n, w) for n, w in network.model.named_parameters() if w.requires_grad]
    weights = [weight for _, weight in named]
    logits = network(inputs)
    target = logits.detach().softmax(dim=1)
    slopes = torch.autograd.grad(
        functional.cross_entropy(logits[sure], labels[sure]), weights, allow_unused=True
    )
    with torch.no_grad():
        scales = [
            weight.abs() + STEADY if "weight" in name else torch.ones_like(weight)
            for name, weight in named
        ]
        scaled = [
            scale * slope if slope is not None else torch.zeros_like(scale)
            for scale, slope in zip(scales, slopes, strict=True)
        ]
        norm = torch.stack([part.norm() for part in scaled]).norm() + 1e-16
        steps = [radius / norm * scale * part for scale, part in zip(scales, scaled, strict=True)]
        before = [weight.detach().clone() for weight in weights]
        for weight, step in zip(weights, steps, strict=True):
            weight.add_(step)
    log_q = functional.log_softmax(network(inputs), dim=1)
    divergence = functional.kl_div(log_q, target, reduction="none").sum(dim=1)
    value = (divergence * sure).mean()
    gradients = torch.autograd.grad(value, weights, allow_unused=True)
    with torch.no_grad():
        for weight, old in zip(weights, before, strict=True):
            weight.copy_(old)
    # Linear in the weights: its gradient is the one above, its value is added as it is.
    linear = torch.stack(
        [
            (weight * slope).sum()
            for weight, slope in zip(weights, gradients, strict=True)
            if slope is not None
        ]
    ).sum()
    return value.detach() + linear - linear.detach()
