"""Replies of a round: what they may contain, and how models travel.

From a declaration of numbers follow the check at the server, what owners are told, how a secure sum
adds them up, and how they are combined. An invalid reply is dropped, and its client counts as
failed: each check raises a :class:`~fedul_flwr.errors.BadMessageError`; the caller adds the client.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict

from fedul_flwr.config.method_settings import SupervisedSettings
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.data.types import Arrays, number
from fedul_flwr.errors import BadMessageError, NothingToLearnError, NoUpdateError
from fedul_flwr.federated.combine import is_finite, update_norm
from fedul_flwr.federated.grid import RoundRecord, replies_to
from fedul_flwr.federated.members import ClientRegistry
from fedul_flwr.federated.messages import (
    ARRAYS,
    DIAGNOSTICS,
    METRICS,
    NORMALIZER,
    NUM_POINTS,
    WEIGHT,
    PlainArray,
    array_record,
    check_bytes,
    failure_reason,
    metric,
    metric_forms,
    payload_parts,
    printable,
    require_names,
    to_arrays,
)
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.payload import (
    ENDED,
    EVALUATED,
    STARTED,
    STEPS,
    Parts,
    Sizes,
    groups_of,
    in_record,
    masked_parts,
    reports_of,
)

# How models travel


class UpdateCodec:
    """Sends and receives whole models; subclasses send other forms.

    Attributes
    ----------
    decodes : declared records of an update that it turns into the model.
    """

    decodes: Collection[str] = ()

    def encode(
        self,
        messages: Iterable[Message],
        clients: Mapping[int, ClientRef],
        arrays: ArrayRecord,
        record: RoundRecord,
    ) -> None:
        """Add the arrays that clients start from to the base's messages, and count their bytes.

        Parameters
        ----------
        clients : by node.
        arrays : the model, including the arrays that the base does not see.
        """
        del clients
        record.down.update(add_arrays(messages, arrays))

    def decode(self, client: ClientRef, reply: Message, record: RoundRecord) -> None:
        """Replace the arrays in a client's reply by those that the base combines, in place.

        Metrics and the sizes of all arrays were checked before.

        Raises
        ------
        ValueError, BadMessageError
            If the reply is invalid; the client counts as failed.
        """

    def keeps(self, reply: Message) -> bool:
        """Whether something of a decoded reply is kept even if its update is not used."""
        del reply
        return False

    def keep(self, client: ClientRef, reply: Message) -> None:
        """Keep what later rounds need of a decoded reply; it has passed all other checks.

        Raises
        ------
        ValueError, BadMessageError
            If it cannot be kept; the client counts as failed.
        """

    def model(self, reply: Message) -> Arrays:
        """The model that a client returned, by name, from its decoded reply."""
        return to_arrays(cast(ArrayRecord, reply.content[ARRAYS]))


# Checks of replies

Received = list[tuple[ClientRef, Message]]
"""Replies in partition order."""


class UpdateValidator:
    """Passes valid replies on to the base, and counts clients with invalid ones as failed."""

    def __init__(self, registry: ClientRegistry, codec: UpdateCodec) -> None:
        self._settings, self._registry, self._rounds = registry.settings, registry, registry.rounds
        self._codec, self._reports = codec, reports_of(registry.settings)
        self._bounded = (ARRAYS, *groups_of(self._reports, codec.decodes))
        self._asked: Sequence[Metadata] = ()
        self._expected: Mapping[str, ArrayRecord] = {}

    def expect(
        self, messages: Iterable[Message], expected: Mapping[str, ArrayRecord] | None = None
    ) -> None:
        """Accept only replies to ``messages`` whose arrays have the forms of ``expected``."""
        self._asked = [message.metadata for message in messages]
        self._expected = expected or {}

    def updates(self, replies: Iterable[Message]) -> list[Message]:
        """Valid updates of clients that had data to train on."""
        record = self._rounds.record
        received = self._checked(self._received(replies, trained=True), self._decode)
        if not received:
            raise NoUpdateError(f"Round {record.round}: no client returned an update.")
        for _, reply in received:
            spans = cast(Mapping[str, float], reply.content[DIAGNOSTICS])
            record.spans.append((float(spans[STARTED]), float(spans[ENDED])))
        sound = self._checked(self._of_one_form(received), self._codec.keep)
        record.clients = len(sound)
        useful = [(client, reply) for client, reply in sound if _weight(reply) > 0]
        record.owners = {client.node_id: client.name for client, _ in useful if client.name}
        trained = [reply for _, reply in useful]
        if not trained:
            text = f"Round {record.round}: no client had anything to learn from."
            raise NothingToLearnError(text)
        return trained

    def evaluations(self, replies: Iterable[Message]) -> Received:
        """Valid losses of clients that have held-out data."""
        received = self._of_one_form(self._received(replies, trained=False))
        return [(client, reply) for client, reply in received if _weight(reply) > 0]

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
            sizes = self._registry.sizes
            if trained:
                masked = self._settings.sums_updates
                parts = masked_parts(self._reports) if masked else self._reports
                check_trained(reply.content, parts, sizes)
            else:
                require_names("reply", reply.content, {METRICS})
                check_reports(_metrics(reply), EVALUATED, sizes)
            self._check_counts(client, reply, trained=trained)

        return self._checked([(client, heard[client]) for client in sorted(heard)], check)

    def _check_counts(self, client: ClientRef, reply: Message, *, trained: bool) -> None:
        """Hold a reply's counts against the number of points that its client has announced."""
        points = number(self._registry.answers[client.partition_id], NUM_POINTS)
        metrics, settings = _metrics(reply), self._settings
        if cast(int, metrics[WEIGHT]) > points:  # the text has neither number
            raise BadMessageError(
                f"its {WEIGHT} is above the num-points that it announced", "message-contradicts"
            )
        if trained and settings.base == "fednova" and STEPS in metrics and _weight(reply) > 0:
            # These steps are those of FedUL's sets, in a simulation alone.
            is_counted = settings[SupervisedSettings].steps == "labeled"
            most = settings.local_steps or settings.local_epochs * points
            check_normalizer(metrics, settings.momentum, most if is_counted else math.inf)

    def _of_one_form(self, received: Received) -> Received:
        """Replies whose metrics have the most frequent form, as bases need equal ones.

        On ties it is one with fewer lists. The metrics of replies without weight are not used.
        """
        forms = [_form_of(reply) for _, reply in received if _weight(reply) > 0]
        votes = Counter(forms)
        common = max(
            forms,
            key=lambda form: (votes[form], -sum(size >= 0 for _, size in form)),
            default=frozenset(),
        )

        def check(client: ClientRef, reply: Message) -> None:
            del client
            if _weight(reply) > 0 and (odd := sorted(_form_of(reply) ^ common)):
                name = odd[0][0]
                raise BadMessageError(
                    f"its metrics differ from the other clients' in {name!r}", "message-contradicts"
                )

        return self._checked(received, check)

    def _decode(self, client: ClientRef, reply: Message) -> None:
        self._codec.decode(client, reply, self._rounds.record)
        clipping = self._settings[DPSettings].clipping
        if _weight(reply) == 0:
            if clipping != "none":
                raise BadMessageError(
                    f"it had nothing to learn from, and with dp.clipping = {clipping!r} every "
                    "client of a round must return an update",
                    "nothing-to-learn",
                )
            if not self._codec.keeps(reply):
                return  # the reply is not used
        check_update(reply.content, self._expected)
        masked = self._settings.sums_updates  # a client clips its update itself
        if clipping == "client" and not masked:
            start, norm = self._expected[ARRAYS], self._settings[DPSettings].norm
            check_clipped(cast(ArrayRecord, reply.content[ARRAYS]), start, norm)
        bound = self._settings.max_update_norm
        for name in self._bounded if bound and not masked else ():
            norm = update_norm(cast(ArrayRecord, reply.content[name]), self._expected[name])
            require_short(norm, bound, f"max-update-norm = {bound:g}")

    def _checked(self, received: Received, check: Callable[[ClientRef, Message], None]) -> Received:
        """Replies that pass ``check``; clients of the others count as failed."""
        sound = []
        for client, reply in received:
            try:
                check(client, reply)
            except (BadMessageError, ValueError) as error:
                self._rounds.fail({str(client): printable(str(error))})
            else:
                sound.append((client, reply))
        return sound


