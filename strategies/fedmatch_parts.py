"""How FedMatch's parts travel: as differences from what each client has.

A difference that is at most the threshold costs nothing, values of psi below its cutoff count as 0,
and helpers cost their differences from the client's psi where they are not 0. The client then gets
sigma and psi as they are, so the threshold changes what is counted and not what is trained.

The paper (section 3.2) sends differences. Here the new value of each changed entry is sent, in as
many bytes: held + (new − held) is rounded, so receiver and sender would drift apart over the
rounds. With copied values both ends have the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from logging import WARNING
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.arrays import blocks, l2_norm
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.messages import (
    BASE_ROUND,
    CONFIG,
    DIAGNOSTICS,
    EXCHANGED,
    HELPERS,
    METRICS,
    STALE,
)
from fedul_flwr.learning.parts import (
    PSI,
    SIGMA,
    THETA,
    Parts,
    compose,
    flatten,
    unflatten,
    unlabeled_part,
)

INDICES, MASK, VALUES = PARTS = ("/indices", "/mask", "/values")
"""Suffixes of an array's name where only a part of the array is sent."""

FARTHEST = 3.0
"""With a robust base: largest distance of a helper's parts from the combined ones, in median
distances of the round's clients."""

HEADER = 128
"""Size in bytes of a sent array's header: NumPy's format, with type and shape."""


class Difference(NamedTuple):
    """Encoded arrays for one receiver.

    Attributes
    ----------
    record : arrays to send, by name; none for an array without changes. For others whichever
        has the fewest bytes: ``NAME/indices`` (uint32, increasing flat positions) with
        ``NAME/values``; ``NAME/mask`` (a bit per value, as of :func:`numpy.packbits`) with
        ``NAME/values``; or the whole array of ``kept`` as ``NAME``.
    stored : the whole arrays that both ends have afterwards, whichever form was sent.
    changed : number of values sent because they differ, in all arrays together.
    """

    record: kit.Arrays
    stored: kit.Arrays
    changed: int


def encode(
    new: Mapping[str, NDArray[Any]], base: Mapping[str, NDArray[Any]], threshold: float
) -> Difference:
    """Encode ``new`` for a receiver that has ``base``.

    A value is sent where its bits differ and abs(new − held) >= ``threshold``. Elsewhere the sender
    adopts the receiver's value (``kept``). With ``threshold`` 0 nothing is lost, not even the sign
    of a zero. NaN is always sent; integers are exact for any threshold. The size of a float32 model
    is at most its share of changed values plus 1/32 for masks, plus two headers per array.

    Parameters
    ----------
    new : float or integer arrays of any shape, each of fewer than 2^32 values.
    base : arrays of the same names, types and shapes; empty for a receiver that was never seen, to
        which everything is sent whole.
    """
    if not base:
        whole = {name: np.array(array) for name, array in new.items()}
        return Difference(dict(whole), whole, sum(array.size for array in whole.values()))
    update, changed = Difference({}, {}, 0), 0
    for name, array in new.items():
        chosen = _differ(array, base[name], threshold)
        positions = np.flatnonzero(chosen)  # faster to index with than a mask
        values = np.ravel(array).take(positions)
        sent = _replaced(base[name], positions, values)
        update.stored[name] = sent
        update.record.update(_smallest(name, sent, chosen, positions, values))
        changed += len(positions)
    return update._replace(changed=changed)


def decode(record: Mapping[str, NDArray[Any]], base: Mapping[str, NDArray[Any]]) -> kit.Arrays:
    """Apply an update: new arrays, equal to the sender's ``kept`` bit for bit.

    Parameters
    ----------
    record : of :func:`encode`, from the network: nothing in it is trusted.
    base : the receiver's arrays; may be read-only. If empty, the record must have whole arrays;
        the caller, who knows the model, checks that none is missing.

    Raises
    ------
    ValueError
        If the record does not fit ``base``; the message names the array.
    """
    parts = {key for key in record if key.endswith(PARTS)}
    names = {name + part for name in base for part in ("", *PARTS)}
    if odd := sorted(record.keys() - names if base else parts):
        raise ValueError(f"The update's {odd[0]!r} belongs to no array that is held.")
    if not base:
        return {name: np.array(array) for name, array in record.items()}
    return {name: _decode_array(name, record, array) for name, array in base.items()}


BLOCK = 1 << 15
"""Values that are compared at a time: they and what comes between stay in a core's cache."""


def in_blocks(*arrays: NDArray[Any]) -> Iterator[Sequence[NDArray[Any]]]:
    """Flat views of arrays of one size, :data:`BLOCK` values of each at a time."""
    flat = [np.ravel(array) for array in arrays]
    for block in blocks(flat[0].size, BLOCK):
        yield [array[block] for array in flat]


