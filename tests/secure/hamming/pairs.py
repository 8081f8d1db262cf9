"""All steps of a protocol for two clients' distances, played among several clients."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.secure.hamming.pairwise import Arrays, Inbox, PairwiseHamming, Seat, Turn
from fedul_flwr.secure.randomness import Entropy

STEPS = ("prepare", "offer", "answer", "reveal")

SESSION = bytes(range(32))


@dataclass
class Played:
    """What came of it, and who saw what.

    Attributes
    ----------
    distances : of each pair (owner, evaluator) whose both clients stayed.
    turns : by step, then client: all that a client remembers and sends.
    inboxes : by step, then client: what it had from its peers when that step began.
    server : by pair, then by its two clients: what the server got.
    seats : by client.
    """

    distances: dict[tuple[int, int], Ints] = field(default_factory=dict)
    turns: dict[str, dict[int, Turn]] = field(default_factory=dict)
    inboxes: dict[str, dict[int, Inbox]] = field(default_factory=dict)
    server: dict[tuple[int, int], dict[int, dict[str, NDArray[Any]]]] = field(default_factory=dict)
    seats: dict[int, Seat] = field(default_factory=dict)


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
    gone : clients that drop out, by the first step they take no part in; ``distances`` is the step
        after ``reveal``, which all have then finished.
    """
    gone = gone or {}
    played = Played(seats=seats(codes, session, entropy))
    there = list(codes)
    state: dict[int, Arrays] = {}
    for step in STEPS:
        there = [client for client in there if client not in gone.get(step, ())]
        inboxes = dict(delivered(played, there))
        turns = {}
        for client in there:
            seat = played.seats[client]
            if step == "prepare":
                turns[client] = protocol.prepare(seat)
            else:
                take = getattr(protocol, step)
                turns[client] = take(seat, state[client], codes[client], inboxes[client])
            turns[client] = sent(turns[client])
            state[client] = turns[client].state
        played.inboxes[step], played.turns[step] = inboxes, turns
        hand_in(played, turns)
    for owner, evaluator in pairs(list(codes)):
        if owner in there and evaluator in there:
            sizes = len(codes[owner]), len(codes[evaluator])
            said = played.server[owner, evaluator]
            num_bits = played.seats[owner].num_bits
            played.distances[owner, evaluator] = protocol.distances(
                sizes, num_bits, said.get(owner, {}), said.get(evaluator, {})
            )
    return played


def pairs(clients: list[int]) -> Iterator[tuple[int, int]]:
    """All pairs (owner, evaluator): each client owns about half of its pairs."""
    for (i, first), (j, second) in combinations(enumerate(clients), 2):
        yield (first, second) if (i + j) % 2 else (second, first)


def seats(codes: Mapping[int, Bytes], session: bytes, entropy: Entropy) -> dict[int, Seat]:
    """Everybody's place; L is that of the codes."""
    among = list(pairs(list(codes)))
    return {
        client: Seat(
            own=client,
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
    """What each client gets from those that are still there, of what was sent in the step before.

    A peer that sent nothing to a client is not in its inbox, like one that is gone.
    """
    last = list(played.turns.values())[-1] if played.turns else {}
    for client in there:
        inbox: dict[int, Arrays] = {}
        for peer in there:
            turn = last.get(peer, Turn())
            owned = client in played.seats[peer].evaluators
            to_all = turn.to_evaluators if owned else turn.to_owners
            if message := {**to_all, **turn.to_peers.get(client, {})}:
                inbox[peer] = message
        yield client, inbox


def hand_in(played: Played, turns: Mapping[int, Turn]) -> None:
    """Put what clients told the server to the pairs it is about."""
    for pair in pairs(list(played.seats)):
        said = played.server.setdefault(pair, {})
        for client, peer in (pair, pair[::-1]):
            if client in turns and peer in turns[client].to_server:
                said.setdefault(client, {}).update(turns[client].to_server[peer])


def sent(turn: Turn) -> Turn:
    """A turn as it comes out of messages: read-only, and nobody else's memory."""
    return Turn(
        state=copied(turn.state),
        to_peers={peer: copied(arrays) for peer, arrays in turn.to_peers.items()},
        to_evaluators=copied(turn.to_evaluators),
        to_owners=copied(turn.to_owners),
        to_server={peer: copied(arrays) for peer, arrays in turn.to_server.items()},
    )


def copied(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Read-only copies."""
    copies = {name: np.array(array, order="C") for name, array in arrays.items()}
    for array in copies.values():
        array.flags.writeable = False
    return copies


def traffic(played: Played) -> int:
    """Bytes that clients sent; what goes to several counts once."""
    turns = [turn for by_client in played.turns.values() for turn in by_client.values()]
    messages = [
        message
        for turn in turns
        for message in (
            turn.to_evaluators,
            turn.to_owners,
            *turn.to_peers.values(),
            *turn.to_server.values(),
        )
    ]
    return sum(array.nbytes for message in messages for array in message.values())
