"""FedUL with heads in closed form: clients train on posteriors under the class shares of sets.

Before each round the last layer follows from sums over all clients, so that it does not drift apart
where clients lack classes. Of the received model and the class shares of a point's set follow its
posteriors, which are its targets in the round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.federated.messages import HEAD_SCALE
from fedul_flwr.strategies.fedul import FedULStrategy

if TYPE_CHECKING:
    from torch import Tensor


class FedULHeads(FedULStrategy):
    """FedUL's server, with a new head before each round."""

    head_every = 1


LARGEST_GRADIENT = 10.0
"""Norm to which the gradient of a step is cut."""


class FedULHeadsClient(FedULClient):
    """Trains the network and its head on posteriors of its points, new in each round."""

    def plan_of(self, plan: learning.LocalPlan) -> learning.LocalPlan:
        """Gradients are cut: a new head is another function than the one trained."""
        return replace(plan, max_gradient_norm=LARGEST_GRADIENT)

    def task(self, round: kit.Round) -> kit.Task:
        """Points with their posteriors by the received model, given the shares of their set."""
        self.check_priors(round)
        stated = self.point_shares()
        logits = learning.predict_logits(self.model, stated.inputs, stated.points, round.plan)
        logits = logits / float(round.config.get(HEAD_SCALE, 1.0))
        targets = stated.posteriors(logits.double().numpy(), self.prior(round.config))
        batches = learning.point_batches(
            stated.inputs, stated.points, targets.astype(np.float32), round.plan
        )
        return kit.Task(batches, kit.on_logits(_cross_entropy))


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.cross_entropy(logits, targets.to(logits.dtype))


METHOD = kit.Method(
    name="fedul-heads",
    line="FedUL with last layers from sums over clients, trained on posteriors under set shares.",
    needs="unlabeled sets with known class shares at clients, at least as many sets as classes; "
    "classes that look alike at all clients",
    paper="ours, on Lu et al., ICLR 2022, arXiv:2204.03304",
    strategy=FedULHeads,
    client=FedULHeadsClient,
    settings=(kit.FedULSettings, HeadSettings),
)
