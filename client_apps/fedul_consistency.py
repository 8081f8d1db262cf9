"""FedUL's client with a consistency loss between views, on the recovered class posterior."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.base import OR_ADAPTIVE

if TYPE_CHECKING:
    from torch import Tensor


class FedULConsistencySettings(kit.Settings):
    """FedUL with consistency between weak and strong views, of `fedul-assign` too."""

    table: ClassVar[str] = "fedul-consistency"
    strong_views: ClassVar[bool] = True
    weight: Annotated[float, Field(ge=0)] = 0.3
    """Weight of the consistency loss; 0 is FedUL."""
    threshold: Annotated[float, Field(ge=0, lt=1), *OR_ADAPTIVE] = 0.95
    """Smallest top probability of the weak view with which the strong view is trained on; with
    `fedul-assign` the smallest probability of the assigned class.
    `adaptive` is the mean top probability of a client's points by the model that it received:
    some point always reaches it, and wrong targets count early."""
    ramp_up_rounds: Annotated[int, Field(ge=0)] = 20
    """First rounds, over which the weight grows as exp(-5·(1 − t)²)."""


STRONG_VIEWS = {
    "consistency-loss": kit.Part(
        says="the loss on strongly changed copies of its points",
        when=lambda settings: settings[FedULConsistencySettings].weight > 0,
    ),
    **kit.CONFIDENT,
}
"""What a client reports of its strong views."""


class FedULConsistencyClient(FedULClient):
    """Trains on surrogate labels, and trains strong views on the posterior of weak views."""

    reports = STRONG_VIEWS

    def weight(self, round: kit.Round) -> float:
        """Weight of the consistency loss in a round."""
        options = self.settings[FedULConsistencySettings]
        return options.weight * learning.ramp_up(round.number, options.ramp_up_rounds)

    def task(self, round: kit.Round) -> kit.Task:
        """FedUL's task, with the weighted consistency loss of the strong view added."""
        task, weight = super().task(round), self.weight(round)
        if weight == 0:
            return task
        surrogate = self.loss(round.config)
        objective = learning.ConsistencyObjective(
            surrogate=surrogate,
            weight=weight,
            threshold=self._threshold(surrogate.transition.log_weights, round),
            log_weights=surrogate.transition.log_weights,
            strong_view=learning.fixed_strong_view(self.settings),
        )
        return replace(task, loss=objective, reports=objective.reports)

    def _threshold(self, log_weights: Tensor, round: kit.Round) -> float:
        """The smallest top probability of a target, of the model at the start of the round."""
        threshold = self.settings[FedULConsistencySettings].threshold
        if threshold != kit.ADAPTIVE:
            return threshold
        import torch

        sets = self.data.sets
        logits = learning.predict_logits(self.model, sets.inputs, sets.points, round.plan)
        weights = log_weights.to(logits)[torch.from_numpy(sets.sets)]
        return learning.threshold_for(threshold, (logits + weights).softmax(dim=1).amax(dim=1))


METHOD = kit.Method(
    name="fedul-consistency",
    line="FedUL, and the same prediction for two views of a point.",
    needs="unlabeled sets with known class shares at clients, at least as many sets as classes; "
    "classes that look alike at all clients",
    paper="ours, on Lu et al., ICLR 2022, arXiv:2204.03304",
    strategy="fedul_flwr.strategies.fedul:FedULStrategy",
    client=FedULConsistencyClient,
    settings=(kit.FedULSettings, FedULConsistencySettings),
)
