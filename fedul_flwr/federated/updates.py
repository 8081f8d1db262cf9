"""Models in rounds: how they travel, whole or as differences, and how they are averaged.

With FedMatch a difference that is at most the threshold costs nothing, values of psi below its
cutoff count as 0, and helpers cost their differences from the client's psi where they are not 0.
The client then gets sigma and psi as they are, so the threshold changes what is counted and not
what is trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import UserError
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.grid import RoundRecord
from fedul_flwr.federated.messages import (
    ARRAYS,
    BASE_ROUND,
    CONFIG,
    DIAGNOSTICS,
    EXCHANGED,
    HELPERS,
    METRICS,
    STALE,
    WEIGHT,
    PlainArray,
    array_record,
    metric,
    payload_parts,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.sparse import decode, encode
from fedul_flwr.learning.disjoint import PSI, Parts, flatten, unflatten, unlabeled_part


class UpdateCodec:
    """Sends and receives whole models; subclasses send other forms.

    Attributes
    ----------
    bounded : records of an update whose distance from the sent arrays ``max-update-norm`` bounds.
    """

    bounded: Sequence[str] = (ARRAYS,)

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

    def expected(self, message: RecordDict, arrays: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """Arrays that a decoded update must have, with their names, types and shapes.

        By default ``arrays`` and other records that the base sent, such as SCAFFOLD's variates.
        """
        return {**message.array_records, ARRAYS: arrays}

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


ROUNDS = "held-rounds"
"""Name, in a resumed run's state, of the array with the rounds of clients' last exchanges."""


class ClientModelCache:
    """The server's copy of the parts that each client has since its last exchange, on disk.

    The files are memory-mapped when read. They take the parts' size for every client seen so far:
    52 MB per client for ResNet-9's sigma and psi.

    Parameters
    ----------
    directory : gets a folder for each client.

    Attributes
    ----------
    rounds : round of the last exchange by client; clients without an entry have nothing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.rounds: dict[int, int] = {}

    def of(self, client: int) -> Parts:
        """The parts that ``client`` has; empty if it has none."""
        if client not in self.rounds:
            return {}
        return unflatten(self._state(client).load(EXCHANGED, self.rounds[client] + 1))

    def save(self, client: int, server_round: int, parts: Parts) -> None:
        """Record that ``client`` has ``parts`` after its exchange in ``server_round``."""
        self._state(client).save(EXCHANGED, server_round, flatten(parts))
        self.rounds[client] = server_round

    def latest(self) -> list[int]:
        """The clients of the last exchange, in order."""
        last = max(self.rounds.values(), default=0)
        return sorted(client for client, number in self.rounds.items() if number == last)

    def forget(self, client: int) -> None:
        """Delete the entry of ``client``, whose parts are not known."""
        self.rounds.pop(client, None)

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """State of a resumed run besides the files: ``(n, 2)``, clients and rounds."""
        return {ROUNDS: np.array(sorted(self.rounds.items()), dtype=np.int64).reshape(-1, 2)}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state from :meth:`state_dict`."""
        if ROUNDS in state:
            self.rounds = {int(client): int(number) for client, number in state[ROUNDS]}

    def _state(self, client: int) -> ClientState:
        return ClientState(RecordDict(), self._directory / str(client))


@dataclass(eq=False, repr=False)
class PartsCodec(UpdateCodec):
    """Sends each client the values of the parts that changed since its last exchange.

    Parameters
    ----------
    cache : the parts that each client has.
    threshold : smaller differences are not sent.
    cutoff : smaller values of psi count as 0 in the authors' count of traffic.
    returned : names of the parts that clients return.
    helpers_of : the psi of a client's helpers in the current round, which it also gets.
    on_update : called with a client and the parts that it has returned.
    compose : builds a model from its parts.

    Attributes
    ----------
    parts : the server's parts.
    """

    cache: ClientModelCache
    threshold: float
    cutoff: float
    returned: Callable[[Parts], list[str]]
    helpers_of: Callable[[int], Sequence[Arrays]]
    on_update: Callable[[int, Parts], None]
    compose: Callable[[Parts], Arrays]

    def __post_init__(self) -> None:
        self.parts: Parts = {}
        self._sent: dict[int, dict[str, Arrays]] = {}
        self._decoded: dict[int, tuple[int, Parts]] = {}

    def encode(
        self,
        messages: Iterable[Message],
        clients: Mapping[int, ClientRef],
        arrays: ArrayRecord,
        record: RoundRecord,
    ) -> None:
        """Put into each message the differences from the parts that its client has."""
        del arrays
        before = self.cache.latest()
        for message in messages:
            client = clients[message.metadata.dst_node_id].partition_id
            config = cast(ConfigRecord, message.content[CONFIG])
            previous, helpers = self.cache.of(client), self.helpers_of(client)
            # In the authors' code a new client finds the parts of one that ran in its place before.
            is_new = client not in self.cache.rounds and len(before)
            released = self.cache.of(before[client % len(before)]) if is_new else previous
            record.released_down += changed_values(
                self.parts, released, helpers, self.threshold, self.cutoff
            )
            message.content = self._message(client, config, previous, helpers, record)
            record.down.update(payload_parts(message.content))

    def _message(
        self,
        client: int,
        config: ConfigRecord,
        previous: Parts,
        helpers: Sequence[Arrays],
        record: RoundRecord,
    ) -> RecordDict:
        """The differences from ``previous``, which becomes what the client has after reading them.

        Helpers are sent as differences from the last part of that.
        """
        sent: dict[str, Arrays] = {}
        since = self.cache.rounds.get(client, 0)
        for part, arrays in self.parts.items():
            update = encode(arrays, previous.get(part, {}), self.threshold)
            previous[part], sent[part] = update.stored, update.record
            record.nonzero_down[part] += update.changed
        self._sent[client] = sent
        reference, sparse = previous[unlabeled_part(previous)], {}
        for number, helper in enumerate(helpers):
            update = encode(helper, reference, self.threshold)
            sparse[str(number)] = update.record
            record.nonzero_down[HELPERS] += update.changed
        values = ConfigRecord({**config, BASE_ROUND: since, HELPERS: len(sparse)})
        travels = sent | ({HELPERS: flatten(sparse)} if sparse else {})
        records = {name: to_record(one) for name, one in travels.items()}
        return RecordDict({ARRAYS: ArrayRecord(), CONFIG: values, **records})

    def decode(self, client: ClientRef, reply: Message, record: RoundRecord) -> None:
        """Apply a client's differences to the parts it was sent."""
        if is_stale(reply):
            return
        number, content = client.partition_id, reply.content
        if not isinstance(content.metric_records[METRICS].get(STALE), int):
            raise ValueError(f"its reply has no {STALE}")
        before = self.cache.of(number)
        sent = self._sent[number].items()
        parts = {part: decode(one, before.get(part, {})) for part, one in sent}
        returned, expected = {}, self.returned(self.parts)
        if odd := sorted(content.array_records.keys() - {ARRAYS, *expected}):
            raise ValueError(f"its update has {odd[0]!r}, which was not asked for")
        for part in expected:
            if part not in content.array_records:
                raise ValueError(f"its update has no {part}")
            returned[part] = decode(to_arrays(content.array_records[part]), parts[part])
        if not all(np.isfinite(array).all() for array in flatten(returned).values()):
            raise ValueError("its update is not finite")
        for part in returned:
            record.nonzero_up[part] += sum(
                int(np.count_nonzero(array != parts[part][name]))
                for name, array in returned[part].items()
            )
        self._decoded[number] = record.round, parts | returned
        metrics = MetricRecord(dict(content.metric_records[METRICS]))
        metrics.pop(STALE)  # must not be averaged with the metrics
        reply.content = RecordDict(
            {
                ARRAYS: to_record(flatten(returned)),
                METRICS: metrics,
                DIAGNOSTICS: content[DIAGNOSTICS],
            }
        )

    def keeps(self, reply: Message) -> bool:
        """The parts of every client that has some, for the next differences and for helpers."""
        return not is_stale(reply)

    def keep(self, client: ClientRef, reply: Message) -> None:
        """Store the parts that a client has now."""
        del reply
        number = client.partition_id
        if number in self._decoded:  # else it holds none
            server_round, parts = self._decoded[number]
            self.on_update(number, parts)
            self.cache.save(number, server_round, parts)
            del self._sent[number]

    @property
    def received(self) -> Mapping[int, Parts]:
        """The parts that clients have returned in this round, by client."""
        return {client: parts for client, (_, parts) in self._decoded.items()}

    def drop_unanswered(self) -> None:
        """Drop cached parts of clients without a valid reply: they may or may not have new ones."""
        for client in self._sent:
            self.cache.forget(client)
        self._sent, self._decoded = {}, {}

    def model(self, reply: Message) -> Arrays:
        """The model from a client's parts; those that clients do not return are the server's."""
        returned = unflatten(to_arrays(cast(ArrayRecord, reply.content[ARRAYS])))
        return self.compose(self.parts | returned)


