"""FedUL's client with strong views trained on classes assigned under the class shares of sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.client_apps.fedul_consistency import (
    FedULConsistencyClient,
    FedULConsistencySettings,
)


class FedULAssignClient(FedULConsistencyClient):
    """Assigns each set's points to classes by the received model, once a round.

    Strong views are trained on these classes where the weak view has them with at least the
    probability of the threshold, given the point's set.
    """

    def task(self, round: kit.Round) -> kit.Task:
        """The task of `fedul-consistency`, with the assigned classes beside the sets."""
        task = super().task(round)
        if not self.weight(round):
            return task
        sets = self.data.sets
        assigned = self.assigned(sets.points, sets.sets, round)
        targets = np.stack([sets.sets, assigned], axis=1)
        return replace(
            task, batches=learning.point_batches(sets.inputs, sets.points, targets, round.plan)
        )

    def assigned(self, points: kit.Ints, members: kit.Ints, round: kit.Round) -> kit.Ints:
        """Classes ``(n,)`` of ``points`` from sets ``members``, by the received model."""
        logits = learning.predict_logits(self.model, self.data.sets.inputs, points, round.plan)
        log_p: kit.Floats = logits.double().log_softmax(dim=1).numpy()
        learns = self.settings[kit.FedULSettings].learn_priors
        shares = self._learned(round.number) if learns else self.data.sets.priors
        return learning.assign_sets(log_p, members, shares)


METHOD = kit.Method(
    name="fedul-assign",
    line="FedUL, and strong views trained on classes assigned under the shares of each set.",
    needs="unlabeled sets with known class shares at clients, at least as many sets as classes; "
    "classes that look alike at all clients",
    paper="ours, on Lu et al., ICLR 2022, arXiv:2204.03304",
    strategy="fedul_flwr.strategies.fedul:FedULStrategy",
    client=FedULAssignClient,
    settings=(kit.FedULSettings, FedULConsistencySettings),
)
