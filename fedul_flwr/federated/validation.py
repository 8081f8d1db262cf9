"""Checks clients' replies: an invalid reply is dropped, and its client counts as failed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from flwr.app import ArrayRecord, Message, Metadata, MetricRecord

from fedul_flwr.config.baselines import SupervisedSettings
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.semi import LabelsOnlySettings
from fedul_flwr.data.content import number
from fedul_flwr.errors import BadMessageError, NoUpdateError
from fedul_flwr.federated.blame import failure_reason, printable
from fedul_flwr.federated.codec import UpdateCodec
from fedul_flwr.federated.messages import (
    ARRAYS,
    DIAGNOSTICS,
    METRICS,
    NUM_POINTS,
    WEIGHT,
    payload_parts,
)
from fedul_flwr.federated.phases import replies_to
from fedul_flwr.federated.registry import ClientRef, ClientRegistry
from fedul_flwr.federated.reply_checks import (
    ENDED,
    STARTED,
    check_all_bytes,
    check_clipped,
    check_metrics,
    check_normalizer,
    check_points,
    check_update,
    common_form,
    form_of,
    update_norm,
)
from fedul_flwr.federated.round_record import RoundLog

Received = list[tuple[ClientRef, Message]]
"""Replies in partition order."""


class UpdateValidator:
    """Passes valid replies on to the base, and counts clients with invalid ones as failed.

    Parameters
    ----------
    settings : the run's settings.
    registry : the clients of the run.
    rounds : counts failures, traffic and times.
    codec : decodes updates.
    """

    def __init__(
        self, settings: RunConfig, registry: ClientRegistry, rounds: RoundLog, codec: UpdateCodec
    ) -> None:
        self._settings, self._registry, self._rounds = settings, registry, rounds
        self._codec = codec
        self._asked: Sequence[Metadata] = ()
        self._expected: Mapping[str, ArrayRecord] = {}

    def expect(
        self, messages: Iterable[Message], expected: Mapping[str, ArrayRecord] | None = None
    ) -> None:
        """Accept only replies to ``messages`` whose arrays have the forms of ``expected``."""
        self._asked = [message.metadata for message in messages]
        self._expected = expected or {}

    def updates(self, replies: Iterable[Message]) -> list[Message]:
        """Valid updates of clients that had data to train on.

        Raises
        ------
        NoUpdateError
            If there is none.
        """
        record = self._rounds.record
        found = self._checked(self._received(replies, trained=True), self._decode)
        if not found:
            raise NoUpdateError(f"Round {record.round}: no client returned an update.")
        for _, reply in found:
            spans = cast(Mapping[str, float], reply.content[DIAGNOSTICS])
            record.spans.append((float(spans[STARTED]), float(spans[ENDED])))
        sound = self._checked(self._of_one_form(found), self._codec.keep)
        record.clients = len(sound)
        trained = [reply for _, reply in sound if _weight(reply) > 0]
        if not trained:
            raise NoUpdateError(f"Round {record.round}: no client had anything to learn from.")
        return trained

    def evaluations(self, replies: Iterable[Message]) -> Received:
        """Valid losses of clients that have held-out data."""
        found = self._of_one_form(self._received(replies, trained=False))
        return [(client, reply) for client, reply in found if _weight(reply) > 0]

    def _received(self, replies: Iterable[Message], *, trained: bool) -> Received:
        """One reply per client that was asked and answered in time, with valid metrics."""
        nodes = {metadata.dst_node_id for metadata in self._asked}
        asked = {c.node_id: c for c in self._registry.clients if c.node_id in nodes}
        heard: dict[ClientRef, Message] = {}
        reasons: dict[ClientRef, str] = {}
        for node, reply in replies_to(self._asked, replies):
            client = asked.get(node)
            if client is None or client in heard or client in reasons:
                continue
            if reply.has_error():
                reasons[client] = failure_reason(reply, node)
            else:
                heard[client] = reply
                self._rounds.record.up.update(payload_parts(reply.content))
        silent = sorted(client for client in asked.values() if client not in heard)
        self._registry.failed.update(silent)
        if silent:
            late = "no reply within round-timeout"
            self._rounds.fail({str(client): reasons.get(client, late) for client in silent})

        def check(client: ClientRef, reply: Message) -> None:
            check_all_bytes(reply.content)
            check_metrics(reply.content, trained=trained)
            self._check_counts(client, reply, trained=trained)

        return self._checked([(client, heard[client]) for client in sorted(heard)], check)

    def _check_counts(self, client: ClientRef, reply: Message, *, trained: bool) -> None:
        """Hold a reply's counts against the number of points that its client has announced."""
        points = number(self._registry.answers[client.partition_id], NUM_POINTS)
        metrics, settings = _metrics(reply), self._settings
        check_points(metrics, points)
        if trained and settings.base == "fednova" and _weight(reply) > 0:
            # These steps are those of FedUL's sets, in a simulation alone.
            known = settings[SupervisedSettings].steps == "labeled"
            known &= not settings[LabelsOnlySettings].epoch_steps
            most = settings.local_epochs * points if known else math.inf
            check_normalizer(metrics, settings.momentum, most)

    def _of_one_form(self, found: Received) -> Received:
        """Replies whose metrics have the most frequent form, as bases need equal ones.

        The metrics of replies without weight are not used.
        """
        forms = [form_of(_metrics(reply)) for _, reply in found if _weight(reply) > 0]
        common = common_form(forms) if forms else frozenset()

        def check(client: ClientRef, reply: Message) -> None:
            del client
            odd = sorted(form_of(_metrics(reply)) ^ common) if _weight(reply) > 0 else []
            if odd:
                name = odd[0][0]
                raise BadMessageError(f"its metrics differ from the other clients' in {name!r}")

        return self._checked(found, check)

    def _decode(self, client: ClientRef, reply: Message) -> None:
        self._codec.decode(client, reply, self._rounds.record)
        clipping = self._settings[DPSettings].clipping
        if _weight(reply) == 0:
            if clipping != "none":
                raise BadMessageError(
                    f"it had nothing to learn from, and with dp.clipping = {clipping!r} every "
                    "client of a round must return an update"
                )
            if not self._codec.keeps(reply):
                return  # the reply is not used
        check_update(reply.content, self._expected)
        if clipping == "client":
            start, norm = self._expected[ARRAYS], self._settings[DPSettings].norm
            check_clipped(cast(ArrayRecord, reply.content[ARRAYS]), start, norm)
        bound = self._settings.max_update_norm
        for name in self._codec.bounded if bound else ():
            norm = update_norm(cast(ArrayRecord, reply.content[name]), self._expected[name])
            if norm > bound:
                raise BadMessageError(
                    f"its update has norm {norm:.6g}, above max-update-norm = {bound:g}"
                )

    def _checked(self, found: Received, check: Callable[[ClientRef, Message], None]) -> Received:
        """Replies that pass ``check``; clients of the others count as failed."""
        sound = []
        for client, reply in found:
            try:
                check(client, reply)
            except (BadMessageError, ValueError) as error:
                self._rounds.fail({str(client): printable(str(error))})
            else:
                sound.append((client, reply))
        return sound


def _metrics(reply: Message) -> MetricRecord:
    return cast(MetricRecord, reply.content[METRICS])


def _weight(reply: Message) -> float:
    return float(cast(float, _metrics(reply)[WEIGHT]))
