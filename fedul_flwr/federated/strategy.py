"""The server side that all methods share: a wrapper around any base strategy.

The base decides how updates are combined. The wrapper decides who takes part in a round, keeps
batch-norm buffers away from the base, puts replies in a fixed order, counts traffic and failures,
and gives methods their hooks. Flower's ``start`` is used as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from logging import INFO
from pathlib import Path
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedul_flwr.config.run_config import LAST_MODEL, RunConfig
from fedul_flwr.data.types import Arrays, Floats
from fedul_flwr.errors import NoUpdateError, UserError
from fedul_flwr.federated.aggregation import average_buffers, merge, refuse_poison
from fedul_flwr.federated.base_state import dump_base_state, load_base_state
from fedul_flwr.federated.base_strategies import ROBUST, refuse_too_few
from fedul_flwr.federated.buffers import add_arrays, client_weights, strip
from fedul_flwr.federated.messages import (
    ARRAYS,
    Content,
    Value,
    payload_bytes,
    to_arrays,
)
from fedul_flwr.federated.phases import Member
from fedul_flwr.federated.reception import Reception
from fedul_flwr.federated.round_record import RoundRecord
from fedul_flwr.federated.sampled_grid import GridView
from fedul_flwr.federated.server_training import ServerTrainer
from strategies.fednova import NORMALIZER

BASE = "base/"
"""Prefix of the base's memory among the arrays that a run resumes from."""


