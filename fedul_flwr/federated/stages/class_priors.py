"""Class priors at test time that follow from all clients' sets (``test-prior = "sets"``).

Clients tell how many points of each class their sets have, or with secure sums the server reads the
sum over clients alone. With ``fedul.fewer-sets`` that sum also tells whether the sets of all
clients together tell the classes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedul_flwr.arrays import Floats
from fedul_flwr.config.method_settings import FedULSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.class_priors import mean_prior
from fedul_flwr.data.set_priors import directions_of_gram, posterior_equations
from fedul_flwr.data.types import Content, Value, numbers
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.messages import CLASS_MASSES, SETUP, TEST_PRIOR
from fedul_flwr.federated.payload import Declared, Part, Sum
from fedul_flwr.federated.stage import (
    ClientStage,
    RoundAtServer,
    ServerStage,
    Stage,
    are_hidden,
)

OF_SETS = "sets"
"""Name of the sum."""
SUMMED_PRIOR = "summed-prior"
"""Name, in the state of a run, of pi from the sum; without a number if that is not of masses."""


def needs_rank(settings: RunConfig) -> bool:
    """Whether the sets of all clients together have to tell classes apart, and none tells it."""
    options = settings.find(FedULSettings)
    return options is not None and options.fewer_sets and not options.share_priors


def sums_of_sets(settings: RunConfig) -> tuple[bool, bool]:
    """Whether the server reads sums over clients: of class masses, and of what tells whether their
    sets together tell the classes apart (``fedul.fewer-sets``)."""
    hidden = are_hidden(settings)
    return hidden and settings.test_prior == "sets", hidden and needs_rank(settings)


class AtClient(ClientStage):
    """Tells class masses of its sets, or its part of their sum."""

    def register(self) -> Mapping[str, Value]:
        """Class masses, unless its sets cannot be used."""
        data = self.client.data
        if not self.settings.sends_class_masses or data.set_check.reason:
            return {}
        return {CLASS_MASSES: data.class_masses().tolist()}

    def part(self, of: str, content: Content) -> Floats | None:
        """Class masses of its sets, and E^T E, E of
        :func:`fedul_flwr.data.set_priors.posterior_equations`."""
        del content
        has_masses, has_gram = sums_of_sets(self.settings)
        if of != OF_SETS or not (has_masses or has_gram):
            return None
        data = self.client.data
        masses = data.class_masses() if has_masses else np.empty(0)
        equations = posterior_equations(data.sets.priors) if has_gram else np.empty((0, 0))
        return np.concatenate([masses, (equations.T @ equations).ravel()])


class AtServer(ServerStage):
    """Determines pi, and sends it."""

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy)
        self._stated: Floats | None = None

    @property
    def test_prior(self) -> Floats | None:
        """Pi, the mean of all clients' class priors, once it is known."""
        if self.settings.test_prior != "sets":
            return None
        summed: Floats | None = self.state.get(SUMMED_PRIOR)
        return self._stated if summed is None else summed if len(summed) else None

    def admit(self, answer: Content) -> None:
        """Require class masses."""
        if self.settings.sends_class_masses and not answer.values.get("reason"):
            _masses(answer)

    def registered(self, answers: Mapping[int, Content]) -> None:
        """Compute pi from them."""
        if self.settings.sends_class_masses:
            self._stated = mean_prior([_masses(answer) for answer in answers.values()])

    def ready(self, round: RoundAtServer) -> None:
        """Sum what the clients know of their sets, once, if they do not tell it one by one.

        Clients that join later are not in it: a second sum would tell their parts.
        """
        has_masses, has_gram = sums_of_sets(self.settings)
        if SUMMED_PRIOR in self.state or not (has_masses or has_gram):
            return
        strategy, k = self.strategy, self.strategy.num_classes
        size = k * has_masses + k * k * has_gram
        sums, _ = strategy.sums.collect(round.grid, OF_SETS, strategy.registry.clients, size)
        prior = np.zeros(0)
        if has_masses:
            try:
                prior = mean_prior([sums[:k]])
            except ValueError as error:
                raise UserError(
                    "The secure sum of class masses holds numbers that no sets have.", "sum-wrong"
                ) from error
        if has_gram:
            strategy.policy.check_directions(directions_of_gram(sums[-k * k :].reshape(k, k)))
        self.state[SUMMED_PRIOR] = prior
        strategy.on_summed()

    def config(self) -> Mapping[str, Value]:
        """Pi."""
        prior = self.test_prior
        return {} if prior is None else {TEST_PRIOR: prior.tolist()}


def _masses(answer: Content) -> Floats:
    masses = numbers(answer, CLASS_MASSES)
    if not masses.any():
        raise BadMessageError(f"a message came with no valid {CLASS_MASSES}")
    return masses


class ClassPriors(Stage):
    """FedUL's pi, or the rank of all sets together, follow from what clients know of their sets."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """For methods of FedUL, with ``test-prior = "sets"`` or a sum of what sets tell apart."""
        is_of_sets = settings.test_prior == "sets" or needs_rank(settings)
        return is_of_sets and settings.find(FedULSettings) is not None

    @classmethod
    def sends(cls, settings: RunConfig) -> Declared:
        """Class masses, once."""
        if not settings.sends_class_masses:
            return {}
        says = "how many points of each class it has, by the class shares of its sets"
        return {SETUP: {CLASS_MASSES: Part("classes", at_least=0, says=says)}}

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """Of class masses and of what they tell apart, once."""
        if not any(sums_of_sets(settings)):
            return {}
        says = (
            "by the class shares of its sets how many points of each class it has, and "
            "what they tell apart"
        )
        return {OF_SETS: Sum.of(says, "once, in round 1", once=True)}
