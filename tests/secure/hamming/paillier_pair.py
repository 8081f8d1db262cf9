"""An owner and an evaluator of Paillier's protocol, step by step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.secure.hamming.paillier import Paillier
from fedul_flwr.secure.hamming.paillier_scheme import Number, PrivateKey, from_bytes
from fedul_flwr.secure.hamming.pairwise import Arrays, Seat, Turn

SMALL = Paillier(512)
"""39 points a chunk: 39 * 13 = 507 bits. A number has 64 bytes, a ciphertext 128."""

OWNER, EVALUATOR = 3, 8
Draw = Callable[[int], bytes]


def codes_of(bits: Sequence[Sequence[int]] | NDArray[Any]) -> Bytes:
    return np.packbits(np.asarray(bits, dtype=np.uint8), axis=1)


def random_codes(points: int, num_bits: int, seed: int = 0) -> Bytes:
    rng = np.random.default_rng([seed, points])
    return rng.integers(0, 256, (points, num_bits // 8), dtype=np.uint8)


def plain(one: Bytes, other: Bytes) -> Ints:
    return np.bitwise_count(one[:, None] ^ other[None]).sum(axis=2, dtype=np.int64)


class Pair:
    """An owner and an evaluator, step by step, with all that each of them sends."""

    def __init__(self, codes: Bytes, others: Bytes, protocol: Paillier = SMALL) -> None:
        self.codes, self.others, self.protocol = codes, others, protocol
        self.sizes = (len(codes), len(others))
        self.num_bits = 8 * codes.shape[1]
        sizes = {OWNER: len(codes), EVALUATOR: len(others)}
        common = {"sizes": sizes, "num_bits": self.num_bits, "session": bytes(32)}
        self.owner = Seat(OWNER, (EVALUATOR,), (), **common)
        self.common = common
        self.offered = protocol.offer(self.owner, {}, codes, {})

    def answer(self, others: Bytes | None = None, entropy: Draw = os.urandom) -> Turn:
        seat = Seat(EVALUATOR, (), (OWNER,), **self.common, entropy=entropy)
        codes = self.others if others is None else others
        return self.protocol.answer(seat, {}, codes, {OWNER: self.offered.to_evaluators})

    def reveal(self, answered: Turn) -> Arrays:
        inbox = {EVALUATOR: answered.to_peers[OWNER]}
        turn = self.protocol.reveal(self.owner, self.offered.state, self.codes, inbox)
        return turn.to_server[EVALUATOR]

    def distances(self) -> Ints:
        answered = self.answer()
        revealed = self.reveal(answered)
        told = answered.to_server[OWNER]
        return self.protocol.distances(self.sizes, self.num_bits, revealed, told)

    @property
    def n(self) -> Number:
        return from_bytes(self.offered.to_evaluators["modulus"][None])[0]

    def seen_by_owner(self, answered: Turn) -> list[Number]:
        """Plaintexts of what the owner gets."""
        key = PrivateKey(*from_bytes(np.stack([self.offered.state[name] for name in "pq"])))
        ciphertexts = answered.to_peers[OWNER]["ciphertexts"]
        return [key.decrypt(c) for c in from_bytes(ciphertexts.reshape(-1, 128))]