class WrappingStrategy(Reception):
    """Base class of every method's strategy.

    Subclasses override :meth:`admit` and :meth:`admitted` to look at what clients say before round
    1, and any hook of Flower's :class:`Strategy`, calling ``super()``.

    Parameters
    ----------
    settings : the run's settings, with ``selection`` resolved.
    base : the strategy that aggregates.
    nodes : node ids that take part.
    introduction : what clients are told in phase ``prepare``.
    buffers : names of arrays that are averaged but kept from the base (batch-norm statistics: an
        adaptive base could turn a variance negative).
    round_offset : rounds already done, when a run resumes.
    trainer : for methods that train at the server.

    Attributes
    ----------
    rate_factor : what the step size of the server's own training is multiplied by (`plateau`).
    about_rate : what clients are told for their step sizes in the next round (`plateau`).
    local_models : with ``evaluate = "local"``, what the clients of the round in hand returned, in
        partition order.
    """

    can_hold_out = False
    """Whether clients can evaluate on held-out unlabeled data."""
    trains_at_server = False
    """Whether it always trains at the server; see :meth:`learns_at_server`."""
    takes_test_prior = False
    """Whether its models are trained for given class priors at test time."""
    can_train_alone = True
    """Whether its clients learn something without each other (``base = "local"``)."""
    returns_models = True
    """Whether clients return whole models, which ``max-update-norm`` can measure."""
    rate_factor = 1.0

    def __init__(
        self,
        settings: RunConfig,
        base: Strategy,
        nodes: Iterable[int],
        introduction: Content,
        *,
        buffers: frozenset[str] = frozenset(),
        round_offset: int = 0,
        trainer: ServerTrainer | None = None,
    ) -> None:
        super().__init__(settings, base, nodes, introduction, round_offset)
        self.buffers = buffers
        self.trainer = trainer
        self.about_rate: dict[str, Value] = {}
        self.local_models: list[Arrays] = []
        self._global: ArrayRecord | None = None

    # Hooks of methods

    @classmethod
    def learns_at_server(cls, settings: RunConfig) -> bool:
        """Whether it needs a :class:`ServerTrainer`, and so labeled points at the server."""
        del settings
        return cls.trains_at_server

    @classmethod
    def check(cls, settings: RunConfig) -> None:
        """Refuse settings that have no effect on this method, before anything starts."""
        if settings.test_prior != "uniform" and not cls.takes_test_prior:
            raise UserError(
                f"Setting test-prior = {settings.test_prior!r}: "
                f"{settings.method!r} has no transition that takes class priors."
            )
        alone = cls.can_train_alone and not cls.learns_at_server(settings)
        if settings.base == "local" and not alone:
            raise UserError(
                f"Setting base = 'local': method {settings.method!r} is not one of clients alone."
            )
        if settings.max_update_norm and not (cls.returns_models and settings.base != "local"):
            raise UserError(
                f"Setting max-update-norm = {settings.max_update_norm:g}: method "
                f"{settings.method!r} with base = {settings.base!r} combines no clients' models."
            )

    @property
    def test_prior(self) -> Floats | None:
        """``(K,)``, pi, the class priors that the model is trained for; ``None`` if not known."""
        return None

    def round_config(self) -> dict[str, Value]:
        """What clients are told beside the model, in every round."""
        return {}

    def stage_start(self, round_number: int) -> int:
        """First round of the stage that a round belongs to; `plateau` begins anew in each."""
        del round_number
        return 1

    def take_part(self, round_number: int, arrays: ArrayRecord, grid: Grid) -> list[Member]:
        """Members that train in a round: the sample, after extra phases with it if there are any.

        Parameters
        ----------
        arrays : the model that the round starts from.
        """
        del arrays, grid
        return self.sample(round_number)

    def local_model(self, reply: Message) -> Arrays:
        """The model that a client returned, for ``evaluate = "local"``; by name, not abridged."""
        return to_arrays(cast(ArrayRecord, reply.content[ARRAYS]))

    def combine_own(self, replies: Sequence[Message], weights: Floats) -> None:
        """Combine, and take out of ``replies``, what clients return that the base does not know."""

    def memory(self) -> dict[str, NDArray[Any]]:
        """What must survive between rounds when a run resumes; the base's memory by default."""
        return {BASE + name: array for name, array in dump_base_state(self.base).items()}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`memory` gave."""
        base = {
            name.removeprefix(BASE): array
            for name, array in memory.items()
            if name.startswith(BASE)
        }
        load_base_state(self.base, base)

    def begin_round(self, server_round: int, arrays: ArrayRecord) -> int:
        """Start a round's record; returns the round's number, counted over resumed runs."""
        self._global = arrays
        self.local_models = []
        self.record = RoundRecord(
            round=server_round + self.round_offset,
            model_bytes=payload_bytes(RecordDict({ARRAYS: arrays})),
            model_values=sum(math.prod(array.shape) for array in arrays.values()),
        )
        return self.record.round

    def train_at_server(self, arrays: ArrayRecord | None) -> ArrayRecord:
        """``arrays`` after one round of training on the server's labeled set."""
        if self.trainer is None or arrays is None:
            raise RuntimeError(f"{type(self).__name__} needs a trainer and a model")
        trained, self.record.metrics["server-loss"] = self.trainer.train(
            arrays, self.record.round, self.rate_factor
        )
        return trained

    @property
    def global_arrays(self) -> ArrayRecord:
        """The model that this round started from."""
        if self._global is None:
            raise RuntimeError("configure_train has to come before aggregate_train")
        return self._global

    def write_messages(self, messages: Iterable[Message]) -> None:
        """Complete the base's messages by what clients start from, and count their bytes."""
        self.record.down.update(add_arrays(messages, self.global_arrays))

    # Flower's hooks

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample, and let the base write the messages."""
        round_number = self.begin_round(server_round, arrays)
        self.assemble(grid)
        chosen = self.take_part(round_number, arrays, grid)
        self.record.clients = len(chosen)
        refuse_too_few(self.settings, len(chosen))
        here = self.present(chosen)
        if not here:
            raise NoUpdateError(f"Round {round_number}: no client is left to train.")
        begin = self.global_arrays.items()
        weights = ArrayRecord({k: v for k, v in begin if k not in self.buffers})
        messages = list(
            self.base.configure_train(
                round_number, weights, self._config(config), GridView(grid, here)
            )
        )
        self._expected = self.expected(messages[0].content, self.global_arrays)
        self._messages = [message.metadata for message in messages]
        self.write_messages(messages)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the base combine weights; average buffers here."""
        usable = self._updates(replies)
        refuse_too_few(self.settings, len(usable))
        weights = client_weights(usable, self.settings.client_weights)
        self.combine_own(usable, weights)
        if self.settings.evaluate == "local" and self.settings.is_evaluated(self.record.round):
            self.local_models = [self.local_model(reply) for reply in usable]
        records = [cast(ArrayRecord, reply.content[ARRAYS]) for reply in usable]
        robust = self.settings.base in ROBUST
        start = self.global_arrays
        buffers = average_buffers(records, weights, self.buffers, start, robust=robust)
        names = [name for name in self.global_arrays if name not in self.buffers]
        for reply, weight in zip(usable, weights, strict=True):
            strip(reply, float(weight), names)
        arrays, metrics = self.base.aggregate_train(server_round + self.round_offset, usable)
        if arrays is None:
            raise UserError(f"Round {self.record.round}: the base strategy combined no update.")
        if metrics is not None:
            self.record.metrics = {
                key: float(value)
                for key, value in metrics.items()
                if not isinstance(value, list) and key != NORMALIZER
            }
        return merge(arrays, buffers, self.global_arrays), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients for held-out losses where those choose the best round."""
        round_number = server_round + self.round_offset
        refuse_poison(arrays, self.memory(), round_number, Path(self.settings.output) / LAST_MODEL)
        self._messages = []
        if self.settings.selection != "heldout" or not self.settings.is_evaluated(round_number):
            return []
        view = GridView(grid, self.evaluating())
        messages = list(
            self.base.configure_evaluate(round_number, arrays, self._config(config), view)
        )
        self._messages = [message.metadata for message in messages]
        # A part of its own: it goes to others than those that train in the round.
        sent = sum(payload_bytes(message.content) for message in messages)
        self.record.down["evaluation"] = sent
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Mean held-out loss, weighted by points."""
        usable = self._evaluations(replies)
        if not usable:
            return None
        metrics = self.base.aggregate_evaluate(server_round + self.round_offset, usable)
        if metrics is not None:
            self.record.heldout_loss = float(cast(float, metrics["loss"]))
        return metrics

    def summary(self) -> None:
        """Log what wraps what."""
        log(INFO, "\t├──> %s around %s", type(self).__name__, type(self.base).__name__)
        self.base.summary()

    # Inside

    def _config(self, config: ConfigRecord) -> ConfigRecord:
        return ConfigRecord({**config, **self.round_config(), **self.about_rate})
