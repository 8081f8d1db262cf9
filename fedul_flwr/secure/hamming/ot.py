"""Hamming distances by oblivious transfers: base transfers, their extension, the protocol.

**Base transfers.** The receiver sends first. With a point C of unknown discrete logarithm, it sends
for each pair a public key PK_0, where PK_0 + PK_1 = C: it can know the private key of only one of
the two, and its message does not reveal which. The sender answers with one point R = r G for all
pairs (Naor, Pinkas 2001, section 3.1); keys of a pair are hashes of r PK_0 and r PK_1. Parties are
semi-honest.

The receiver's choices are hidden computationally, like discrete logarithms, not perfectly: the
scalars of RFC 7748 reach half of the group, and whoever could recognize this half would learn the
choices. Points and shared secrets are libsodium's, in constant time.

**Extension.** The roles of the 128 base transfers are reversed: the party that chooses among m
pairs has both keys of each base pair, and the other party has one of each, selected by its 128
secret bits s. The chooser's matrix T has a column of m bits from the stream of every first key. The
other party gets Q, whose row h is row h of T, plus s if choice h is 1. Of the pads A and B, hashes
of row h of Q and of that row plus s, the chooser therefore knows A if choice h is 0, else B.
Parties are semi-honest.

Bits are packed as ``np.packbits`` does.

**Distances.** For bit k of a point with code y the evaluator chooses, by y_k, between r + b_k and r
+ (1 - b_k): vectors modulo 2^16 with an entry for each point of the owner, whose bits k are the
vector b_k. That is r plus the bits that differ. r is chosen by the owner, new for each transfer.
With sums over k, the evaluator sends T to the server, the owner R, the sum of all r, and T - R are
the distances.

For each transfer only one vector is sent: r is chosen such that the other one is not needed.
Still, one message has 2 n_owner bytes for every bit
of the evaluator: 2 GB for 500 points each and L = 4096. So this protocol is for small codes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_is_valid_point,
    crypto_core_ed25519_sub,
    crypto_scalarmult,
    crypto_scalarmult_ed25519_base,
    crypto_sign_ed25519_pk_to_curve25519,
)
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes, Ints, blocks
from fedul_flwr.errors import UserError
from fedul_flwr.secure.hamming.pairwise import Forms, Inbox, Party, StepResult
from fedul_flwr.secure.messages import check_length, checked_array, messages_from
from fedul_flwr.secure.session import KEY_BYTES, Entropy, fresh, keystream
from fedul_flwr.secure.similarity import Arrays, Cost

POINT_BYTES = 32
"""A point of edwards25519: y, little-endian, and the lowest bit of x as the highest of all."""

_CANDIDATES = 256


def choose(context: bytes, choices: Bytes, entropy: Entropy) -> tuple[Bytes, Bytes]:
    """The receiver's message.

    Parameters
    ----------
    choices : ``(k,)``, 0 or 1 for each pair.

    Returns
    -------
    uint8 ``(k, 32)`` seeds of private keys, to keep, and ``(k, 32)`` PK_0, to send.
    """
    common = common_point(context)
    seeds = fresh(KEY_BYTES * len(choices), entropy).reshape(-1, KEY_BYTES)
    chosen = [crypto_scalarmult_ed25519_base(_scalar(seed.tobytes())) for seed in seeds]
    # Compute both, so that the time does not depend on the choice.
    others = [crypto_core_ed25519_sub(common, point) for point in chosen]
    return seeds, np.where(choices[:, np.newaxis] == 1, _array(others), _array(chosen))


def sender_keys(context: bytes, points: Bytes, entropy: Entropy) -> tuple[Bytes, Bytes]:
    """The sender's message and both keys of each pair.

    Parameters
    ----------
    points : uint8 ``(k, 32)``, PK_0 of each pair.

    Returns
    -------
    uint8 ``(32,)`` R, to send, and ``(2, k, 32)`` keys, unique to this call.
    """
    common = common_point(context)
    scalar = _scalar(entropy(KEY_BYTES))
    message = crypto_scalarmult_ed25519_base(scalar)
    keys = np.empty((2, len(points), KEY_BYTES), dtype=np.uint8)
    for index, row in enumerate(points):
        first = row.tobytes()
        # PK_1 is computed once PK_0 is checked.
        secrets = _shared(scalar, first), _shared(scalar, crypto_core_ed25519_sub(common, first))
        for choice, secret in enumerate(secrets):
            key = _key(context, index, message, row, secret)
            keys[choice, index] = np.frombuffer(key, dtype=np.uint8)
    return np.frombuffer(message, dtype=np.uint8), keys


def receiver_keys(context: bytes, seeds: Bytes, points: Bytes, message: Bytes) -> Bytes:
    """The chosen key of each pair.

    Parameters
    ----------
    message : uint8 ``(32,)``, R.

    Returns
    -------
    uint8 ``(k, 32)``
    """
    sent = message.tobytes()
    return _array(
        [
            _key(context, index, sent, row, _shared(_scalar(seed.tobytes()), sent))
            for index, (seed, row) in enumerate(zip(seeds, points, strict=True))
        ]
    )


def common_point(context: bytes) -> bytes:
    """C: a point of prime order with unknown discrete logarithm, by try and increment, times 8."""
    for counter in range(_CANDIDATES):
        point = hashlib.shake_128(context + counter.to_bytes(8, "little")).digest(POINT_BYTES)
        try:
            for _ in range(3):
                point = crypto_core_ed25519_add(point, point)
        except RuntimeError:  # about every second candidate is not on the curve
            continue
        return point
    raise AssertionError("no candidate is a point, as once in 2^256 times")


def _scalar(seed: bytes) -> bytes:
    """Ed25519's private scalar (RFC 8032, 5.1.5), which libsodium clamps where it multiplies."""
    return hashlib.sha512(seed).digest()[:KEY_BYTES]


