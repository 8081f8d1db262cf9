"""How FedMatch's parts travel: as differences from what each client has.

A difference that is at most the threshold costs nothing, values of psi below its cutoff count as 0,
and helpers cost their differences from the client's psi where they are not 0. The client then gets
sigma and psi as they are, so the threshold changes what is counted and not what is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedul_flwr import method as kit
from fedul_flwr.federated.messages import BASE_ROUND, EXCHANGED, HELPERS, STALE
from fedul_flwr.federated.sparse import decode, encode, in_blocks
from fedul_flwr.learning.parts import PSI, Parts, flatten, unflatten, unlabeled_part

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

    def _state(self, client: int) -> kit.ClientState:
        return kit.ClientState(RecordDict(), self._directory / str(client))


@dataclass(eq=False, repr=False)
class PartsCodec(kit.UpdateCodec):
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
    helpers_of: Callable[[int], Sequence[kit.Arrays]]
    on_update: Callable[[int, Parts], None]
    compose: Callable[[Parts], kit.Arrays]

    def __post_init__(self) -> None:
        self.parts: Parts = {}
        self._sent: dict[int, dict[str, kit.Arrays]] = {}
        self._decoded: dict[int, tuple[int, Parts]] = {}

    def encode(
        self,
        messages: Iterable[Message],
        clients: Mapping[int, kit.ClientRef],
        arrays: ArrayRecord,
        record: kit.RoundRecord,
    ) -> None:
        """Put into each message the differences from the parts that its client has."""
        del arrays
        before = self.cache.latest()
        for message in messages:
            client = clients[message.metadata.dst_node_id].partition_id
            config = cast(ConfigRecord, message.content[kit.CONFIG])
            previous, helpers = self.cache.of(client), self.helpers_of(client)
            # In the authors' code a new client finds the parts of one that ran in its place before.
            is_new = client not in self.cache.rounds and len(before)
            released = self.cache.of(before[client % len(before)]) if is_new else previous
            record.released_down += changed_values(
                self.parts, released, helpers, self.threshold, self.cutoff
            )
            message.content = self._message(client, config, previous, helpers, record)
            record.down.update(kit.payload_parts(message.content))

    def _message(
        self,
        client: int,
        config: ConfigRecord,
        previous: Parts,
        helpers: Sequence[kit.Arrays],
        record: kit.RoundRecord,
    ) -> RecordDict:
        """The differences from ``previous``, which becomes what the client has after reading them.

        Helpers are sent as differences from the last part of that.
        """
        sent: dict[str, kit.Arrays] = {}
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
        records = {name: kit.to_record(one) for name, one in travels.items()}
        return RecordDict({kit.ARRAYS: ArrayRecord(), kit.CONFIG: values, **records})

    def decode(self, client: kit.ClientRef, reply: Message, record: kit.RoundRecord) -> None:
        """Apply a client's differences to the parts it was sent."""
        if is_stale(reply):
            return
        number, content = client.partition_id, reply.content
        if not isinstance(content.metric_records[kit.METRICS].get(STALE), int):
            raise ValueError(f"its reply has no {STALE}")
        before = self.cache.of(number)
        sent = self._sent[number].items()
        parts = {part: decode(one, before.get(part, {})) for part, one in sent}
        returned, expected = {}, self.returned(self.parts)
        if odd := sorted(content.array_records.keys() - {kit.ARRAYS, *expected}):
            raise ValueError(f"its update has {odd[0]!r}, which was not asked for")
        for part in expected:
            if part not in content.array_records:
                raise ValueError(f"its update has no {part}")
            returned[part] = decode(kit.to_arrays(content.array_records[part]), parts[part])
        if not all(np.isfinite(array).all() for array in flatten(returned).values()):
            raise ValueError("its update is not finite")
        for part in returned:
            record.nonzero_up[part] += sum(
                int(np.count_nonzero(array != parts[part][name]))
                for name, array in returned[part].items()
            )
        self._decoded[number] = record.round, parts | returned
        metrics = MetricRecord(dict(content.metric_records[kit.METRICS]))
        metrics.pop(STALE)  # must not be averaged with the metrics
        reply.content = RecordDict(
            {
                kit.ARRAYS: kit.to_record(flatten(returned)),
                kit.METRICS: metrics,
                kit.DIAGNOSTICS: content[kit.DIAGNOSTICS],
            }
        )

    def keeps(self, reply: Message) -> bool:
        """The parts of every client that has some, for the next differences and for helpers."""
        return not is_stale(reply)

    def keep(self, client: kit.ClientRef, reply: Message) -> None:
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

    def model(self, reply: Message) -> kit.Arrays:
        """The model from a client's parts; those that clients do not return are the server's."""
        returned = unflatten(kit.to_arrays(cast(ArrayRecord, reply.content[kit.ARRAYS])))
        return self.compose(self.parts | returned)


class WholeParts(PartsCodec):
    """Sends parts whole, and reads them from a secure sum alone: it knows no client's parts."""

    encode = kit.UpdateCodec.encode
    decode = kit.UpdateCodec.decode
    keeps = kit.UpdateCodec.keeps


def is_stale(reply: Message) -> bool:
    """Whether a client reports that it lacks the arrays that the server's differences need."""
    if reply.has_error():
        return False
    metrics = reply.content.metric_records.get(kit.METRICS)
    values = None if metrics is None else metrics.get(STALE)
    return isinstance(values, int) and values != 0


Float32s = NDArray[np.float32]


def changed_values(
    parts: Parts, previous: Parts, helpers: Sequence[kit.Arrays], threshold: float, cutoff: float
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
            for pair in in_blocks(array, previous[part][name]):
                new, old = (_cut(one, cutoff) for one in pair) if part == psi else pair
                total += _count(new - old, threshold)
    for helper in helpers:
        for name, array in helper.items():
            for values, before in in_blocks(array, previous[psi][name]):
                new = _cut(values, cutoff)
                total += _count(new - _cut(before, cutoff) * (new != 0), threshold)
    return total


def _cut(values: Float32s, cutoff: float) -> Float32s:
    """``values`` with 0 in place of those of at most ``cutoff``."""
    return values * (np.abs(values) > cutoff)


def _count(differences: Float32s, threshold: float) -> int:
    return int(np.count_nonzero(np.abs(differences) > threshold))
