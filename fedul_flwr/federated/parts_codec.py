"""Parts of a model that travel as sparse differences from what the receiver holds (FedMatch)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedul_flwr.data.types import Arrays
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.codec import UpdateCodec
from fedul_flwr.federated.messages import (
    ARRAYS,
    CONFIG,
    DIAGNOSTICS,
    METRICS,
    payload_parts,
    to_arrays,
    to_record,
)
from fedul_flwr.federated.registry import ClientRef
from fedul_flwr.federated.round_record import RoundRecord
from fedul_flwr.federated.sparse import decode, encode
from fedul_flwr.federated.sync import BASE_ROUND, HELD, HELPERS, STALE
from fedul_flwr.learning.decomposition import Parts, flatten, unflatten, unlabeled_part

ROUNDS = "held-rounds"
"""Name of the rounds of the last exchanges among the arrays that a run resumes from."""

HelpersOf = Callable[[int], Sequence[Arrays]]
"""Psi of the clients that help a client in the round in hand."""
OnUpdate = Callable[[int, Parts], None]
"""Takes the parts that a client has returned."""


class ClientModelCache:
    """Parts that every client holds since its last exchange, on disk.

    They lie in files that are mapped into memory where they are read: as many bytes on disk as the
    parts have for every client that was seen, ResNet-9's sigma and psi 52 MB.

    Parameters
    ----------
    directory : a folder for each client is made in it.

    Attributes
    ----------
    rounds : round of the last exchange by client; clients without one hold nothing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.rounds: dict[int, int] = {}

    def of(self, client: int) -> Parts:
        """What ``client`` holds; empty for one that holds nothing."""
        if client not in self.rounds:
            return {}
        return unflatten(self._state(client).recall(HELD, self.rounds[client] + 1))

    def keep(self, client: int, server_round: int, parts: Parts) -> None:
        """``client`` holds ``parts`` after its exchange in ``server_round``."""
        self._state(client).keep(HELD, server_round, flatten(parts))
        self.rounds[client] = server_round

    def forget(self, client: int) -> None:
        """Nobody knows what ``client`` holds."""
        self.rounds.pop(client, None)

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """What a resumed run must know beside the files: ``(n, 2)``, clients and rounds."""
        return {ROUNDS: np.array(sorted(self.rounds.items()), dtype=np.int64).reshape(-1, 2)}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`state_dict` gave."""
        if ROUNDS in state:
            self.rounds = {int(client): int(number) for client, number in state[ROUNDS]}

    def _state(self, client: int) -> ClientState:
        return ClientState(RecordDict(), self._directory / str(client))


class PartsCodec(UpdateCodec):
    """Sends each client what has changed of the parts since it last exchanged them.

    Parameters
    ----------
    cache : what each client holds.
    threshold : differences up to it are not sent.
    returned : which parts clients return, of those that there are.
    helpers_of : the helpers' psi that a client gets along.
    on_update : is given what a client has returned.
    compose : the model of some parts.

    Attributes
    ----------
    parts : the server's.
    """

    def __init__(
        self,
        cache: ClientModelCache,
        threshold: float,
        *,
        returned: Callable[[Parts], list[str]],
        helpers_of: HelpersOf,
        on_update: OnUpdate,
        compose: Callable[[Parts], Arrays],
    ) -> None:
        self.cache, self._threshold = cache, threshold
        self._returned, self._compose = returned, compose
        self._helpers_of, self._on_update = helpers_of, on_update
        self.parts: Parts = {}
        self._sent: dict[int, dict[str, Arrays]] = {}

    def encode(
        self,
        messages: Iterable[Message],
        clients: Mapping[int, ClientRef],
        arrays: ArrayRecord,
        record: RoundRecord,
    ) -> None:
        """What each client needs, as differences from what it holds."""
        del arrays
        for message in messages:
            client = clients[message.metadata.dst_node_id].partition_id
            config = cast(ConfigRecord, message.content[CONFIG])
            message.content = self._message(client, config, record)
            record.down.update(payload_parts(message.content))

    def _message(self, client: int, config: ConfigRecord, record: RoundRecord) -> RecordDict:
        held, sent = self.cache.of(client), {}
        since = self.cache.rounds.get(client, 0)
        for part, arrays in self.parts.items():
            update = encode(arrays, held.get(part, {}), self._threshold)
            held[part], sent[part] = update.kept, update.record
            record.nonzero_down[part] += update.changed
        self._sent[client] = sent
        own, helpers = held[unlabeled_part(held)], {}
        for number, helper in enumerate(self._helpers_of(client)):
            update = encode(helper, own, self._threshold)
            helpers[str(number)] = update.record
            record.nonzero_down[HELPERS] += update.changed
        told = ConfigRecord({**config, BASE_ROUND: since, HELPERS: len(helpers)})
        travels = sent | ({HELPERS: flatten(helpers)} if helpers else {})
        records = {name: to_record(found) for name, found in travels.items()}
        return RecordDict({ARRAYS: ArrayRecord(), CONFIG: told, **records})

    def decode(self, client: ClientRef, reply: Message, record: RoundRecord) -> None:
        """Add what a client sent to what it was sent; note that it holds the sum of both."""
        if is_stale(reply):
            return
        number, content = client.partition_id, reply.content
        before = self.cache.of(number)
        sent = self._sent[number].items()
        parts = {part: decode(found, before.get(part, {})) for part, found in sent}
        returned = {}
        for part in self._returned(self.parts):
            if part not in content.array_records:
                raise ValueError(f"its update has no {part}")
            returned[part] = decode(to_arrays(content.array_records[part]), parts[part])
        if not all(np.isfinite(array).all() for array in flatten(returned).values()):
            raise ValueError("its update is not finite")
        self._on_update(number, parts | returned)
        for part in returned:
            record.nonzero_up[part] += _count_changed(returned[part], parts[part])
        self.cache.keep(number, record.round, parts | returned)
        del self._sent[number]
        metrics = MetricRecord(dict(content.metric_records[METRICS]))
        metrics.pop(STALE)  # not a number to average
        reply.content = RecordDict(
            {
                ARRAYS: to_record(flatten(returned)),
                METRICS: metrics,
                DIAGNOSTICS: content[DIAGNOSTICS],
            }
        )

    def forget_silent(self) -> None:
        """Forget what clients hold that gave no answer: they may have taken the message or not."""
        for client in self._sent:
            self.cache.forget(client)
        self._sent = {}

    def model(self, reply: Message) -> Arrays:
        """The sum of a client's parts, with the server's own of those that only it changes."""
        returned = unflatten(to_arrays(cast(ArrayRecord, reply.content[ARRAYS])))
        return self._compose(self.parts | returned)


def is_stale(reply: Message) -> bool:
    """Whether a client says that it does not hold what the server's message builds on."""
    if reply.has_error():
        return False
    metrics = reply.content.metric_records.get(METRICS)
    return metrics is not None and bool(metrics.get(STALE))


def _count_changed(new: Arrays, before: Arrays) -> int:
    return sum(int(np.count_nonzero(array != before[name])) for name, array in new.items())
