"""All steps of a protocol for two clients' distances, played among several clients."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes, Ints
from fedul_flwr.secure.hamming.pairwise import Arrays, Inbox, PairwiseHamming, Party, StepResult
from fedul_flwr.secure.session import Entropy

STEPS = ("prepare", "offer", "answer", "reveal")

SESSION = bytes(range(32))

Pair = tuple[int, int]
"""The owner and the evaluator."""


@dataclass
class Played:
    """What came of it, and who saw what.

    Attributes
    ----------
    protocol, codes, parties : what was played, and of each client its codes and its place.
    distances : of each pair whose both clients stayed.
    turns : by step, then client: all that a client remembers and sends.
    inboxes : by step, then client: what it had from its peers when that step began.
    server : by pair, then by its two clients: what the server got.
    """

    protocol: PairwiseHamming
    codes: Mapping[int, Bytes]
    parties: dict[int, Party]
    distances: dict[Pair, Ints] = field(default_factory=dict)
    turns: dict[str, dict[int, StepResult]] = field(default_factory=dict)
    inboxes: dict[str, dict[int, Inbox]] = field(default_factory=dict)
    server: dict[Pair, dict[int, dict[str, NDArray[Any]]]] = field(default_factory=dict)

    def turn(self, step: str, client: int, inbox: Inbox | None = None) -> StepResult:
        """A client's step from the state before it, with what its peers sent or another inbox."""
        party = self.parties[client]
        if step == "prepare":
            return sent(self.protocol.prepare(party))
        state = self.turns[STEPS[STEPS.index(step) - 1]][client].state
        inbox = self.inboxes[step][client] if inbox is None else inbox
        return sent(getattr(self.protocol, step)(party, state, self.codes[client], inbox))

    def compare(self, owner: int, evaluator: int) -> Ints:
        """The distances that the server finds in what both have told it."""
        said = self.server[owner, evaluator]
        sizes = len(self.codes[owner]), len(self.codes[evaluator])
        told = (said.get(client, {}) for client in (owner, evaluator))
        return self.protocol.distances(sizes, self.parties[owner].num_bits, *told)


def play(
    protocol: PairwiseHamming,
    codes: Mapping[int, Bytes],
    *,
    session: bytes = SESSION,
    entropy: Entropy = os.urandom,
    gone: Mapping[str, Iterable[int]] | None = None,
) -> Played:
    """Let clients with these codes ``(n_i, L / 8)`` find the distances of all pairs.

    Parameters
    ----------
    gone : clients that drop out, by the first step they take no part in.
    """
    gone = gone or {}
    played = Played(protocol, codes, parties(codes, session, entropy))
    there = list(codes)
    for step in STEPS:
        there = [client for client in there if client not in gone.get(step, ())]
        played.inboxes[step] = dict(delivered(played, there))
        played.turns[step] = {client: played.turn(step, client) for client in there}
        hand_in(played, step)
    for owner, evaluator in pairs(list(codes)):
        if owner in there and evaluator in there:
            played.distances[owner, evaluator] = played.compare(owner, evaluator)
    return played


def check(played: Played) -> None:
    """Distances are those of the codes."""
    for (owner, evaluator), distances in played.distances.items():
        expected = plain_distances(played.codes[owner], played.codes[evaluator])
        np.testing.assert_array_equal(distances, expected, strict=True)


def plain_distances(one: Bytes, other: Bytes) -> Ints:
    """Bits that differ, in the clear."""
    return np.bitwise_count(one[:, None] ^ other[None]).sum(axis=2, dtype=np.int64)


def random_codes(points: int, num_bits: int, seed: int = 0) -> Bytes:
    rng = np.random.default_rng([seed, points])
    return rng.integers(0, 256, (points, num_bits // 8), dtype=np.uint8)


def seeded(seed: int) -> Entropy:
    """Bytes that a test can repeat."""
    return np.random.default_rng(seed).bytes


def changed(arrays: Arrays, name: str, value: NDArray[Any] | None) -> Arrays:
    """A message with another array, or without it."""
    rest = {key: array for key, array in arrays.items() if key != name}
    return rest if value is None else {**rest, name: value}


def pairs(clients: list[int]) -> Iterator[Pair]:
    """All pairs (owner, evaluator): each client owns about half of its pairs."""
    for (i, first), (j, second) in combinations(enumerate(clients), 2):
        yield (first, second) if (i + j) % 2 else (second, first)


def parties(codes: Mapping[int, Bytes], session: bytes, entropy: Entropy) -> dict[int, Party]:
    """Everybody's place; L is that of the codes."""
    among = list(pairs(list(codes)))
    return {
        client: Party(
            client=client,
            evaluators=tuple(evaluator for owner, evaluator in among if owner == client),
            owners=tuple(owner for owner, evaluator in among if evaluator == client),
            sizes={peer: len(own) for peer, own in codes.items()},
            num_bits=8 * codes[client].shape[1],
            session=session,
            entropy=entropy,
        )
        for client in codes
    }


def delivered(played: Played, there: list[int]) -> Iterator[tuple[int, Inbox]]:
    """What each client that is still there gets of what was sent in the step before.

    A peer that sent nothing to a client is not in its inbox, like one that was gone by then.
    """
    last = list(played.turns.values())[-1] if played.turns else {}
    for client in there:
        inbox: dict[int, Arrays] = {}
        for peer, result in last.items():
            owned = client in played.parties[peer].evaluators
            to_all = result.to_evaluators if owned else result.to_owners
            if message := {**to_all, **result.to_peers.get(client, {})}:
                inbox[peer] = message
        yield client, inbox


def hand_in(played: Played, step: str) -> None:
    """Put what clients told the server to the pairs it is about; it has the announced form."""
    turns, codes = played.turns[step], played.codes
    for pair in pairs(list(played.parties)):
        said = played.server.setdefault(pair, {})
        for client, peer in (pair, pair[::-1]):
            if client in turns and peer in turns[client].to_server:
                told = turns[client].to_server[peer]
                forms = {name: (array.dtype, array.shape) for name, array in told.items()}
                about = "evaluators" if client == pair[0] else "owners"
                sizes = len(codes[client]), len(codes[peer])
                assert (about, forms) == played.protocol.payload_spec(step, *sizes)
                said.setdefault(client, {}).update(told)


def sent(result: StepResult) -> StepResult:
    """A result as it comes out of messages: read-only, and nobody else's memory."""
    return StepResult(
        state=copied(result.state),
        to_peers={peer: copied(arrays) for peer, arrays in result.to_peers.items()},
        to_evaluators=copied(result.to_evaluators),
        to_owners=copied(result.to_owners),
        to_server={peer: copied(arrays) for peer, arrays in result.to_server.items()},
    )


def copied(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Read-only copies."""
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    copies = {name: np.array(array, order="C") for name, array in arrays.items()}
    for array in copies.values():
        array.flags.writeable = False
    return copies


def messages(played: Played) -> list[Arrays]:
    """All that clients sent; what goes to several comes once."""
    turns = [result for by_client in played.turns.values() for result in by_client.values()]
    return [
        message
        for result in turns
        for message in (
            result.to_evaluators,
            result.to_owners,
            *result.to_peers.values(),
            *result.to_server.values(),
        )
    ]


def traffic(played: Played) -> int:
    """Bytes of all messages."""
    return sum(array.nbytes for message in messages(played) for array in message.values())
