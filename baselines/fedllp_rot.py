"""ROT at every client: proportions of sets, and classes assigned by Sinkhorn's iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.baselines.fedllp import FedLLPClient, FedLLPSettings
from fedul_flwr.learning.task import Loss

if TYPE_CHECKING:
    from torch import Tensor

LEAST = 1e-12
"""Least probability of a class before it is scaled, as in LLP-MM's release."""


class FedLLPROTSettings(kit.Settings):
    """Relaxed optimal transport in addition to label proportions (ROT)."""

    table: ClassVar[str] = "fedllp-rot"
    weight: Annotated[float, Field(ge=0, le=1)] = 0.4
    """Weight of the cross-entropy of assigned classes, 1 minus that of the proportions; 0 is
    FedLLP."""
    iterations: Annotated[int, Field(ge=1)] = 3
    """Iterations of Sinkhorn."""


def transported_classes(predicted: Tensor, shares: Tensor, iterations: int) -> Tensor:
    """int64 ``(n,)``, the class of each point of a bag after ``iterations`` of Sinkhorn.

    In each, the points' predictions are scaled to sums of 1, and then those of each class to its
    share.

    Parameters
    ----------
    predicted : ``(n, K)``, probabilities.
    shares : ``(K,)``, class shares of the bag.
    """
    scaled = predicted.clamp_min(LEAST)
    for _ in range(iterations):
        scaled = scaled / scaled.sum(dim=1, keepdim=True)
        scaled = shares * scaled / scaled.sum(dim=0).clamp_min(LEAST)
    return (scaled / scaled.sum(dim=1, keepdim=True)).argmax(dim=1)


class FedLLPROTClient(FedLLPClient):
    """Adds the cross-entropy of classes that are assigned anew in every step (Dulac-Arnold et al.
    2019)."""

    def loss(self) -> Loss:
        """The weighted mean of both."""
        import torch
        from torch.nn import functional

        options, of_shares = self.settings[FedLLPROTSettings], super().loss()
        priors = torch.from_numpy(self.data.sets.priors)

        def transported(logits: Tensor, targets: Tensor) -> Tensor:
            predicted = logits.detach().double().softmax(dim=1).cpu()
            assigned = torch.empty(len(logits), dtype=torch.int64)
            for rows, sets in learning.bags_of(targets):
                shares = priors[sets[0]]
                assigned[rows] = transported_classes(predicted[rows], shares, options.iterations)
            entropy = functional.cross_entropy(logits, assigned.to(logits.device))
            return (1 - options.weight) * of_shares(logits, targets) + options.weight * entropy

        return transported


METHOD = kit.Method(
    name="fedllp-rot",
    line="FedLLP, and points trained on classes assigned by Sinkhorn under the shares of each set.",
    needs="unlabeled sets with known class shares at clients",
    paper="Dulac-Arnold et al. 2019, arXiv:1905.12909 (ROT), each client its own sets",
    client=FedLLPROTClient,
    settings=(kit.AdmissionSettings, FedLLPSettings, FedLLPROTSettings),
)