class WholeParts(PartsCodec):
    """Sends parts whole, and reads them from a secure sum alone: it knows no client's parts."""

    encode = UpdateCodec.encode
    decode = UpdateCodec.decode
    keeps = UpdateCodec.keeps


def is_stale(reply: Message) -> bool:
    """Whether a client reports that it lacks the arrays that the server's differences need."""
    if reply.has_error():
        return False
    metrics = reply.content.metric_records.get(METRICS)
    values = None if metrics is None else metrics.get(STALE)
    return isinstance(values, int) and values != 0


Float32s = NDArray[np.float32]


def changed_values(
    parts: Parts, previous: Parts, helpers: Sequence[Arrays], threshold: float, cutoff: float
) -> int:
    """Number of values that a client pays for in one message.

    Parameters
    ----------
    parts : the server's sigma and psi.
    previous : those that the client has, or for a new client those of the client that it
        replaces; empty if there is none, as in the first round, which costs both parts whole.
    helpers : psi of its helpers.
    threshold, cutoff : least difference that counts, and least value of psi.
    """
    psi = unlabeled_part(parts)
    cutoff = cutoff if psi == PSI else 0.0
    if not previous:
        return sum(array.size for arrays in parts.values() for array in arrays.values())
    total = 0
    for part, arrays in parts.items():
        for name, array in arrays.items():
            pair = array, previous[part][name]
            new, old = (_cut(one, cutoff) for one in pair) if part == psi else pair
            total += _count(new - old, threshold)
    for helper in helpers:
        for name, array in helper.items():
            new = _cut(array, cutoff)
            old = _cut(previous[psi][name], cutoff) * (new != 0)
            total += _count(new - old, threshold)
    return total


def _cut(values: Float32s, cutoff: float) -> Float32s:
    """``values`` with 0 in place of those of at most ``cutoff``."""
    return np.where(np.abs(values) > cutoff, values, np.float32(0))


def _count(differences: Float32s, threshold: float) -> int:
    return int(np.count_nonzero(np.abs(differences) > threshold))


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
            layers = np.stack([record[name].numpy() for record in records])
            wide = layers.astype(np.float64)
            middle = np.median(wide, axis=0) if robust else np.tensordot(share, wide, axes=1)
            result[name] = PlainArray.of(np.asarray(middle, dtype=layers.dtype))
    return result


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
        if name in buffers:
            merged[name] = buffers[name]
        else:
            value = np.asarray(weights[name].numpy(), dtype=np.dtype(before.dtype))
            merged[name] = PlainArray.of(value)
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

    Raises
    ------
    UserError
        If a value is NaN or infinite; it says where the last good model is.
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
    return all(np.isfinite(array.numpy()).all() for array in record.values())


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
