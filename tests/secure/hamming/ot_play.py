"""Oblivious transfer among clients, step by step, with all that each of them sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.secure.hamming.ot import OT
from fedul_flwr.secure.hamming.pairwise import Seat, Turn
from tests.secure.hamming.test_base_ot import seeded

STEPS = ("prepare", "offer", "answer", "reveal")
SESSION = bytes(range(32))
Pair = tuple[int, int]


@dataclass
class Play:
    """A protocol among clients; of a pair, the first in order is the owner.

    ``lost`` says from which step on a client is silent. ``turns`` has what each did, by step.
    """

    codes: Mapping[int, Bytes]
    session: bytes = SESSION
    seed: int = 0
    lost: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clients = list(self.codes)
        self.sizes = {client: len(codes) for client, codes in self.codes.items()}
        self.num_bits = 8 * next(iter(self.codes.values())).shape[1]
        self.seats = {
            client: Seat(
                own=client,
                evaluators=tuple(clients[position + 1 :]),
                owners=tuple(clients[:position]),
                sizes=self.sizes,
                num_bits=self.num_bits,
                session=self.session,
                entropy=seeded(1000 * self.seed + client),
            )
            for position, client in enumerate(clients)
        }
        self.turns: dict[str, dict[int, Turn]] = {}
        for step in STEPS:
            self.turns[step] = {
                client: self.turn(step, client)
                for client in clients
                if client not in self.lost or STEPS.index(step) < STEPS.index(self.lost[client])
            }

    def inbox(self, step: str, client: int) -> dict[int, dict[str, NDArray[Any]]]:
        """What came to a client from the step before."""
        before = self.turns[STEPS[STEPS.index(step) - 1]]
        return {
            peer: dict(turn.to_peers[client])
            for peer, turn in before.items()
            if client in turn.to_peers
        }

    def turn(self, step: str, client: int, inbox: Any = None) -> Turn:
        seat = self.seats[client]
        if step == "prepare":
            return OT.prepare(seat)
        state = self.turns[STEPS[STEPS.index(step) - 1]][client].state
        inbox = self.inbox(step, client) if inbox is None else inbox
        deed = {"offer": OT.offer, "answer": OT.answer, "reveal": OT.reveal}[step]
        return deed(seat, state, self.codes[client], inbox)

    def said(self, client: int, peer: int) -> dict[str, NDArray[Any]]:
        """What the server heard from a client about a pair."""
        heard: dict[str, NDArray[Any]] = {}
        for turns in self.turns.values():
            if client in turns:
                heard |= turns[client].to_server.get(peer, {})
        return heard

    def distances(self) -> dict[Pair, Ints]:
        found = {}
        for owner, seat in self.seats.items():
            for peer in seat.evaluators:
                by_owner, by_peer = self.said(owner, peer), self.said(peer, owner)
                if by_owner and by_peer:
                    sizes = (self.sizes[owner], self.sizes[peer])
                    found[owner, peer] = OT.distances(sizes, self.num_bits, by_owner, by_peer)
        return found


def random_codes(seed: int, points: int, num_bytes: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (points, num_bytes), dtype=np.uint8)