def _shared(scalar: bytes, point: bytes) -> bytes:
    """The u coordinate of their product; ``ValueError`` for a point that is not of prime order."""
    if not crypto_core_ed25519_is_valid_point(point):
        raise ValueError("not a point of prime order on edwards25519")
    return crypto_scalarmult(scalar, crypto_sign_ed25519_pk_to_curve25519(point))


def _key(context: bytes, index: int, message: bytes, point: Bytes, shared: bytes) -> bytes:
    position = index.to_bytes(8, "little")
    hashed = hashlib.shake_128(context + position + message + point.tobytes() + shared)
    return hashed.digest(KEY_BYTES)


def _array(rows: list[bytes]) -> Bytes:
    """Points or keys, of 32 bytes both, as ``(k, 32)``."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, KEY_BYTES)


SECURITY_BITS = 128
"""Base transfers, kappa of the paper."""

ROW_BYTES = SECURITY_BITS // 8

Words = NDArray[np.uint16]


def columns(keys: Bytes, size: int) -> Bytes:
    """Streams of keys ``(128, 32)``, which must not be used elsewhere: uint8 ``(128, size)``."""
    return np.stack([keystream(key.tobytes(), size) for key in keys])


def rows_of(some_columns: Bytes) -> Bytes:
    """Rows of a block of columns: uint8 ``(128, b / 8)`` to ``(b, 16)``."""
    return np.packbits(np.unpackbits(some_columns, axis=1).T, axis=1)


def offer_correlated(
    context: bytes, first: int, rows: Bytes, secret: Bytes, bits: Words
) -> tuple[Words, Words]:
    """A block of correlated transfers: vectors r for r + bits or r + (1 - bits), by the choice.

    r is A - bits, so that choice 0 needs no correction; choice 1 needs r + (1 - bits) - B.

    Parameters
    ----------
    rows : uint8 ``(b, 16)``, rows of Q.
    secret : uint8 ``(16,)``, s, packed.
    bits : uint16 ``(b, n)``, 0 or 1.

    Returns
    -------
    uint16 ``(b, n)`` r, and ``(b, n)`` corrections, to send; both modulo 2^16.
    """
    if_zero, if_one = (
        _pads(context, first, either, bits.shape[1]) for either in (rows, rows ^ secret)
    )
    r = if_zero - bits
    return r, r + (1 - bits) - if_one


def receive_correlated(
    context: bytes, first: int, rows: Bytes, choices: Bytes, corrections: Words
) -> Words:
    """The chooser's result: r + bits for choice 0, r + (1 - bits) for choice 1.

    Parameters
    ----------
    rows : uint8 ``(b, 16)``, rows of T.
    choices : ``(b,)``, 0 or 1.
    corrections : uint16 ``(b, n)``, from :func:`offer_correlated`.

    Returns
    -------
    uint16 ``(b, n)``
    """
    return _pads(context, first, rows, corrections.shape[1]) + corrections * choices[:, np.newaxis]


def _pads(context: bytes, first: int, rows: Bytes, width: int) -> Words:
    """Hashes of rows, ``(b, width)``: SHAKE128 of context, the transfer's index and the row.

    The hash must be correlation robust (section 3 of the paper).
    """
    numbers = np.arange(first, first + len(rows), dtype="<u8")[:, np.newaxis].view(np.uint8)
    inputs = np.concatenate([numbers, rows], axis=1)
    data, size = inputs.tobytes(), inputs.shape[1]
    hashed = b"".join(
        hashlib.shake_128(context + data[start : start + size]).digest(2 * width)
        for start in range(0, len(data), size)
    )
    return np.frombuffer(hashed, dtype="<u2").astype(np.uint16).reshape(len(rows), width)


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

    def payload_spec(self, step: str, client: int, peer: int) -> tuple[str, Forms]:
        """The owner's sums, then the evaluator's."""
        if step == "answer":
            return "evaluators", {SUMS: (np.uint16, (client, peer))}
        return "owners", {SUMS: (np.uint16, (peer, client))}

    def prepare(self, party: Party) -> StepResult:
        """As owner: a secret for each evaluator, and the base transfers' first message."""
        check_length(party.num_bits, LARGEST_NUM_BITS, self.name)
        state: dict[str, NDArray[Any]] = {}
        to_peers = {}
        for peer in party.evaluators:
            secret = np.frombuffer(party.entropy(ROW_BYTES), dtype=np.uint8)
            context = _context("base", party, party.client, peer)
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
                    _context("base", party, owner, party.client), points, party.entropy
                )
            remembered[_of(KEYS, owner)] = keys[0]
            # U, (128, m / 8): uniform for the owner, who knows only one key of each base pair.
            first, second = (columns(half, codes.size) for half in keys)
            to_peers[owner] = {POINT: point, CHOICES: first ^ second ^ codes.ravel()}
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
                keys = receiver_keys(
                    _context("base", party, party.client, peer), seeds, points, point
                )
            # Columns of Q, (128, m / 8); s modulo 256 has all bits of a byte, or none.
            chosen = -np.unpackbits(secret)[:, np.newaxis]
            hidden = columns(keys, choices.shape[1]) ^ (choices & chosen)
            context = _context("pads", party, party.client, peer)
            corrections, sums = _correct(context, hidden, secret, bits)
            to_peers[peer] = {CORRECTIONS: corrections}
            to_server[peer] = {SUMS: sums}
        used = {_of(KEYS, owner) for owner in party.owners} & set(state)
        return StepResult({name: state[name] for name in used}, to_peers, to_server=to_server)

    def reveal(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """As evaluator: sums of the received vectors, for the server."""
        to_server = {}
        for owner in (peer for peer in party.owners if peer in inbox and _of(KEYS, peer) in state):
            origin = f"Client {owner} sent in step 'answer'"
            shape = (len(codes) * party.num_bits, party.sizes[owner])
            with messages_from(owner):
                corrections = checked_array(origin, inbox[owner], CORRECTIONS, np.uint16, shape)
            streams = columns(state[_of(KEYS, owner)], codes.size)
            context = _context("pads", party, owner, party.client)
            to_server[owner] = {SUMS: _receive(context, streams, codes, corrections)}
        return StepResult(to_server=to_server)

    def distances(
        self, sizes: tuple[int, int], num_bits: int, by_owner: Arrays, by_evaluator: Arrays
    ) -> Ints:
        """T - R modulo 2^16, which equals h as L is smaller."""
        check_length(num_bits, LARGEST_NUM_BITS, self.name)
        subtrahend, received = (
            checked_array(f"The {role} sent in step {step!r}", kind, SUMS, np.uint16, sizes)
            for role, step, kind in (
                ("owner", "answer", by_owner),
                ("evaluator", "reveal", by_evaluator),
            )
        )
        distances: Ints = (received - subtrahend).astype(np.int64)
        if (distances > num_bits).any():
            raise UserError(
                "The owner and the evaluator sent sums whose difference is no distance; "
                f"it must be at most {num_bits}.",
                "peer-cheated",
            )
        return distances

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


@contextmanager
def _points_checked(origin: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UserError(
            f"{origin} a point that gives no secret; it must be of prime order on edwards25519.",
            "key-unsafe",
        ) from error
