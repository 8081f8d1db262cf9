"""Turns of the server, which trains on labels of its own (``server.when``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from flwr.app import ArrayRecord, Message

from fedul_flwr.arrays import Floats
from fedul_flwr.config.base import AUTO
from fedul_flwr.config.method_settings import LabelSourceSettings, ServerTrainingSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.federated.combine import mix
from fedul_flwr.federated.messages import ARRAYS, Spool
from fedul_flwr.federated.stage import RoundAtServer, ServerStage, Stage


def learns_at_server(settings: RunConfig) -> bool:
    """Whether the server needs labeled points, and a
    :class:`fedul_flwr.federated.server_training.ServerTrainer`."""
    always = find_method(settings.method).strategy_class.trains_at_server
    return always or settings[LabelSourceSettings].labels_at == "server"


def turn_of(settings: RunConfig) -> str:
    """When the server of such a run trains: ``"before"`` or ``"after"`` the clients, or
    ``"parallel"``."""
    chosen = settings[ServerTrainingSettings].when
    return find_method(settings.method).strategy_class.server_order if chosen == AUTO else chosen


class AtServer(ServerStage):
    """Trains before, after or in parallel to the clients, as the method says or the settings."""

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy)
        self._loss: float | None = None
        self._parallel: ArrayRecord | None = None

    def begin(self, round: RoundAtServer) -> None:
        """Train the model that the clients start from, or one in parallel."""
        if round.made is not None:
            return
        if self._is_turn("before"):
            round.model = self._trained(round.model, round.number)
        elif self._is_turn("parallel"):
            self._parallel = self._trained(round.model, round.number)

    def combine(self, replies: Sequence[Message], weights: Floats) -> None:
        """Half of what was trained in parallel in each model is half of it in any mean of them."""
        del weights
        if self._parallel is None:
            return
        spool = Spool()
        for reply in replies:
            model = cast(ArrayRecord, reply.content[ARRAYS])
            reply.content[ARRAYS] = mix(model, self._parallel, 0.5)
            spool.add(reply)
        self._parallel = None

    def end(self, model: ArrayRecord) -> ArrayRecord:
        """Train the round's model, if it is the server's turn; what was trained in parallel is the
        model where no client had anything to combine it with."""
        if self._parallel is not None:
            model, self._parallel = self._parallel, None
        if self._is_turn("after"):
            model = self._trained(model, self.strategy.record.round)
        if self._loss is not None:
            self.strategy.record.reported["server-loss"] = self._loss
        return model

    def _is_turn(self, turn: str) -> bool:
        return turn == turn_of(self.settings)

    def _trained(self, model: ArrayRecord, number: int) -> ArrayRecord:
        trained: ArrayRecord
        trained, self._loss = self.strategy.learn_labels(model, number)
        return trained


class ServerTraining(Stage):
    """The server trains on labels of its own."""

    server = AtServer

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """Where the method needs labels at the server."""
        return learns_at_server(settings)