def _metrics(reply: Message) -> MetricRecord:
    return cast(MetricRecord, reply.content[METRICS])


def _form_of(reply: Message) -> frozenset[tuple[str, int]]:
    """Names of metrics, each with the length of its list; -1 for a single number."""
    return frozenset(metric_forms(_metrics(reply)))


def _weight(reply: Message) -> float:
    return metric(reply, WEIGHT)


def check_update(content: RecordDict, expected: Mapping[str, ArrayRecord]) -> None:
    """Check that arrays have the names, types and shapes of ``expected``, and finite values."""
    records = content.array_records
    require_names("update", records, expected)
    for record, arrays in expected.items():
        require_names(f"record {record!r}", records[record], arrays)
        for name, array in arrays.items():
            received = records[record][name]
            for what, seen, wanted in (
                ("shape", tuple(received.shape), tuple(array.shape)),
                ("type", received.dtype, array.dtype),
            ):
                if seen != wanted:
                    raise BadMessageError(
                        f"its update has {what} {seen} for {name!r}, not {wanted}", "message-form"
                    )
    if not all(is_finite(record) for record in records.values()):
        raise BadMessageError("its update is not finite", "message-out-of-range")


def check_all_bytes(content: RecordDict) -> None:
    """Check that every array has the bytes it needs (:func:`check_bytes`).

    Also makes decoding them free of copies, as bases decode every array several times.
    """
    for record in content.array_records.values():
        for name, array in record.items():
            check_bytes(name, array)
            record[name] = PlainArray.seen(array)


