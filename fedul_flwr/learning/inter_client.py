"""Inter-client consistency of a client's model with its helpers' models (FedMatch, 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.confidence import ConfidentShare
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.randaugment import randaugment

Ties = Literal["own", "lowest"]
"""Class chosen in a tie of votes: the client's own class if it is in the tie, or the lowest one."""


def agreed_labels(
    own: Tensor, helpers: Sequence[Tensor], num_classes: int, ties: Ties = "own"
) -> Tensor:
    """The class with most votes by a client's model and its helpers (eq. 3).

    Parameters
    ----------
    own : int64 ``(n,)``, the top class of every point by the client's model.
    helpers : one int64 ``(n,)`` per helper.
    num_classes : K.
    ties : class chosen in a tie, which the text leaves open. With ``"own"`` it is also the lowest
        one if the client's is not in the tie.

    Returns
    -------
    int64 ``(n,)``.
    """
    votes = (1.5 if ties == "own" else 1.0) * functional.one_hot(own, num_classes)
    for vote in helpers:
        votes = votes + functional.one_hot(vote, num_classes)
    return votes.argmax(dim=1)


def helper_divergence(log_p: Tensor, helpers: Sequence[Tensor]) -> Tensor:
    """(1/H) Σ_j KL[p_hj ‖ p], mean over points (eq. 1).

    Parameters
    ----------
    log_p : ``(n, K)``, log-probabilities of the client's model.
    helpers : one ``(n, K)`` of log-probabilities per helper, at least one.
    """
    divergences = [
        functional.kl_div(log_p, target, reduction="batchmean", log_target=True)
        for target in helpers
    ]
    return torch.stack(divergences).mean()


class InterClientConsistency:
    """λ_ICCS · Φ, mean over the points for which the client's model is confident (eq. 2).

    Φ = CE(ŷ, p(π(u))) + (1/H) Σ_j KL[p_hj(u) ‖ p(u)], π = RandAugment. Without helpers the second
    term is absent and ŷ is the model's own class.

    Parameters
    ----------
    helpers : the helpers' models, frozen.
    weight : λ_ICCS.
    threshold : τ, smallest top probability of a confident point.
    strong_view : π, which makes strong views ``(n, c, h, w)`` of images.
    ties : class ŷ in a tie of votes.

    Attributes
    ----------
    helpers : the helpers' models.
    confidence : counts the points so far, and the confident ones.
    """

    def __init__(
        self,
        helpers: Sequence[nn.Module],
        weight: float,
        threshold: float,
        strong_view: Callable[[Tensor], Tensor] = randaugment,
        ties: Ties = "own",
    ) -> None:
        self.helpers = [helper.eval().requires_grad_(False) for helper in helpers]
        self._weight = weight
        self._threshold = threshold
        self._strong_view = strong_view
        self._ties: Ties = ties
        self.confidence = ConfidentShare()

    def __call__(self, network: Network, inputs: Tensor) -> Tensor | None:
        """Loss of ``(n, c, h, w)`` inputs; ``None`` without confident points.

        With weight 0 it is always ``None``, and the model is not called, so that its running
        statistics do not change.
        """
        if self._weight == 0:
            return None
        # Without helpers p(u) is only a target.
        with torch.set_grad_enabled(bool(self.helpers)):
            log_p = functional.log_softmax(network(inputs), dim=1)
        confident = log_p.detach().amax(dim=1).exp() >= self._threshold
        self.confidence.add(confident)
        sure = confident.nonzero()[:, 0]
        if len(sure) == 0:
            return None
        points, log_p = inputs[sure], log_p[sure]
        with torch.no_grad():
            others = [
                functional.log_softmax(network.twin(helper)(points), dim=1)
                for helper in self.helpers
            ]
        votes = [other.argmax(dim=1) for other in others]
        labels = agreed_labels(log_p.detach().argmax(dim=1), votes, log_p.shape[1], self._ties)
        loss = functional.cross_entropy(self._strong(network, points), labels)
        if others:
            loss = loss + helper_divergence(log_p, others)
        return self._weight * loss

    def _strong(self, network: Network, points: Tensor) -> Tensor:
        views = self._strong_view(points)
        with frozen_statistics(network.model):  # they must describe unchanged points
            return network(views)
