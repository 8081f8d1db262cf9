"""What a client of XCLP makes codes of, and which labels it sums: with noise where it is asked for.

Noise is drawn once and remembered, for who could ask twice would see through it: once a round for
features, once a run for labels. What is remembered is what may be known.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_apps.propagating import PropagatingClient
from fedul_flwr.data.types import UNLABELED, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import FEDERATION, FORGETFUL
from fedul_flwr.propagation.privacy import noisy_directions, randomised_labels
from fedul_flwr.propagation.privacy_plan import PrivacyPlan, privacy_plan

NOISY_FEATURES, RANDOMISED_LABELS = "noisy-features", "randomised-labels"
"""Names under which it remembers them."""

FEATURES, AT_ROUND, RELEASES, LABELS = "features", "round", "releases", "labels"
"""Arrays: noisy features, of which round, made for how many releases; randomised labels."""


class PrivateClient(PropagatingClient):
    """Hides features and labels of its points as the settings say."""

    @cached_property
    def privacy(self) -> PrivacyPlan:
        """Which noise."""
        return privacy_plan(self.settings)

    def coded(
        self, features: NDArray[np.floating[Any]], server_round: int
    ) -> NDArray[np.floating[Any]]:
        """``(n, d)``, what codes are made of in a round: ``features``, or noisy directions.

        Raises
        ------
        UserError
            The run's rounds or the client's points have changed, and noise was for others.
        """
        plan = self.privacy
        if not plan.codes_epsilon:
            return features
        memory = self.state.recall(NOISY_FEATURES, server_round + 1)
        if memory and memory[RELEASES] != plan.releases:
            raise UserError(
                f"Client {self.node.partition_id}: num-rounds has changed, and the noise of "
                f"xclp.codes-epsilon is for {memory[RELEASES]} propagations, not {plan.releases}."
            )
        if memory and memory[AT_ROUND] == server_round:
            self._refuse_change(len(memory[FEATURES]) == len(features))
            return memory[FEATURES]
        self._refuse_second_draw()
        noisy = noisy_directions(features, plan.sigma)
        memory = {
            FEATURES: noisy,
            AT_ROUND: np.array(server_round),
            RELEASES: np.array(plan.releases),
        }
        self.state.keep(NOISY_FEATURES, server_round, memory)
        return noisy

    def summed(self, server_round: int) -> Ints:
        """``(n,)``, labels that others' points get their part of: :attr:`given`, or randomised.

        Raises
        ------
        UserError
            Other points are labeled than when they were randomised.
        """
        epsilon = self.privacy.labels_epsilon
        if not epsilon:
            return self.given
        labels = self.state.recall(RANDOMISED_LABELS, server_round + 1).get(LABELS)
        if labels is None:
            self._refuse_second_draw()
            labels = randomised_labels(self.given, self.num_classes, epsilon)
            self.state.keep(RANDOMISED_LABELS, server_round, {LABELS: labels})
        self._refuse_change(np.array_equal(labels != UNLABELED, self.given != UNLABELED))
        return labels

    def _refuse_second_draw(self) -> None:
        if self.state.directory is not None:
            return
        name = f"Client {self.node.partition_id}"
        if self.settings.resume:
            raise UserError(
                f"{name}: a run with differential privacy cannot resume on a device: its noise was "
                "drawn in the run before, and is gone."
            )
        if FORGETFUL in self.state.values(FEDERATION):
            raise UserError(
                f"{name}: a device that has forgotten its noise takes no more part in a run with "
                "differential privacy: drawn once more, it would hide less."
            )

    def _refuse_change(self, same: bool) -> None:
        if not same:
            raise UserError(
                f"Client {self.node.partition_id}: its points have changed during the run, and "
                "noise was drawn for those before."
            )
