"""What a client's reply may contain: numbers as its method declares them, and checks of all of it.

From a declaration follow the check at the server, what owners are told, how a secure sum adds the
numbers up, and how they are combined. An invalid reply is dropped, and its client counts as failed:
each check raises a :class:`~fedul_flwr.errors.BadMessageError`; the caller adds the client.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict

from fedul_flwr.config.method_settings import SupervisedSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.data.types import CONFIDENT_SHARE, LARGEST_COUNT, Floats, l2_norm, number
from fedul_flwr.errors import BadMessageError, NothingToLearnError, NoUpdateError
from fedul_flwr.federated.grid import replies_to
from fedul_flwr.federated.messages import (
    ARRAYS,
    DIAGNOSTICS,
    METRICS,
    NORMALIZER,
    NUM_POINTS,
    WEIGHT,
    PlainArray,
    check_bytes,
    failure_reason,
    metric,
    metric_forms,
    payload_parts,
    printable,
    require_names,
)
from fedul_flwr.federated.nodes import ClientRef, ClientRegistry
from fedul_flwr.federated.updates import UpdateCodec, is_finite

LOSS, STEPS = "loss", "steps"

Condition = Callable[[RunConfig], bool]

LARGEST = 1e280
"""Largest number. Weighted sums of them over clients stay finite; diverging losses are below it."""


@dataclass(frozen=True)
class Numbers:
    """One number, or a vector of them.

    Attributes
    ----------
    size : length of a vector, ``"classes"`` for one of length K; ``None`` for one number.
    at_least, at_most : range of each number.
    total : what the numbers of a vector add up to; ``None`` for anything.
    combine : what the server makes of all clients' numbers: their mean with the weights of the
        updates, or their sum.
    says : what it is, for owners of data.
    optional : whether there are rounds without it.
    when : whether it is sent in a run with given settings.
    """

    size: int | Literal["classes"] | None = None
    at_least: float = -LARGEST
    at_most: float = LARGEST
    total: float | None = None
    combine: Literal["mean", "sum"] = "mean"
    says: str = "how training went"
    optional: bool = False
    when: Condition = lambda _: True

    @classmethod
    def count(cls, **options: Any) -> Numbers:
        """A number of things; options are the other attributes."""
        return cls(at_least=0, at_most=LARGEST_COUNT, **options)

    def zeros(self, num_classes: int) -> Floats:
        """Numbers that are all 0, in the declared shape."""
        size = num_classes if self.size == "classes" else self.size
        return np.zeros(() if size is None else size)

    def check(self, name: str, value: Any, num_classes: int, *, masked: bool = False) -> None:
        """Refuse a client's numbers that are not as declared.

        Parameters
        ----------
        masked : whether the numbers are in a secure sum, and ``value`` only has their form.
        """
        numbers, form = np.asarray(value, dtype=float), self.zeros(num_classes)
        if numbers.shape != form.shape:
            wanted = f"{form.size} numbers" if form.ndim else "one number"
            raise BadMessageError(f"its {name} is not {wanted}", "message-form")
        if masked:
            return
        is_within = (self.at_least <= numbers) & (numbers <= self.at_most) & np.isfinite(numbers)
        if not is_within.all() or (
            self.total is not None and not math.isclose(numbers.sum(), self.total, abs_tol=1e-6)
        ):
            total = "" if self.total is None else f", {self.total:g} together"
            raise BadMessageError(
                f"its {name} is not within {self.at_least:g} to {self.at_most:g}{total}",
                "message-out-of-range",
            )


Reports = Mapping[str, Numbers]
"""Declared numbers by name."""


HOW_TRAINING_WENT = "how many points, and how training went"
OF_ALL: Reports = {
    WEIGHT: Numbers.count(says=HOW_TRAINING_WENT),
    LOSS: Numbers(says=HOW_TRAINING_WENT, optional=True),
    STEPS: Numbers.count(says=HOW_TRAINING_WENT, optional=True),
    NORMALIZER: Numbers.count(says=HOW_TRAINING_WENT, optional=True),
}
"""Sent with the update of every method."""

CONFIDENT: Reports = {
    CONFIDENT_SHARE: Numbers(
        at_least=0,
        at_most=1,
        optional=True,
        says="the share of its unlabeled points that it is confident about",
    )
}
"""Sent by a client that trains on its predictions."""


def reports_of(settings: RunConfig) -> Reports:
    """All that the clients of a run report with an update."""
    client = find_method(settings.method).client_class
    declared: Reports = {**OF_ALL, **client.reports}
    return {name: numbers for name, numbers in declared.items() if numbers.when(settings)}


def summed_names(reports: Reports) -> frozenset[str]:
    """Names of the reports that are added up, not averaged."""
    return frozenset(name for name, numbers in reports.items() if numbers.combine == "sum")


# Checks of replies.

Received = list[tuple[ClientRef, Message]]
"""Replies in partition order."""


class UpdateValidator:
    """Passes valid replies on to the base, and counts clients with invalid ones as failed."""

    def __init__(self, registry: ClientRegistry, codec: UpdateCodec) -> None:
        self._settings, self._registry, self._rounds = registry.settings, registry, registry.rounds
        self._codec, self._reports = codec, reports_of(registry.settings)
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
            check_metrics(reply.content, trained=trained)
            if trained:
                masked = self._settings.sums_updates
                check_reports(
                    _metrics(reply), self._reports, self._registry.num_classes, masked=masked
                )
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
        if trained and settings.base == "fednova" and _weight(reply) > 0:
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
        for name in self._codec.bounded if bound and not masked else ():
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


STARTED, ENDED = "started", "ended"
"""Diagnostics that every reply to a training message has: seconds."""


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


def check_metrics(content: RecordDict, *, trained: bool) -> None:
    """Check that a reply has finite metrics, a weight, and nothing unasked-for.

    Parameters
    ----------
    trained : whether it answers a training message, and so must have the times of training.
    """
    records = content.metric_records
    tables = [*records, *content.config_records, *(() if trained else content.array_records)]
    require_names("reply", tables, {METRICS, DIAGNOSTICS} if trained else {METRICS})
    for record in records.values():
        for name, value in record.items():
            size = len(value) if isinstance(value, list) else None
            OF_ALL.get(name, Numbers(size)).check(name, value, 0)
    metrics = records[METRICS]
    require_names("reply", metrics, {WEIGHT} if trained else {WEIGHT, LOSS}, metrics)
    if trained:
        require_names("reply", records[DIAGNOSTICS], {STARTED, ENDED}, records[DIAGNOSTICS])
    single = [metrics[WEIGHT], *(records[DIAGNOSTICS][key] for key in (STARTED, ENDED) if trained)]
    if not isinstance(metrics[WEIGHT], int) or any(isinstance(value, list) for value in single):
        raise BadMessageError(f"its {WEIGHT} is no whole number, or a time none", "message-form")
    if metrics[WEIGHT] != 0 and metrics.get(NORMALIZER) == 0:
        raise BadMessageError(f"its {NORMALIZER} is 0, and it has trained", "message-contradicts")


def check_reports(
    metrics: MetricRecord, reports: Reports, num_classes: int, *, masked: bool = False
) -> None:
    """Compare the numbers of an update with the declarations of its method.

    Parameters
    ----------
    masked : whether the numbers are in a secure sum, and these only have their form.
    """
    needed = {name for name, one in reports.items() if not one.optional and metrics[WEIGHT]}
    require_names("reply", metrics, needed, reports)
    for name, value in metrics.items():
        reports[name].check(name, value, num_classes, masked=masked)


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


def update_norm(update: ArrayRecord, start: ArrayRecord) -> float:
    """L2 norm of ``update`` − ``start`` over all floating-point arrays of the two."""
    return l2_norm(
        update[name].numpy().astype(np.float64) - before.numpy()
        for name, before in start.items()
        if np.issubdtype(np.dtype(before.dtype), np.floating)
    )
