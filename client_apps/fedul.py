"""FedUL's client (Algorithm 1, procedures A and B): trains on surrogate labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.common import NDArrays
from flwr.common import Scalar as FlowerScalar

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.data.set_priors import (
    Dirichlet,
    check_fit,
    learn_priors,
    misfits_in_words,
    set_likelihoods,
)
from fedul_flwr.federated.client_data import PointShares
from fedul_flwr.federated.messages import LEARNED, PRIOR_FIT, TEST_PRIOR

if TYPE_CHECKING:
    from fedul_flwr.surrogate import SurrogateLoss


LEARN_AFTER = 5
"""First rounds, in which class priors stay as told: a model that has learned little teaches them
its errors."""


class FedULClient(kit.Client[kit.UnlabeledSetData]):
    """Trains the class model through the transition of its own sets.

    The index of a point's set is its target. Priors and points stay at the client.
    """

    def point_shares(self) -> PointShares:
        """Class shares of each point's set, as it has learned them; none of points held out."""
        shares = self._learned(self.settings.num_rounds)
        return PointShares.of_sets(self.data.sets, shares, self.data.drawn)

    def task(self, round: kit.Round) -> kit.Task:
        """Points with the index of their set as target (eq. 6), and the loss of eq. 9."""
        self.check_priors(round)
        sets = self.data.sets
        batches = learning.point_batches(sets.inputs, sets.points, sets.sets, round.plan)
        return kit.Task(batches, kit.on_logits(self.loss(round.config)))

    def loss(self, config: Mapping[str, Any]) -> SurrogateLoss:
        """Loss of surrogate labels under this client's transition (eq. 9).

        Parameters
        ----------
        config : values of the round, with pi if ``test-prior = "sets"``.
        """
        import torch

        from fedul_flwr.surrogate import SurrogateLoss

        sets, prior, options = self.data.sets, self.prior(config), self.settings[kit.FedULSettings]
        learns = options.learn_priors
        priors = self._learned(int(config["server-round"])) if learns else sets.priors
        return SurrogateLoss(
            torch.tensor(priors),  # a copy: what was kept in a file is read-only
            torch.from_numpy(sets.set_sizes),
            None if prior is None else torch.from_numpy(prior),
            kind=options.surrogate_loss,
            absent_weight=options.absent_weight,
        )

    def prior(self, config: Mapping[str, Any]) -> kit.Floats | None:
        """Pi at test time, ``(K,)``; ``None`` is uniform."""
        sent = self.settings.test_prior == "sets"
        prior = config[TEST_PRIOR] if sent else self.settings.class_priors()
        return None if prior is None else np.array([float(share) for share in prior])

    def _stated_priors(self) -> Dirichlet:
        sets = self.data.sets
        return sets.posterior or Dirichlet.exact(sets.priors)

    def _learned(self, number: int) -> kit.Floats:
        """Class priors of the sets as learned up to a round; until then as told."""
        learned = self.state.load(LEARNED, number + 1)
        return learned["priors"] if learned else self._stated_priors().means

    def check_priors(self, round: kit.Round) -> None:
        """Learn class priors of the sets, and in the last round check them, with the global model.

        Not in round 1, whose model has learned nothing.
        """
        options, number = self.settings[kit.FedULSettings], round.number
        checks = number == self.settings.num_rounds
        learns = options.learn_priors and number > LEARN_AFTER
        if number == 1 or not (learns or checks):
            return

        sets, stated = self.data.sets, self._stated_priors()
        posterior = self.posteriors(sets.inputs, sets.points, round).numpy()
        likelihoods = set_likelihoods(posterior, self.prior(round.config))
        if learns:
            learned = learn_priors(likelihoods, sets.sets, self._learned(number - 1), stated)
            self.state.save(LEARNED, number, {"priors": learned})
        if checks:
            fit = check_fit(likelihoods, sets.sets, stated)
            for line in misfits_in_words(fit, stated, self.data.set_names, self.data.class_names):
                print(f"Client {self.node.partition_id}: {line}")
            self.state.publish(PRIOR_FIT, number, {"shares": fit.shares, "misfits": fit.misfits})

    def evaluate(
        self, parameters: NDArrays, config: dict[str, FlowerScalar]
    ) -> tuple[float, int, dict[str, FlowerScalar]]:
        """Surrogate loss of the global model on held-out unlabeled points."""
        import torch

        learning.load_arrays(self.model, dict(zip(self.array_names(), parameters, strict=True)))
        sets = self.data.held_out
        if not len(sets.points):  # sets are too small: zero examples means zero weight in the mean
            return 0.0, 0, {}
        plan = learning.local_plan(self.settings)
        logits = learning.predict_logits(self.model, sets.inputs, sets.points, plan)
        loss = self.loss(config)(logits, torch.from_numpy(sets.sets))
        return float(loss), len(sets.points), {}
