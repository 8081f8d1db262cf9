"""Distances by oblivious transfer: XCLP's variant of SHADE (Bringer, Chabanne and Patey 2013).

For bit k of a point with code y the evaluator chooses, by y_k, between r + b_k and r + (1 - b_k):
vectors modulo 2^16 with an entry for each point of the owner, whose bits k are the vector b_k. That
is r plus the bits that differ. r is chosen by the owner, new for each transfer. With sums over k,
the evaluator sends T to the server, the owner R, the sum of all r, and T - R are the distances.

For each transfer only one vector is sent: r is chosen such that the other one is not needed
(:mod:`fedul_flwr.secure.hamming.extension`). Still, one message has 2 n_owner bytes for every bit
of the evaluator: 2 GB for 500 points each and L = 4096. So this protocol is for small codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.packed_codes import blocks
from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.secure.hamming.base_ot import POINT_BYTES, choose, receiver_keys, sender_keys
from fedul_flwr.secure.hamming.extension import (
    ROW_BYTES,
    SECURITY_BITS,
    Words,
    columns,
    hidden_columns,
    hide_choices,
    offer_correlated,
    receive_correlated,
    rows_of,
)
from fedul_flwr.secure.hamming.pairwise import Forms, Inbox, Party, StepResult
from fedul_flwr.secure.messages import checked_array, messages_from
from fedul_flwr.secure.similarity import Arrays, Cost

LARGEST_NUM_BITS = 2**16 - 1
"""Largest L, because distances are sent modulo 2^16."""

SECRET, SEEDS, POINTS, KEYS = "secret", "seeds", "points", "keys"  # KEYS: of the evaluator's T
POINT, CHOICES, CORRECTIONS, SUMS = "point", "choices", "corrections", "sums"

_BLOCK = 512
"""Transfers per block; a multiple of 8."""

_SECONDS_PER_PAIR, _SECONDS_PER_TRANSFER, _SECONDS_PER_NUMBER = 0.07, 3e-6, 2e-8
"""Seconds of one core, measured with 1 to 500 points and 1,024 and 4,096 bits."""


class ObliviousTransfer:
    """The protocol; see the module. Both parties and the server are semi-honest."""

    name = "ot"

    groups: ClassVar[Mapping[str, str]] = {}

    def told(self, step: str, own: int, peer: int) -> tuple[str, Forms]:
        """The owner's sums, then the evaluator's."""
        if step == "answer":
            return "evaluators", {SUMS: (np.uint16, (own, peer))}
        return "owners", {SUMS: (np.uint16, (peer, own))}

    def prepare(self, party: Party) -> StepResult:
        """As owner: a secret for each evaluator, and the base transfers' first message."""
        _check_num_bits(party.num_bits)
        state: dict[str, NDArray[Any]] = {}
        to_peers = {}
        for peer in party.evaluators:
            secret = np.frombuffer(party.entropy(ROW_BYTES), dtype=np.uint8)
            context = _context("base", party, party.own, peer)
            seeds, points = choose(context, np.unpackbits(secret), party.entropy)
            for name, array in ((SECRET, secret), (SEEDS, seeds), (POINTS, points)):
                state[_of(name, peer)] = array
            to_peers[peer] = {POINTS: points}
        return StepResult(state, to_peers)

    def offer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """As evaluator: choices by the bits of all codes, hidden by fresh keys."""
        remembered = dict(state)
        to_peers = {}
        for owner in (peer for peer in party.owners if peer in inbox):
            origin = f"Client {owner} sent in step 'prepare'"
            shape = (SECURITY_BITS, POINT_BYTES)
            with messages_from(owner), _points_checked(origin):
                points = checked_array(origin, inbox[owner], POINTS, np.uint8, shape)
                point, keys = sender_keys(
                    _context("base", party, owner, party.own), points, party.entropy
                )
            remembered[_of(KEYS, owner)] = keys[0]
            to_peers[owner] = {POINT: point, CHOICES: hide_choices(keys, codes.ravel())}
        return StepResult(remembered, to_peers)

    def answer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """As owner: corrections for the evaluator, sums of r for the server."""
        bits = np.unpackbits(codes, axis=1).T.astype(np.uint16)
        to_peers, to_server = {}, {}
        for peer in (peer for peer in party.evaluators if peer in inbox):
            origin = f"Client {peer} sent in step 'offer'"
            shape = (SECURITY_BITS, party.sizes[peer] * codes.shape[1])
            secret, seeds, points = (state[_of(name, peer)] for name in (SECRET, SEEDS, POINTS))
            with messages_from(peer), _points_checked(origin):
                choices = checked_array(origin, inbox[peer], CHOICES, np.uint8, shape)
                point = checked_array(origin, inbox[peer], POINT, np.uint8, (POINT_BYTES,))
                keys = receiver_keys(_context("base", party, party.own, peer), seeds, points, point)
            corrections, sums = _correct(
                _context("pads", party, party.own, peer),
                hidden_columns(keys, secret, choices),
                secret,
                bits,
            )
            to_peers[peer] = {CORRECTIONS: corrections}
            to_server[peer] = {SUMS: sums}
        kept = {_of(KEYS, owner) for owner in party.owners} & set(state)
        return StepResult({name: state[name] for name in kept}, to_peers, to_server=to_server)

    def reveal(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """As evaluator: sums of the received vectors, for the server."""
        to_server = {}
        for owner in (peer for peer in party.owners if peer in inbox and _of(KEYS, peer) in state):
            origin = f"Client {owner} sent in step 'answer'"
            shape = (len(codes) * party.num_bits, party.sizes[owner])
            with messages_from(owner):
                corrections = checked_array(origin, inbox[owner], CORRECTIONS, np.uint16, shape)
            streams = columns(state[_of(KEYS, owner)], codes.size)
            context = _context("pads", party, owner, party.own)
            to_server[owner] = {SUMS: _receive(context, streams, codes, corrections)}
        return StepResult(to_server=to_server)

    def distances(
        self, sizes: tuple[int, int], num_bits: int, by_owner: Arrays, by_evaluator: Arrays
    ) -> Ints:
        """T - R modulo 2^16, which equals h as L is smaller."""
        _check_num_bits(num_bits)
        own, received = (
            checked_array(f"The {role} sent in step {step!r}", said, SUMS, np.uint16, sizes)
            for role, step, said in (
                ("owner", "answer", by_owner),
                ("evaluator", "reveal", by_evaluator),
            )
        )
        found: Ints = (received - own).astype(np.int64)
        if (found > num_bits).any():
            raise UserError(
                "The owner and the evaluator sent sums whose difference is no distance; "
                f"it must be at most {num_bits}."
            )
        return found

    def cost(self, sizes: list[int], num_bits: int) -> Cost:
        """Mean over both choices of owner; two clients work in turns, more work in parallel."""
        clients, total = len(sizes), sum(sizes)
        pairs = clients * (clients - 1) / 2
        transfers = (clients - 1) * total / 2 * num_bits
        distances = (total**2 - sum(size**2 for size in sizes)) / 2
        seconds = pairs * _SECONDS_PER_PAIR + transfers * _SECONDS_PER_TRANSFER
        seconds += distances * num_bits * _SECONDS_PER_NUMBER
        traffic = pairs * (SECURITY_BITS + 1) * POINT_BYTES + transfers * ROW_BYTES
        traffic += distances * (2 * num_bits + 4)
        return Cost(seconds / (2 if clients > 2 else 1), traffic)


OT = ObliviousTransfer()


def _correct(context: bytes, hidden: Bytes, secret: Bytes, bits: Words) -> tuple[Words, Words]:
    """The owner's corrections ``(n_evaluator L, n_owner)`` and R ``(n_owner, n_evaluator)``.

    ``hidden`` are the columns of Q, ``bits`` the owner's ``(L, n_owner)``.
    """
    num_bits, size = bits.shape
    corrections = np.empty((8 * hidden.shape[1], size), dtype=np.uint16)
    sums = np.zeros((size, len(corrections) // num_bits), dtype=np.uint16)
    for point, part, block in _blocks(sums.shape[1], num_bits):
        rows = rows_of(hidden[:, block.start // 8 : block.stop // 8])
        r, corrections[block] = offer_correlated(context, block.start, rows, secret, bits[part])
        sums[:, point] += r.sum(axis=0, dtype=np.uint16)
    return corrections, sums


def _receive(context: bytes, streams: Bytes, codes: Bytes, corrections: Words) -> Words:
    """The evaluator's T ``(n_owner, n_evaluator)``; ``streams`` are the columns of IKNP's T."""
    sums = np.zeros((corrections.shape[1], len(codes)), dtype=np.uint16)
    for point, part, block in _blocks(len(codes), 8 * codes.shape[1]):
        rows = rows_of(streams[:, block.start // 8 : block.stop // 8])
        choices = np.unpackbits(codes[point])[part]
        got = receive_correlated(context, block.start, rows, choices, corrections[block])
        sums[:, point] += got.sum(axis=0, dtype=np.uint16)
    return sums


def _blocks(points: int, num_bits: int) -> Iterator[tuple[int, slice, slice]]:
    """Point, slice of its bits, slice of all transfers: small blocks that fit into the cache."""
    for point in range(points):
        for part in blocks(num_bits, _BLOCK):
            yield point, part, slice(*(point * num_bits + end for end in (part.start, part.stop)))


def _of(name: str, peer: int) -> str:
    return f"{name} {peer}"


def _context(purpose: str, party: Party, owner: int, evaluator: int) -> bytes:
    """Prefix of a pair's hash inputs; everything after the names has a fixed length."""
    return f"fedul-flwr ot {purpose} {owner} {evaluator} ".encode() + party.session


def _check_num_bits(num_bits: int) -> None:
    if num_bits > LARGEST_NUM_BITS:
        raise UserError(
            f"codes have {num_bits} bits; L must be at most {LARGEST_NUM_BITS} for backend 'ot'"
        )


@contextmanager
def _points_checked(origin: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UserError(
            f"{origin} a point that gives no secret; it must be of prime order on edwards25519."
        ) from error
