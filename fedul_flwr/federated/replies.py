"""Replies of a round: what they may contain.

From a declaration of numbers follow the check at the server, what owners are told, how a secure sum
adds them up, and how they are combined. An invalid reply is dropped, and its client counts as
failed: each check raises a :class:`~fedul_flwr.errors.BadMessageError`; the caller adds the client.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict

from fedul_flwr.config.method_settings import SupervisedSettings
from fedul_flwr.data.types import number
from fedul_flwr.errors import BadMessageError, NothingToLearnError, NoUpdateError
from fedul_flwr.federated.combine import is_finite, update_norm
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.grid import replies_to
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
)
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.payload import (
    ENDED,
    EVALUATED,
    OF_ALL,
    STARTED,
    STEPS,
    TRAIN,
    Parts,
    Sizes,
    groups_of,
    in_record,
    reports_of,
)
from fedul_flwr.federated.stage import ServerStage, are_hidden

Received = list[tuple[ClientRef, Message]]
"""Replies in partition order."""


class UpdateValidator:
    """Passes valid replies on to the base, and counts clients with invalid ones as failed."""

    def __init__(self, registry: ClientRegistry, stages: Sequence[ServerStage]) -> None:
        self._settings, self._registry, self._rounds = registry.settings, registry, registry.rounds
        self._stages, self._reports = stages, reports_of(registry.settings)
        self._bounded = (ARRAYS, *groups_of(self._reports, decoded(stages)))
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
        sound = self._checked(self._of_one_form(received), self._keep)
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
                check_trained(reply.content, declared(self._settings)[TRAIN], sizes)
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
        is_kept = [stage.decode(client, reply) for stage in self._stages]
        if _weight(reply) == 0 and not any(is_kept):
            return  # the reply is not used
        check_update(reply.content, self._expected)
        bound = self._settings.max_update_norm
        is_seen = not are_hidden(self._settings)  # else a client clips its update itself
        for name in self._bounded if bound and is_seen else ():
            norm = update_norm(cast(ArrayRecord, reply.content[name]), self._expected[name])
            require_short(norm, bound, f"max-update-norm = {bound:g}")

    def _keep(self, client: ClientRef, reply: Message) -> None:
        for stage in self._stages:
            stage.keep(client, reply)

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


def decoded(stages: Iterable[ServerStage]) -> frozenset[str]:
    """Declared arrays of updates that stages turn into the model."""
    return frozenset().union(*(stage.decodes for stage in stages))


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
    has_trained = metrics.get(WEIGHT, 1) != 0
    for record in (METRICS, DIAGNOSTICS):
        check_reports(records[record], in_record(reports, record), sizes, has_trained)
    if metrics[WEIGHT] != 0 and metrics.get(NORMALIZER) == 0:
        raise BadMessageError(f"its {NORMALIZER} is 0, and it has trained", "message-contradicts")


def check_reports(
    metrics: MetricRecord, reports: Parts, sizes: Sizes, has_trained: bool = True
) -> None:
    """Compare the numbers of a reply with their declarations."""
    needed = [name for name, part in reports.items() if not part.optional]
    required = [name for name in needed if has_trained or name in OF_ALL]
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


def require_short(length: float, most: float, setting: str) -> None:
    """Refuse an update that is longer than a setting allows."""
    if length > most:
        raise BadMessageError(
            f"its update has norm {length:.6g}, above {setting}", "update-too-large"
        )


def add_arrays(messages: Iterable[Message], arrays: ArrayRecord) -> None:
    """Add the arrays that the base does not see to the models in its messages."""
    # Most bases send every client the same content: rebuild it once.
    rebuilt: dict[int, RecordDict] = {}
    for message in messages:
        content = message.content
        if id(content) not in rebuilt:
            sent = cast(ArrayRecord, content[ARRAYS])
            full = array_record({name: sent.get(name, arrays[name]) for name in arrays})
            rebuilt[id(content)] = RecordDict({**content, ARRAYS: full})
        message.content = rebuilt[id(content)]


def sent_bytes(messages: Iterable[Message]) -> Counter[str]:
    """Bytes of messages by part (:func:`fedul_flwr.federated.messages.payload_parts`)."""
    parts: dict[int, Counter[str]] = {}
    total: Counter[str] = Counter()
    for message in messages:
        content = message.content
        if id(content) not in parts:
            parts[id(content)] = payload_parts(content)
        total.update(parts[id(content)])
    return total
