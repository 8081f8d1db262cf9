"""FedMatch (Jeong et al. 2021): sigma and psi combined apart, helpers, sparse differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from logging import WARNING
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedul_flwr.config.matching import FedMatchSettings, SupervisedPartSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import NoUpdateError, UserError
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DIAGNOSTICS,
    METRICS,
    payload_parts,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.phases import Member
from fedul_flwr.federated.sparse import decode, encode
from fedul_flwr.federated.sync import HELPERS, OUT_OF_STEP, SINCE
from fedul_flwr.learning.decomposition import (
    SIGMA,
    Decomposed,
    Parts,
    compose,
    decompose,
    flatten,
    unflatten,
    unlabeled_part,
)
from fedul_flwr.learning.disjoint import no_consistency, train_disjoint
from fedul_flwr.learning.machine import place
from fedul_flwr.learning.weighted import scaled_cross_entropy
from fedul_flwr.results.store import RunDirectory
from strategies.held import HeldParts
from strategies.helper_choice import HelperChoice
from strategies.matching import Matching

PARTS = "parts/"
"""Prefix of the parts among the arrays that a run resumes from."""
UNFIT_BASES = ("scaffold", "fednova", "local")
"""Bases that look into local training, and so at a whole model."""


class FedMatch(Matching):
    """Combines sigma and psi apart, by a base that works on each value of its own.

    Flower's rounds pass the model theta on, as it is evaluated; its parts are kept here.
    """

    returns_models = False

    def __init__(self, settings: RunConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(settings, *args, **kwargs)
        self._buffers_of_model = self.buffers
        self._parts: Parts = {}
        self._counters: Arrays = {}
        self._held = HeldParts(RunDirectory(Path(settings.output)).held)
        self._sent: dict[int, dict[str, Arrays]] = {}

    @classmethod
    def check(cls, settings: RunConfig) -> None:
        """Refuse bases that do not combine value by value, and steps that diverge."""
        super().check(settings)
        if settings.base in UNFIT_BASES:
            raise UserError(
                f"Setting base = {settings.base!r}: method 'fedmatch' combines sigma and psi "
                f"apart, which goes with all bases but {', '.join(UNFIT_BASES)}."
            )
        options = settings.section("fedmatch", FedMatchSettings)
        l2 = options.l2_weight if options.decomposition else 0.0
        # Gradient descent on λ_L2·‖σ − ψ‖² converges for smaller steps only (Polyak 1964).
        limit = (1 + settings.momentum) / l2 if l2 else math.inf
        if settings.optimizer == "sgd" and settings.learning_rate >= limit:
            raise UserError(
                f"Setting learning-rate = {settings.learning_rate}: with fedmatch.l2-weight = {l2} "
                f"psi would overshoot sigma in every step; it must be below {limit:g}."
            )

    @property
    def options(self) -> FedMatchSettings:
        """FedMatch's own settings."""
        return self.settings.section("fedmatch", FedMatchSettings)

    @cached_property
    def helpers(self) -> HelperChoice:
        """Who helps whom."""
        told: Mapping[str, Any] = self.introduction.values
        shape = told["height"], told["width"], told["channels"]
        return HelperChoice(self.settings, shape, len(told["class-names"]))

    @property
    def exchanged(self) -> list[str]:
        """Parts that clients return: not sigma where only the server changes it."""
        at_server = self.learns_at_server(self.settings)
        return [part for part in self._parts if not (at_server and part == SIGMA)]

    # The model

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Take the model apart before the first round."""
        if not self._parts:
            factor = self.options.psi_factor if self.options.decomposition else None
            trained = bool(self.settings.start_from)
            self._parts = decompose(
                to_arrays(arrays), self._buffers_of_model, factor, whole=trained
            )
        last = unlabeled_part(self._parts)
        known = self._parts[last]
        self.buffers = frozenset(f"{last}/{name}" for name in self._buffers_of_model & known.keys())
        self._counters = {n: array.numpy() for n, array in arrays.items() if n not in known}
        return super().configure_train(server_round, arrays, config, grid)

    def begin_round(self, server_round: int, arrays: ArrayRecord) -> int:
        """The base combines parts; what traffic is compared with is the model."""
        number = super().begin_round(server_round, arrays)
        exchanged = {part: self._parts[part] for part in self.exchanged}
        self._global = to_record(flatten(exchanged))
        return number

    def learn_labels(self, arrays: ArrayRecord, server_round: int) -> tuple[ArrayRecord, float]:
        """Train sigma on the server's labels, with psi as it is (algorithm 2, lines 4 to 8)."""
        assert self.trainer is not None  # as `learns_at_server` says
        weight = self.settings.section("ssl", SupervisedPartSettings).supervised_weight
        plan = self.trainer.plan(server_round, self.rate_factor)
        decomposed = Decomposed(place(self.trainer.model, plan.device, plan.precision), self._parts)
        result = train_disjoint(
            decomposed,
            self.trainer.batches(plan),
            scaled_cross_entropy(weight),
            no_consistency,
            plan,
            self.trainer.rng(server_round),
        )
        self._parts = decomposed.dump()
        return arrays, result.supervised

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the base combine parts; the model is their sum."""
        received, metrics = list(replies), None
        lost = sum(_is_out_of_step(reply) for reply in received)
        if lost:  # their memory; the next message to them has everything
            text = "Round %s: %s client(s) did not hold what they should, and sit it out."
            log(WARNING, text, self.record.round, lost)
        try:
            arrays, metrics = super().aggregate_train(server_round, received)
        except NoUpdateError:
            if not lost:
                raise  # else the model stays
        else:
            assert arrays is not None  # super() refuses a round without an update
            self._parts |= unflatten(to_arrays(arrays))
        for client in self._sent:  # without an answer: it may or may not have taken the message
            self._held.forget(client)
        self._sent = {}
        return to_record(self._model(self._parts)), metrics

    def _model(self, parts: Parts) -> Arrays:
        """What is evaluated and saved of ``parts``."""
        options = self.options
        return compose(parts, options.evaluate_with, options.psi_cutoff) | self._counters

    # Messages

    def write_messages(self, messages: Iterable[Message]) -> None:
        """What each client needs, as differences from what it holds."""
        members = {member.node_id: member for member in self.members}
        for message in messages:
            client = members[message.metadata.dst_node_id].partition_id
            config = cast(ConfigRecord, message.content[CONFIG])
            message.content = self._message(client, config)
            self.record.down.update(payload_parts(message.content))

    def _message(self, client: int, config: ConfigRecord) -> RecordDict:
        held, sent = self._held.of(client), {}
        since, threshold = self._held.rounds.get(client, 0), self.options.difference_threshold
        for part, arrays in self._parts.items():
            update = encode(arrays, held.get(part, {}), threshold)
            held[part], sent[part] = update.kept, update.record
            self.record.nonzero_down[part] += update.changed
        self._sent[client] = sent
        own, helpers = held[unlabeled_part(held)], {}
        for number, helper in enumerate(self._helpers_of(client)):
            update = encode(helper, own, threshold)
            helpers[str(number)] = update.record
            self.record.nonzero_down[HELPERS] += update.changed
        told = ConfigRecord({**config, SINCE: since, HELPERS: len(helpers)})
        travels = sent | ({HELPERS: flatten(helpers)} if helpers else {})
        records = {name: to_record(record) for name, record in travels.items()}
        return RecordDict({ARRAYS: ArrayRecord(), CONFIG: told, **records})

    def _helpers_of(self, client: int) -> list[Arrays]:
        """The helpers' psi, in rounds in which helpers are sent."""
        options = self.options
        if not options.helpers or self.record.round % options.helper_interval:
            return []
        chosen = self.helpers.helpers_of(client, options.helpers, self._held.rounds)
        return [self._held.of(helper)[unlabeled_part(self._parts)] for helper in chosen]

    def open_reply(self, member: Member, reply: Message) -> None:
        """What a client sent on top of what it was sent; note that it holds the sum of both."""
        if _is_out_of_step(reply):
            return
        client, content = member.partition_id, reply.content
        before = self._held.of(client)
        sent = self._sent[client].items()
        parts = {part: decode(record, before.get(part, {})) for part, record in sent}
        returned = {}
        for part in self.exchanged:
            if part not in content.array_records:
                raise ValueError(f"its update has no {part}")
            returned[part] = decode(to_arrays(content.array_records[part]), parts[part])
        if not all(np.isfinite(array).all() for array in flatten(returned).values()):
            raise ValueError("its update is not finite")
        if self.options.helpers:
            self.helpers.embed(client, compose(parts | returned) | self._counters)
        for part in returned:
            self.record.nonzero_up[part] += _count_changed(returned[part], parts[part])
        self._held.keep(client, self.record.round, parts | returned)
        del self._sent[client]
        metrics = MetricRecord(dict(content.metric_records[METRICS]))
        metrics.pop(OUT_OF_STEP)  # no figure to average
        reply.content = RecordDict(
            {
                ARRAYS: to_record(flatten(returned)),
                METRICS: metrics,
                DIAGNOSTICS: content[DIAGNOSTICS],
            }
        )

    def local_model(self, reply: Message) -> Arrays:
        """The sum of a client's parts, with the server's sigma where only that changes it."""
        returned = unflatten(to_arrays(cast(ArrayRecord, reply.content[ARRAYS])))
        return self._model(self._parts | returned)

    # Resuming

    def memory(self) -> dict[str, NDArray[Any]]:
        """The base's, the parts, who holds what since when, and embeddings."""
        parts = {PARTS + name: array for name, array in flatten(self._parts).items()}
        return super().memory() | parts | self._held.memory() | self.helpers.memory()

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`memory` gave."""
        super().recall(memory)
        self._parts = unflatten(
            {
                name.removeprefix(PARTS): array
                for name, array in memory.items()
                if name.startswith(PARTS)
            }
        )
        self._held.recall(memory)
        self.helpers.recall(memory)


def _is_out_of_step(reply: Message) -> bool:
    """Whether a client says that it does not hold what the server's message builds on."""
    if reply.has_error():
        return False
    metrics = reply.content.metric_records.get(METRICS)
    return metrics is not None and bool(metrics.get(OUT_OF_STEP))


def _count_changed(new: Arrays, before: Arrays) -> int:
    return sum(int(np.count_nonzero(array != before[name])) for name, array in new.items())