def check_trained(content: RecordDict, reports: Parts, sizes: Sizes) -> None:
    """Check that the reply of a training client has the declared numbers."""
    records = content.metric_records
    require_names("reply", [*records, *content.config_records], {METRICS, DIAGNOSTICS})
    metrics = records[METRICS]
    for record in (METRICS, DIAGNOSTICS):
        check_reports(records[record], in_record(reports, record), sizes)
    if metrics[WEIGHT] != 0 and metrics.get(NORMALIZER) == 0:
        raise BadMessageError(f"its {NORMALIZER} is 0, and it has trained", "message-contradicts")


def check_reports(metrics: MetricRecord, reports: Parts, sizes: Sizes) -> None:
    """Compare the numbers of a reply with their declarations."""
    required = [name for name, one in reports.items() if not one.optional]
    if WEIGHT in reports and not metrics.get(WEIGHT, 1):
        required = [WEIGHT]
    require_names("reply", metrics, required, reports)
    for name, value in metrics.items():
        reports[name].check(name, value, sizes)
    if WEIGHT in reports and not isinstance(metrics[WEIGHT], int):
        raise BadMessageError(f"its {WEIGHT} is no whole number", "message-form")


def check_normalizer(metrics: MetricRecord, momentum: float, most_steps: float) -> None:
    """Check FedNova's a_i of a client that has trained: it follows from the number of steps.

    Parameters
    ----------
    momentum : rho of the run, below 1.
    most_steps : largest number of steps that the client can have made.
    """
    steps, normalizer = metrics.get(STEPS), metrics.get(NORMALIZER)
    if not isinstance(steps, (int, float)) or not isinstance(normalizer, (int, float)):
        raise BadMessageError(f"its reply has no {STEPS} or no {NORMALIZER}", "message-incomplete")
    if steps < 1 or steps != int(steps):
        raise BadMessageError(
            f"its {STEPS} is no whole number above 0, and it has trained", "message-form"
        )
    follows = math.isclose(normalizer, normalizer_of(steps, momentum), rel_tol=1e-6)
    if steps > most_steps or not follows:
        raise BadMessageError(
            f"its {STEPS} are more than its points allow, or not those of its {NORMALIZER}",
            "message-contradicts",
        )


def normalizer_of(steps: float, momentum: float) -> float:
    """FedNova's a_i of ``steps`` steps of SGD, (s − rho·(1 − rho^s)/(1 − rho))/(1 − rho).

    It is the sum of the velocities (1 − rho^k)/(1 − rho), k = 1 … s (Wang et al. 2020, section
    4.1), as :func:`fedul_flwr.learning.local.local_normalizer` adds them up.
    """
    rest = momentum * (1 - math.pow(momentum, steps)) / (1 - momentum)
    return (steps - rest) / (1 - momentum)


def check_clipped(update: ArrayRecord, start: ArrayRecord, norm: float) -> None:
    """Check that a client has clipped its update to ``norm``, as ``dp.clipping = "client"`` says.

    Clipping in float32 is not exact: a thousandth of ``norm`` is allowed, and the rounding of
    ``start``'s values, to which the clipped update was added.
    """
    length = update_norm(update, start)
    rounding = math.sqrt(
        sum(
            float(np.finfo(array.dtype).eps * np.linalg.norm(array.numpy().astype(np.float64))) ** 2
            for array in start.values()
            if np.issubdtype(np.dtype(array.dtype), np.floating)
        )
    )
    require_short(length, 1.001 * norm + rounding, f"dp.norm = {norm:g}")


def require_short(length: float, most: float, setting: str) -> None:
    """Refuse an update that is longer than a setting allows."""
    if length > most:
        raise BadMessageError(
            f"its update has norm {length:.6g}, above {setting}", "update-too-large"
        )


def add_arrays(messages: Iterable[Message], arrays: ArrayRecord) -> Counter[str]:
    """Add the arrays that the base does not see to the models in its messages.

    Returns
    -------
    Bytes of the messages by part (:func:`fedul_flwr.federated.messages.payload_parts`).
    """
    # Most bases send every client the same content: rebuild and measure it once.
    rebuilt: dict[int, tuple[RecordDict, Counter[str]]] = {}
    total: Counter[str] = Counter()
    for message in messages:
        content = message.content
        if id(content) not in rebuilt:
            sent = cast(ArrayRecord, content[ARRAYS])
            full = array_record({name: sent.get(name, arrays[name]) for name in arrays})
            records = RecordDict({**content, ARRAYS: full})
            rebuilt[id(content)] = records, payload_parts(records)
        message.content, parts = rebuilt[id(content)]
        total.update(parts)
    return total
