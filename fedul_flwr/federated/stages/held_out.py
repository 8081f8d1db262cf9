"""Losses on points that clients hold out, by which the best round is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from logging import WARNING
from statistics import median
from typing import cast

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.common import Scalar, log

from fedul_flwr.arrays import Floats
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Content, count
from fedul_flwr.errors import TooFewLeftError
from fedul_flwr.federated.client import names_of
from fedul_flwr.federated.grid import SampledGrid
from fedul_flwr.federated.messages import metric, payload_bytes, to_arrays
from fedul_flwr.federated.owner.model_check import check_model
from fedul_flwr.federated.payload import (
    EVALUATE,
    EVALUATED,
    LOSS,
    LOSS_IN_WORDS,
    Declared,
    Sum,
)
from fedul_flwr.federated.stage import (
    ClientStage,
    RoundAtServer,
    ServerStage,
    Stage,
    are_hidden,
)

OF_LOSSES = "heldout"
"""Name of the sum of held-out losses."""
_SAYS = f"{LOSS_IN_WORDS} on points that it left out of training"
_OFTEN = "every round that is evaluated"


class AtClient(ClientStage):
    """Evaluates models on its points that are held out (the method's ``evaluate``)."""

    def part(self, of: str, content: Content) -> Floats | None:
        """Whether it has such points, and the loss."""
        if of != OF_LOSSES:
            return None
        client = self.client
        model = [content.arrays[name] for name in names_of(client, content.arrays)]
        check_model(client, content.arrays, count(content, "server-round") + 1)
        config = cast(dict[str, Scalar], dict(content.values))
        loss, num_points, _ = client.evaluate(model, config)
        return np.array([float(num_points > 0), loss])


class AtServer(ServerStage):
    """Asks for the losses, or for their sum."""

    def ask_losses(self, round: RoundAtServer, config: ConfigRecord) -> list[Message]:
        """Messages that ask clients for held-out losses."""
        strategy = self.strategy
        if not self.settings.is_evaluated(round.number):
            return []
        if are_hidden(self.settings):
            strategy.record.heldout_loss = self._summed(round, config)
            return []
        view = SampledGrid(round.grid, [one.node_id for one in strategy.registry.evaluating()])
        messages = list(strategy.base.configure_evaluate(round.number, round.model, config, view))
        # A part of its own: it goes to others than those that train in the round.
        sent = sum(payload_bytes(message.content) for message in messages)
        strategy.record.down["evaluation"] = sent
        return messages

    def _summed(self, round: RoundAtServer, config: ConfigRecord) -> float | None:
        """Mean of the clients' held-out losses, each of which counts once; ``None`` without any."""
        strategy = self.strategy
        clients, arrays = strategy.registry.evaluating(), to_arrays(round.model)
        try:
            sums, _ = strategy.sums.collect(round.grid, OF_LOSSES, clients, 2, arrays, {**config})
        except TooFewLeftError as error:
            log(WARNING, "Round %s has no held-out loss: %s", round.number, error)
            return None
        measured, total = sums
        return float(total / measured) if measured else None

    def read_losses(self, replies: Iterable[Message]) -> MetricRecord | None:
        """Median of the clients' held-out losses: no single client moves it at will.

        It counts every client once, for their numbers of points are their own word. The base, which
        would take a mean, is not asked.
        """
        record = self.strategy.record
        usable = self.strategy.validator.evaluations(replies)
        if not usable:
            return None
        losses = {client.partition_id: metric(reply, LOSS) for client, reply in usable}
        record.heldout_losses = sorted(losses.items())
        record.heldout_loss = float(median(losses.values()))
        return MetricRecord({LOSS: record.heldout_loss})


class HeldOut(Stage):
    """The best round is that of the smallest loss on held-out points."""

    server, client = AtServer, AtClient

    @classmethod
    def is_on(cls, settings: RunConfig) -> bool:
        """With ``selection = "heldout"``."""
        return settings.selection == "heldout"

    @classmethod
    def sends(cls, settings: RunConfig) -> Declared:
        """The loss."""
        if are_hidden(settings):
            return {}
        says = f"{_SAYS}, and how many these are"
        return {EVALUATE: {k: replace(p, says=says, often=_OFTEN) for k, p in EVALUATED.items()}}

    @classmethod
    def sums(cls, settings: RunConfig) -> Mapping[str, Sum]:
        """The sum of losses."""
        return {OF_LOSSES: Sum.of(_SAYS, _OFTEN)} if are_hidden(settings) else {}