def _differ(new: NDArray[Any], base: NDArray[Any], threshold: float) -> NDArray[np.bool_]:
    """Flat mask of the values to send."""
    bits = f"u{new.itemsize}"
    differ = np.empty(new.size, np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        for one, other, to_send in in_blocks(new, base, differ):
            np.not_equal(one.view(bits), other.view(bits), out=to_send)
            if threshold > 0 and np.issubdtype(new.dtype, np.floating):
                near = np.abs(one - other) < threshold  # not >=, which is false for NaN
                np.greater(to_send, near, out=to_send)
    return differ


def _replaced(base: NDArray[Any], positions: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    after = np.array(base, order="C")
    after.reshape(-1)[positions] = values
    return after


def _smallest(
    name: str,
    sent: NDArray[Any],
    chosen: NDArray[np.bool_],
    positions: NDArray[np.intp],
    values: NDArray[Any],
) -> kit.Arrays:
    """The form of an array with the fewest bytes; the simplest one on ties."""
    if len(positions) == 0:
        return {}
    indices, mask = 4 * len(positions), -(-sent.size // 8)
    # A whole array has one header, parts have two.
    if sent.nbytes <= HEADER + min(indices, mask) + values.nbytes:
        return {name: sent}
    if indices <= mask:
        return {name + INDICES: positions.astype(np.uint32), name + VALUES: values}
    return {name + MASK: np.packbits(chosen), name + VALUES: values}


def _decode_array(
    name: str, record: Mapping[str, NDArray[Any]], base: NDArray[Any]
) -> NDArray[Any]:
    form = tuple(part for part in ("", *PARTS) if name + part in record)
    if form == ():
        return np.array(base)
    if form == ("",):
        _expect(name, record[name], base.dtype, base.shape)
        return np.array(record[name])
    if form == (INDICES, VALUES):
        positions = record[name + INDICES]
        _expect(name + INDICES, positions, np.dtype(np.uint32), (positions.size,))
        if np.any(positions[1:] <= positions[:-1]) or np.any(positions[-1:] >= base.size):
            raise ValueError(
                f"The update's {name + INDICES!r} must increase and stay below {base.size}."
            )
    elif form == (MASK, VALUES):
        mask = record[name + MASK]
        _expect(name + MASK, mask, np.dtype(np.uint8), (-(-base.size // 8),))
        positions = np.flatnonzero(np.unpackbits(mask, count=base.size).view(np.bool_))
    else:
        names = ", ".join(repr(name + part) for part in form)
        raise ValueError(
            f"Array {name!r} must be whole, indices with values or a mask with values; "
            f"the update has {names}."
        )
    _expect(name + VALUES, record[name + VALUES], base.dtype, positions.shape)
    return _replaced(base, positions, record[name + VALUES])


def _expect(name: str, array: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape:
        form = f"{array.dtype} of shape {array.shape}"
        raise ValueError(f"The update's {name!r} is {form}, not {dtype} of shape {shape}.")


# What each client has, and its messages

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


class SparseParts(kit.ServerStage):
    """Sends each client the values of the parts that changed since its last exchange.

    Attributes
    ----------
    cache : the parts that each client has.
    helpers : choice of each client's helpers; ``None`` without any.
    received : the parts that clients have returned in this round, by client.
    """

    decodes = frozenset((SIGMA, PSI, THETA))

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy)
        options = strategy.options
        self.cache = ClientModelCache(Run(path=Path(self.settings.output)).exchanged)
        self._threshold, self._cutoff = options.difference_threshold, options.psi_cutoff
        shape, classes = strategy.registry.model_shape, strategy.num_classes
        has_helpers = options.helpers > 0
        self.helpers = learning.HelperChoice(self.settings, shape, classes) if has_helpers else None
        self.received: dict[int, Parts] = {}
        self._sent: dict[int, dict[str, kit.Arrays]] = {}
        self._stale = 0

    def open(self, grid: Grid) -> None:
        """Go on with the state of a run that resumes."""
        del grid
        self.cache.load_state_dict(self.state)
        if self.helpers is not None:
            self.helpers.load_state_dict(self.state)

    def ask(self, messages: Sequence[Message], expected: dict[str, ArrayRecord]) -> list[Message]:
        """Put into each message the differences from the parts that its client has."""
        del expected
        self._stale, self.strategy.stays = 0, False
        clients = {client.node_id: client for client in self.strategy.round.clients}
        before, parts = self.cache.latest(), self.strategy.parts
        for message in messages:
            client = clients[message.metadata.dst_node_id].partition_id
            config = cast(ConfigRecord, message.content[CONFIG])
            previous, helpers = self.cache.of(client), self._helpers_of(client)
            # In the authors' code a new client finds the parts of one that ran in its place before.
            is_new = client not in self.cache.rounds and len(before)
            released = self.cache.of(before[client % len(before)]) if is_new else previous
            self.strategy.record.released_down += changed_values(
                parts, released, helpers, self._threshold, self._cutoff
            )
            message.content = self._content(client, config, previous, helpers)
        return list(messages)

    def _content(
        self, client: int, config: ConfigRecord, previous: Parts, helpers: Sequence[kit.Arrays]
    ) -> RecordDict:
        """The differences from ``previous``, which becomes what the client has after reading them.

        Helpers are sent as differences from the last part of that.
        """
        sent: dict[str, kit.Arrays] = {}
        nonzero = self.strategy.record.nonzero_down
        for part, arrays in self.strategy.parts.items():
            update = encode(arrays, previous.get(part, {}), self._threshold)
            previous[part], sent[part] = update.stored, update.record
            nonzero[part] += update.changed
        self._sent[client] = sent
        reference, sparse = previous[unlabeled_part(previous)], {}
        for number, helper in enumerate(helpers):
            update = encode(helper, reference, self._threshold)
            sparse[str(number)] = update.record
            nonzero[HELPERS] += update.changed
        since = self.cache.rounds.get(client, 0)
        values = ConfigRecord({**config, BASE_ROUND: since, HELPERS: len(sparse)})
        travels = sent | ({HELPERS: flatten(sparse)} if sparse else {})
        records = {name: kit.to_record(one) for name, one in travels.items()}
        return RecordDict({kit.ARRAYS: ArrayRecord(), CONFIG: values, **records})

    def decode(self, client: kit.ClientRef, reply: Message) -> bool:
        """Apply a client's differences to the parts that it was sent.

        The parts of each client that has some are kept, for the next differences and for helpers. A
        client without the arrays that its differences start from sits the round out.
        """
        number, content, record = client.partition_id, reply.content, self.strategy.record
        stale = content.metric_records[METRICS].get(STALE)
        if not isinstance(stale, int):
            raise ValueError(f"its reply has no {STALE}")
        if stale:
            self._stale += 1
            self.strategy.stays = True  # if there is no other one
            return False
        before = self.cache.of(number)
        sent = self._sent[number].items()
        parts = {part: decode(one, before.get(part, {})) for part, one in sent}
        returned, expected = {}, self.strategy.returned
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
        self.received[number] = parts | returned
        metrics = MetricRecord(dict(content.metric_records[METRICS]))
        metrics.pop(STALE)  # must not be averaged with the metrics
        arrays = kit.to_record(flatten(returned))
        others = {METRICS: metrics, DIAGNOSTICS: content[DIAGNOSTICS]}
        reply.content = RecordDict({kit.ARRAYS: arrays, **others})
        return True

    def keep(self, client: kit.ClientRef, reply: Message) -> None:
        """Store the parts that a client has now."""
        del reply
        number = client.partition_id
        if number in self.received:  # else it has none
            parts = self.received[number]
            if self.helpers is not None:
                self.helpers.embed(number, compose(parts) | self.strategy.counters)
            self.cache.save(number, self.strategy.round.number, parts)
            del self._sent[number]

    def leave_out_far_helpers(self, combined: kit.Arrays) -> None:
        """With a robust base: let nobody be a helper whose parts it would hardly have counted.

        A client is left out if the distance of its parts from the combined ones is more than
        :data:`FARTHEST` times the median distance. The combined parts and the median are within the
        range of the honest clients as long as these are more than half.
        """
        if self.helpers is None or self.settings.base not in kit.ROBUST or not self.received:
            return
        distances = {}
        for client, received in self.received.items():
            parts = flatten(received)
            distances[client] = l2_norm(
                parts[name].astype(np.float64) - array for name, array in combined.items()
            )
        middle = median(distances.values())
        names = {client.partition_id: client for client in self.strategy.registry.clients}
        for client, distance in sorted(distances.items()):
            if distance > FARTHEST * middle:
                self.helpers.forget(client)
                text = "Round %s: %s helps nobody: its weights are %.3g from the combined ones, "
                text += "the median is %.3g."
                number = self.strategy.round.number
                log(WARNING, text, number, names[client], distance, middle)

    def end(self, model: ArrayRecord) -> ArrayRecord:
        """Forget the parts of clients without a valid reply: they may or may not have new ones."""
        record = self.strategy.record
        if self._stale:  # their state is lost; the next message to them has everything
            text = "Round %s: %s client(s) did not hold what they should, and sit it out."
            log(WARNING, text, record.round, self._stale)
            record.clients -= self._stale
        for client in self._sent:
            self.cache.forget(client)
        self._sent, self.received = {}, {}
        embedded = {} if self.helpers is None else self.helpers.state_dict()
        self.state = {**self.cache.state_dict(), **embedded}
        return model

    def _helpers_of(self, client: int) -> list[kit.Arrays]:
        """The helpers' psi, in rounds in which helpers are sent."""
        options = self.strategy.options
        if self.helpers is None or self.strategy.round.number % options.helper_interval:
            return []
        chosen = self.helpers.helpers_of(client, options.helpers, self.cache.rounds)
        last = unlabeled_part(self.strategy.parts)
        return [self.cache.of(helper)[last] for helper in chosen]


class PartsTravel(kit.Stage):
    """Parts travel as differences, where the server knows what each client has."""

    server = SparseParts

    @classmethod
    def is_on(cls, settings: kit.RunConfig) -> bool:
        """Unless a secure sum is all that the server reads."""
        return settings.secure_sum == "off"


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
