"""Differential privacy: Flower's clipping and noise around a base that computes a mean."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from logging import WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import (
    GaussianPrivacyEvent,
    Grid,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)
from numpy.typing import NDArray

from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.data.content import Content
from fedul_flwr.errors import UserError
from fedul_flwr.federated.clipping import avoid_zero_norm
from fedul_flwr.federated.messages import ARRAYS
from fedul_flwr.federated.registry import ClientRef

COVERS = "all data of one client, in the models of all rounds; no other message or figure of it"
"""The data that epsilon covers."""
WRAPPERS = {
    "server": DifferentialPrivacyServerSideFixedClipping,
    "client": DifferentialPrivacyClientSideFixedClipping,
}
"""Flower's strategies by who clips."""
STATE = "state"


class PrivateMean(Strategy):
    """A base behind Flower's fixed clipping, Gaussian noise and accountant.

    Flower's wrapper needs the number of clients at its creation; clients may join later, so each
    round creates a new wrapper. If a sampled client returns no update, the round releases nothing:
    the model stays as it was, and no epsilon is spent.

    Parameters
    ----------
    base : sends one record with the model and combines by :meth:`FedAvg.aggregate_train`.
    settings : with ``clipping`` on.

    Attributes
    ----------
    num_clients : clients of the run, set before a round.
    accountant : tracks the spent budget; ``None`` before the first round.
    exhausted : whether the last round was refused because the budget is spent.
    """

    def __init__(self, base: FedAvg, settings: DPSettings) -> None:
        self.base = base
        self.settings = settings
        self.num_clients = 0
        self.accountant: RdpAccountant | None = None
        self.exhausted = False
        self._noisy: Strategy | None = None
        self._start = ArrayRecord()

    def know_clients(self, clients: Sequence[ClientRef]) -> None:
        """Set the number of clients of the run."""
        self.num_clients = len(clients)

    def check_client(self, client: int, answer: Content) -> None:
        """Accept every client."""

    @property
    def ledger(self) -> dict[str, NDArray[np.uint8]]:
        """The accountant's state as bytes, for resuming."""
        if self.accountant is None:
            return {}
        text = json.dumps(self.accountant.state_dict())
        return {STATE: np.frombuffer(text.encode(), dtype=np.uint8)}

    @ledger.setter
    def ledger(self, kept: Mapping[str, NDArray[np.uint8]]) -> None:
        """Restore the ledger of a run that has released something, so it is never empty."""
        state = json.loads(kept[STATE].tobytes())
        population = state["config"]["population_size"]
        self.accountant = build_accountant(self.settings, population, state)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The base's messages, if the budget allows one more release.

        Raises
        ------
        PrivacyBudgetExhausted
            If it does not.
        UserError
            If it allows none at all.
        """
        self._start = arrays
        self._noisy = self._wrap(len(list(grid.get_node_ids())))
        try:
            return self._noisy.configure_train(server_round, arrays, config, grid)
        except PrivacyBudgetExhausted:
            self.exhausted = True
            if self.accountant and self.accountant.num_releases:
                raise
            raise UserError(
                f"Setting dp.max-epsilon = {self.settings.max_epsilon}: one round alone exceeds "
                "it; raise it or dp.noise-multiplier."
            ) from None

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The noisy mean, or the unchanged model if an update is missing."""
        assert self._noisy is not None  # configure_train comes first
        # Flower draws the noise from this generator: reseed it, or the run's seed would reveal it.
        np.random.seed()  # noqa: NPY002
        received = list(replies)
        for reply in received:
            if self.settings.clipping == "server" and not reply.has_error():
                avoid_zero_norm(cast(ArrayRecord, reply.content[ARRAYS]), self._start)
        arrays, metrics = self._noisy.aggregate_train(server_round, received)
        if arrays is None:
            log(WARNING, "Round %s: an update is missing, so nothing is released.", server_round)
            return self._start, None
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the base does."""
        return self.base.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """As the base does."""
        return self.base.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """As the base does."""
        self.base.summary()

    def _wrap(self, sampled: int) -> Strategy:
        known = self.accountant
        if known is None or known.config.population_size < self.num_clients:
            state = None if known is None else known.state_dict()
            known = self.accountant = build_accountant(self.settings, self.num_clients, state)
        return WRAPPERS[self.settings.clipping](
            self.base,
            self.settings.noise_multiplier,
            self.settings.norm,
            sampled,
            accountant=known,
        )


def build_accountant(
    settings: DPSettings, num_clients: int, state: Mapping[str, Any] | None = None
) -> RdpAccountant:
    """Flower's accountant by Rényi divergence (Mironov 2017), of ``num_clients`` clients.

    Rounds compose as if every client took part in each (no amplification by sampling). Therefore
    the number of clients in earlier releases does not matter.

    Parameters
    ----------
    state : an earlier accountant's state, with all past releases.
    """
    accountant = RdpAccountant(
        PrivacyConfig(
            target_delta=settings.delta,
            population_size=num_clients,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
            max_epsilon=settings.max_epsilon or None,
        )
    )
    for released in state["compositions"] if state else ():
        noise_multiplier = released["event"]["noise_multiplier"]
        accountant.compose(
            GaussianPrivacyEvent(noise_multiplier, num_clients, num_clients), released["count"]
        )
    return accountant


def refuse_no_release(base: Strategy) -> None:
    """Refuse to report success for a private run whose model never changed.

    Raises
    ------
    UserError
        If ``base`` is private and has released nothing.
    """
    if isinstance(base, PrivateMean) and base.accountant and not base.accountant.num_releases:
        raise UserError(
            f"Setting dp.clipping = {base.settings.clipping!r}: an update was missing in every "
            "round, so nothing was released and the model is the one that the run began with."
        )


def privacy_spent(base: Strategy) -> dict[str, Any]:
    """Entries about privacy for the run's summary; empty if ``base`` is not private."""
    if not isinstance(base, PrivateMean) or base.accountant is None:
        return {}
    spent = base.accountant.get_privacy_spent()
    return {
        "epsilon": spent.epsilon,
        "delta": spent.delta,
        "releases": spent.num_releases,
        "epsilon_covers": COVERS,
        "budget_exhausted": base.exhausted,
    }
