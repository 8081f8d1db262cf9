"""Updates of a round: what a client's reply may contain, how models travel, and their mean.

From a declaration of numbers follow the check at the server, what owners are told, how a secure sum
adds them up, and how they are combined. An invalid reply is dropped, and its client counts as
failed: each check raises a :class:`~fedul_flwr.errors.BadMessageError`; the caller adds the client.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from fedul_flwr.config.method_settings import SupervisedSettings
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.data.types import Arrays, Floats, l2_norm, number
from fedul_flwr.errors import BadMessageError, NothingToLearnError, NoUpdateError, UserError
from fedul_flwr.federated.clients import ClientRegistry
from fedul_flwr.federated.grid import RoundRecord, replies_to
from fedul_flwr.federated.messages import (
    ARRAYS,
    DIAGNOSTICS,
    METRICS,
    NORMALIZER,
    NUM_POINTS,
    WEIGHT,
    PlainArray,
    TensorArray,
    array_record,
    check_bytes,
    failure_reason,
    metric,
    metric_forms,
    payload_parts,
    printable,
    require_names,
    to_arrays,
    to_record,
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


def update_norm(update: ArrayRecord, start: ArrayRecord) -> float:
    """L2 norm of ``update`` − ``start`` over all floating-point arrays of the two."""
    return l2_norm(
        update[name].numpy().astype(np.float64) - before.numpy()
        for name, before in start.items()
        if np.issubdtype(np.dtype(before.dtype), np.floating)
    )


def clip_update(update: ArrayRecord, start: ArrayRecord, norm: float) -> None:
    """Shorten ``update`` - ``start`` to L2 norm ``norm`` where it is longer, in place.

    Parameters
    ----------
    update, start : floating-point arrays of the same names, types and shapes.
    norm : C, above 0.

    Examples
    --------
    >>> update = array_record({"weight": PlainArray.of(np.array([3.0, 4.0]))})
    >>> start = array_record({"weight": PlainArray.of(np.zeros(2))})
    >>> clip_update(update, start, norm=1.0)
    >>> update["weight"].numpy().round(4).tolist()
    [0.6, 0.8]
    """
    length = update_norm(update, start)
    if length <= norm:
        return
    for name, array in start.items():
        before = array.numpy()
        step = (update[name].numpy().astype(np.float64) - before) * (norm / length)
        update[name] = PlainArray.of((before + step).astype(before.dtype))


# Means


def weighted_mean(records: Sequence[ArrayRecord], weights: Sequence[float]) -> ArrayRecord:
    """Mean of the arrays of ``records``, computed as Flower's FedAvg does, bit for bit.

    Parameters
    ----------
    records : n records with arrays of the same names and shapes, at least one.
    weights : n weights of any sign, whose sum is not 0.
    """
    total = sum(weights)
    mean: dict[str, NDArray[Any]] = {}
    for record, weight in zip(records, weights, strict=True):
        for name, array in record.items():
            part = array.numpy() * (weight / total)
            mean[name] = mean[name] + part if name in mean else part
    return array_record({name: PlainArray.of(np.asarray(value)) for name, value in mean.items()})


def mean_on_device(records: Sequence[ArrayRecord], weights: Sequence[float]) -> ArrayRecord | None:
    """:func:`weighted_mean` of arrays that are all on a device, computed there; else ``None``."""
    if not all(isinstance(array, TensorArray) for record in records for array in record.values()):
        return None
    import torch

    names, total = list(records[0]), sum(weights)
    mean: list[Any] = []
    for record, weight in zip(records, weights, strict=True):
        tensors = [cast(TensorArray, record[name]).tensor for name in names]
        if mean:
            tensors = [t.to(m.device) for t, m in zip(tensors, mean, strict=True)]
        part = list(torch._foreach_mul(tensors, weight / total))
        if mean:
            torch._foreach_add_(mean, part)
        mean = mean or part
    if any(value.is_cuda for value in mean):  # lanes read it, and get the memory of its parts
        torch.cuda.synchronize()
    return array_record(
        {name: TensorArray.holding(value) for name, value in zip(names, mean, strict=True)}
    )


def average_buffers(
    records: Sequence[ArrayRecord],
    weights: NDArray[np.float64],
    names: Iterable[str],
    previous: ArrayRecord,
    *,
    robust: bool = False,
) -> dict[str, Array]:
    """Weighted mean of the arrays ``names``, or their median; integer ones stay as in ``previous``.

    Integer arrays are counters (batch norm's), for which a mean makes no sense.

    Parameters
    ----------
    records : what each of the n clients returned, at least one.
    weights : ``(n,)``, not negative, of a positive sum.
    previous : the arrays before the round.
    robust : the median of every value, which less than half of the clients cannot move at will.
    """
    share = weights / weights.sum()
    result: dict[str, Array] = {}
    for name in names:
        if np.issubdtype(np.dtype(previous[name].dtype), np.integer):
            result[name] = previous[name]
        else:
            layers = _stacked([record[name] for record in records])
            wide = layers.astype(np.float64)
            middle = np.median(wide, axis=0) if robust else np.tensordot(share, wide, axes=1)
            result[name] = PlainArray.of(np.asarray(middle, dtype=layers.dtype))
    return result


def combined(
    replies: Sequence[Message],
    parts: Parts,
    weights: Floats,
    before: Mapping[str, Any],
    *,
    robust: bool = False,
) -> dict[str, Any]:
    """What clients have reported beside the model, but the means that a base takes of numbers.

    It is taken from ``replies``, whose numbers bases average.

    Parameters
    ----------
    weights : ``(n,)``, of the replies.
    before : arrays by name that were sent, which say the types of their means.
    robust : medians in place of means of arrays.
    """
    reports: dict[str, Any] = {}
    for name, part in parts.items():
        if part.is_group and name != ARRAYS:
            records = [_taken(reply, name) for reply in replies]
            start = to_record(before[name]) if before.get(name) else records[0]
            mean = average_buffers(records, weights, list(start), start, robust=robust)
            reports[name] = to_arrays(array_record(mean))
        elif part.kind == "numbers" and part.combine != "mean":
            record = DIAGNOSTICS if part.combine == "keep" else METRICS
            tables = [reply.content.metric_records[record] for reply in replies]
            values = [np.asarray(t.pop(name), np.float64) for t in tables if name in t]
            if values:
                reports[name] = sum(values) if part.combine == "sum" else np.stack(values)
    return reports


def _taken(reply: Message, name: str) -> ArrayRecord:
    """A record of a reply, which has it no more."""
    content = dict(reply.content)
    record = cast(ArrayRecord, content.pop(name))
    reply.content = RecordDict(content)
    return record


def _stacked(arrays: Sequence[Array]) -> NDArray[Any]:
    """``(n, …)``, the values of n arrays, in one copy if they are on a device."""
    tensors = [array.tensor for array in arrays if isinstance(array, TensorArray)]
    if len(tensors) < len(arrays):
        return np.stack([array.numpy() for array in arrays])
    import torch

    first = tensors[0].device
    stacked: NDArray[Any] = torch.stack([tensor.to(first) for tensor in tensors]).cpu().numpy()
    return stacked


def merge(weights: ArrayRecord, buffers: Mapping[str, Array], model: ArrayRecord) -> ArrayRecord:
    """Weights and buffers in the order and the dtypes of ``model`` (adaptive bases widen them).

    Examples
    --------
    >>> model = array_record({"weight": PlainArray.of(np.zeros(1, dtype=np.float32))})
    >>> wide = array_record({"weight": PlainArray.of(np.array([0.5]))})
    >>> merge(wide, {}, model)["weight"].numpy().dtype.name
    'float32'
    """
    merged = {}
    for name, before in model.items():
        array = buffers[name] if name in buffers else weights[name]
        stays = isinstance(array, TensorArray) and array.dtype == before.dtype
        if name not in buffers and not stays:
            value = np.asarray(array.numpy(), dtype=np.dtype(before.dtype))
            array = PlainArray.of(value)
        merged[name] = array
    return array_record(merged)


def mix(one: ArrayRecord, other: ArrayRecord, weight: float) -> ArrayRecord:
    """(1 − weight)·one + weight·other in the dtypes of ``one``; integers stay those of ``one``."""
    mixed: dict[str, Array] = {}
    for name, array in one.items():
        mixed[name] = array
        value = array.numpy()
        if np.issubdtype(value.dtype, np.floating):
            value = np.asarray((1 - weight) * value + weight * other[name].numpy(), value.dtype)
            mixed[name] = PlainArray.of(value)
    return array_record(mixed)


def refuse_non_finite(
    arrays: ArrayRecord,
    memory: Mapping[str, NDArray[Any]],
    round_number: int,
    last_model: Path,
) -> None:
    """Stop before non-finite weights are evaluated or overwrite the last finite model.

    A model and the state that belongs to it are saved together or not at all.

    Parameters
    ----------
    memory : the other arrays that the next round needs, by name (variates, momenta).
    round_number : the round that ends with ``arrays``.
    last_model : file of the previous round's model, for the error's text; an app of somebody's own
        has none.
    """
    unsound = [] if is_finite(arrays) else ["the combined model"]
    unsound += [
        f"{name!r}, which the next round needs,"
        for name, array in memory.items()
        if not np.isfinite(array).all()
    ]
    if not unsound:
        return
    before = round_number - 1
    file = f", in {last_model}" if last_model.exists() else ""
    last = f"round {before}'s{file}" if before else "the one that the run began with"
    raise UserError(
        f"Round {round_number}: {unsound[0]} is not finite and was not kept; the last good model "
        f"is {last}.",
        "model-not-finite",
    )


def is_finite(record: ArrayRecord) -> bool:
    """Whether no array of ``record`` holds NaN or infinity."""
    on_device = [a.tensor.isfinite().all() for a in record.values() if isinstance(a, TensorArray)]
    others = (array for array in record.values() if not isinstance(array, TensorArray))
    return bool(reduce(and_, on_device, True)) and all(
        np.isfinite(array.numpy()).all() for array in others
    )


OURS = (ARRAYS, METRICS, DIAGNOSTICS)
"""Records of a reply that the wrapper handles; all others are passed on to the base."""


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


def client_weights(replies: Sequence[Message], kind: str) -> NDArray[np.float64]:
    """Weights of the clients' mean: ``"uniform"``, or ``"examples"`` (points trained on)."""
    if kind == "uniform":
        return np.ones(len(replies))
    return np.array([metric(reply, WEIGHT) for reply in replies])


def strip(reply: Message, weight: float, names: Iterable[str]) -> None:
    """Reduce a reply to the base's form: weights in the model's order, metrics, its own records."""
    sent = cast(ArrayRecord, reply.content[ARRAYS])
    content = {name: record for name, record in reply.content.items() if name not in OURS}
    metrics = MetricRecord(dict(cast(MetricRecord, reply.content[METRICS])))
    metrics[WEIGHT] = weight
    arrays = array_record({name: sent[name] for name in names})
    reply.content = RecordDict({ARRAYS: arrays, METRICS: metrics, **content})


ATTRIBUTES = ("m_t", "v_t", "momentum_vector", "control", "used", "ledger")
"""Attributes with state: moments (FedOpt family of Flower 1.41, dicts), momentum (FedAvgM, a list),
SCAFFOLD's variate and the clients in it, and the ledger of differential privacy."""


def dump_base_state(base: FlowerStrategy) -> dict[str, NDArray[Any]]:
    """Moments and momentum of ``base`` as flat named arrays; empty if it has none."""
    state: dict[str, NDArray[Any]] = {}
    for attribute in ATTRIBUTES:
        value = getattr(base, attribute, None)
        if isinstance(value, dict):
            state |= {f"{attribute}/dict/{key}": array for key, array in value.items()}
        elif isinstance(value, list):
            state |= {f"{attribute}/list/{i:06d}": array for i, array in enumerate(value)}
    return state


def load_base_state(base: FlowerStrategy, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Restore the state that :func:`dump_base_state` returned."""
    state: dict[str, Any] = {}
    for name in sorted(arrays):
        attribute, kind, key = name.split("/", 2)
        if kind == "dict":
            state.setdefault(attribute, {})[key] = arrays[name]
        else:
            state.setdefault(attribute, []).append(arrays[name])
    for attribute, value in state.items():
        setattr(base, attribute, value)
