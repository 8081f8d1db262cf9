"""Pseudo labels from priors and networks, and the mix of confident and other points (FedPL)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.special import entr
from torch import Tensor
from torch.nn import functional

from fedul_flwr.data.class_labels import labels_from_scores
from fedul_flwr.data.types import Propagated
from fedul_flwr.learning.matching import ConfidentShare
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.task import Batch


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
