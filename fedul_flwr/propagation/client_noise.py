"""Differential privacy of an XCLP client: noise on features before coding, randomized labels.

Noise is drawn once and stored, because repeated draws would average out: once per round for
features, once per run for labels. Only the noisy values are stored. A client counts its draws and
refuses more than the run's plan has, whatever rounds the server asks for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import UNLABELED, Arrays, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.privacy import PrivacyPlan, noisy_directions, randomised_labels

NOISY_FEATURES, RANDOMISED_LABELS = "noisy-features", "randomised-labels"
"""Names under which the client stores noisy features and randomized labels."""

FEATURES, AT_ROUND, RELEASES, LABELS = "features", "round", "releases", "labels"
SIGMA, DRAWS = "sigma", "draws"
"""Names of stored arrays: noisy features, their round, the plan's number of releases; labels; the
plan's noise; how often features were drawn so far."""

_ANY_ROUND = sys.maxsize


class Store(Protocol):
    """A client's state between messages, see :class:`fedul_flwr.federated.client_state`."""

    @property
    def directory(self) -> Path | None:
        """Where a simulation keeps it; ``None`` on a device."""

    def load(self, name: str, server_round: int) -> Arrays:
        """Arrays stored before ``server_round``."""

    def save(self, name: str, server_round: int, arrays: Arrays) -> None:
        """Store arrays as of the end of ``server_round``."""

    def ephemeral(self, name: str) -> Arrays:
        """Arrays that are never written to a file."""

    def set_ephemeral(self, name: str, arrays: Arrays) -> None:
        """Store such arrays; an empty mapping deletes them."""


class ClientNoise:
    """Adds noise to features and labels of one client's points as the run's plan demands.

    Parameters
    ----------
    plan : the noise of the run.
    store : the client's state.
    client : the client's number.
    resumed : whether the run resumes an earlier one.
    forgetful : whether the client has lost its state since the run began.
    """

    def __init__(
        self, plan: PrivacyPlan, store: Store, client: int, *, resumed: bool, forgetful: bool
    ) -> None:
        self.plan = plan
        self._store = store
        self._name = f"Client {client}"
        self._resumed = resumed
        self._forgetful = forgetful

    def features(
        self, features: NDArray[np.floating[Any]], server_round: int
    ) -> NDArray[np.floating[Any]]:
        """``(n, d)``, input of the codes in a round: ``features``, or noisy directions.

        Raises
        ------
        UserError
            If the plan or the client's points differ from those the noise was drawn for, or all
            draws of the plan were made.
        """
        plan = self.plan
        if not plan.codes_epsilon:
            return features
        stored = self._store.load(NOISY_FEATURES, server_round + 1)
        latest = self._store.load(NOISY_FEATURES, _ANY_ROUND)
        if stored and stored[RELEASES] != plan.releases:
            raise UserError(
                f"{self._name}: num-rounds has changed, and the noise of xclp.codes-epsilon is for "
                f"{stored[RELEASES]} propagations, not {plan.releases}."
            )
        if latest and latest[SIGMA] != plan.sigma:
            raise UserError(
                f"{self._name}: xclp.codes-epsilon or xclp.dp-delta has changed since noise was "
                "drawn."
            )
        if stored and stored[AT_ROUND] == server_round:
            self._refuse_change(len(stored[FEATURES]) == len(features))
            return stored[FEATURES]
        draws = int(latest[DRAWS]) if latest else 0
        if draws >= plan.releases:
            raise UserError(
                f"{self._name}: xclp.codes-epsilon is for {plan.releases} propagation(s) of the "
                "run, and all of them have been; the server asked for one more."
            )
        self._refuse_second_draw()
        noisy = noisy_directions(features, plan.sigma)
        drawn: Mapping[str, NDArray[Any]] = {
            FEATURES: noisy,
            AT_ROUND: np.array(server_round),
            RELEASES: np.array(plan.releases),
            SIGMA: np.array(plan.sigma),
            DRAWS: np.array(draws + 1),
        }
        self._store.save(NOISY_FEATURES, server_round, dict(drawn))
        return noisy

    def labels(self, labels: Ints, num_classes: int, server_round: int) -> Ints:
        """``(n,)``, labels that are propagated to other clients: ``labels``, or randomized.

        Raises
        ------
        UserError
            If other points have labels than when the labels were randomized.
        """
        epsilon = self.plan.labels_epsilon
        if not epsilon:
            return labels
        drawn = self._store.load(RANDOMISED_LABELS, _ANY_ROUND).get(LABELS)
        if drawn is None:
            self._refuse_second_draw()
            drawn = randomised_labels(labels, num_classes, epsilon)
            self._store.save(RANDOMISED_LABELS, server_round, {LABELS: drawn})
        self._refuse_change(np.array_equal(drawn != UNLABELED, labels != UNLABELED))
        return drawn

    def _refuse_second_draw(self) -> None:
        if self._store.directory is not None:
            return
        if self._resumed:
            raise UserError(
                f"{self._name}: a run with differential privacy cannot resume on a device: its "
                "noise was drawn in the run before, and is gone."
            )
        if self._forgetful:
            raise UserError(
                f"{self._name}: a device that has forgotten its noise takes no more part in a run "
                "with differential privacy: drawn once more, it would hide less."
            )

    def _refuse_change(self, same: bool) -> None:
        if not same:
            raise UserError(
                f"{self._name}: its points have changed during the run, and noise was drawn for "
                "those before."
            )
