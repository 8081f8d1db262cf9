"""Distances under additively homomorphic encryption from ring learning with errors.

XCLP, section 3.2, with the scheme of Lyubashevsky, Peikert and Regev (2010) and Brakerski and
Vaikuntanathan (2011) in the place of Paillier's: R = Z_q[X] / (X^N + 1), ternary secrets, centred
binomial noise, N = 4096 and q = 2^96, inside the 128-bit columns, classical and quantum, of the
Homomorphic Encryption Standard (Albrecht et al. 2018, table 1). None of this is constant-time.

**Packing.** Ciphertext c of an owner holds beta bits of each of N / beta points,

    x_c(X) = sum_p sum_(m < beta) b_(p, beta c + m) X^(beta p + m),
    b_c = A_c s + e_c + Delta x_c.

Bits y of an evaluator's point, as weights w = 1 - 2 y, are w_c(X) = sum_m w_(beta c + m) X^-m:
coefficient beta p of sum_c w_c x_c is sum_k w_k b_pk, the distance less the number of ones in y.
So the evaluator needs sum_c w_c A_c, and of sum_c w_c b_c only coefficients beta p, for which the
owner sends the coefficients that exist.

**Common A_c.** All owners, and all chunks of an owner with more than N / beta points, use the same
A_c with secrets of their own. Samples (A, A s_i + e_i) of several i are pseudo-random together: one
i after the other can be replaced by random ones, as the others are made from A alone.

**What the owner must not learn.** It knows every e_c, so noise that depends on w would tell bits.
The evaluator adds an encryption of zero (u a_0 + e_1, u b_0 + e_2), fresh for every row and secret,
without which a' = sum_c w_c A_c tells w; and a flood uniform on ±2^79, next to which the noise, at
most 2^19, is within statistical distance 2^-61 of none. Only then digits are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedul_flwr.data.types import Bytes, Floats, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.codes import blocks, check_num_bits
from fedul_flwr.secure.hamming.pairwise import Inbox, Seat, Turn
from fedul_flwr.secure.hamming.ring import (
    CBD_BITS,
    DIGITS,
    N,
    Small,
    Words,
    binomial,
    carry,
    coefficients,
    public_polynomials,
    spectrum,
    ternary,
    weighted_sums,
)
from fedul_flwr.secure.randomness import Entropy, fresh
from fedul_flwr.secure.similarity import Arrays, Cost

T = 2**13
"""Plaintexts are integers modulo t."""

DELTA = 2.0**19
"""Delta = q / t = 2^83, in units of the highest digit."""

FLOOD = 2**15
"""Half the width of the flood, 2^79, in units of the highest digit."""

_NOISE = CBD_BITS * (T + 2 * N + 1)
"""Bounds |sum_k w_k e_k + u e_0 - s e_1 + e_2|."""

assert T * 2**32 < 2**53, "sums of digits must be exact in float64"
assert _NOISE < 2**19, "the flood must cover the noise"
# Dropping two digits of a' and b' adds less than 2^64 (N + 1).
assert FLOOD + N + 2 < DELTA / 2, "honest messages must decrypt"

_ROWS = 512  # of the evaluator at a time, for memory
_CIPHERTEXTS = 512
_CACHED = 16  # polynomials at a time, for the processor's cache

# Measured on two cores: what is done with N coefficients, and multiplications in matrix products.
_SECONDS_PER_POLYNOMIAL = 1.7e-4
_SECONDS_PER_PRODUCT = 3e-11

SECRET, KEY, BITS, A, B = "secret", "key", "bits", "a", "b"
MASKS, REVEALED = "masks", "revealed"


@dataclass(frozen=True)
class Packing:
    """Where bits are in ciphertexts: bit beta c + m of slot p is coefficient beta p + m of x_c."""

    beta: int
    num_bits: int

    @property
    def slots(self) -> int:
        """Points for which there is room, N / beta."""
        return N // self.beta

    @property
    def ciphertexts(self) -> int:
        """C = ceil(L / beta)."""
        return -(-self.num_bits // self.beta)

    def chunks(self, num_points: int) -> list[slice]:
        """Points in stretches that have a secret and ciphertexts of their own."""
        return list(blocks(num_points, self.slots))


def packing(sizes: Mapping[int, int], num_bits: int) -> Packing:
    """The same for all clients: beta is the largest power of two with room for the most points.

    Raises
    ------
    UserError
        L that is no positive multiple of 8, or not below t.
    """
    check_num_bits(num_bits)
    if num_bits >= T:
        raise UserError(f"codes have {num_bits} bits; the protocol 'rlwe' takes less than {T}")
    room = N // max((2, *sizes.values()))
    return Packing(2 ** (max(1, room).bit_length() - 1), num_bits)


class RingLWE:
    """The protocol :class:`~fedul_flwr.secure.hamming.pairwise.PairwiseHamming` by ring-LWE."""

    name = "rlwe"

    def prepare(self, seat: Seat) -> Turn:
        """Nothing; L is checked."""
        packing(seat.sizes, seat.num_bits)
        return Turn()

    def offer(self, seat: Seat, state: Arrays, codes: Bytes, inbox: Inbox) -> Turn:
        """The owner encrypts its bits, once for all evaluators.

        It sends b_0 as ``key``, uint32 ``(3, chunks, N)``, and ``bits`` ``(3, n_own, L)``, where
        (p, beta c + m) is coefficient beta p + m of b_c.
        """
        del state, inbox
        layout = packing(seat.sizes, seat.num_bits)
        if not seat.evaluators:
            return Turn()
        points = layout.chunks(len(codes))
        secrets = ternary((len(points), N), seat.entropy)
        key = _base(seat.session)[:, None] * spectrum(secrets)
        noisy = coefficients(key)
        noisy[0] += binomial(secrets.shape, seat.entropy)
        bits = np.empty((DIGITS, len(codes), seat.num_bits), dtype=np.uint32)
        for chunk, secret in zip(points, secrets, strict=True):
            _encrypt(seat, layout, secret, codes[chunk], bits[:, chunk])
        return Turn({SECRET: secrets}, to_evaluators={KEY: carry(noisy), BITS: bits})

    def answer(self, seat: Seat, state: Arrays, codes: Bytes, inbox: Inbox) -> Turn:
        """The evaluator computes masked distances on ciphertexts.

        To each owner goes the highest digit of a' and of coefficients beta p of b': ``a`` uint32
        ``(chunks, n_own, N)`` and ``b`` ``(n_own, n_owner)``; to the server go ``masks`` uint16
        ``(n_own, n_owner)``.
        """
        layout = packing(seat.sizes, seat.num_bits)
        offers = {
            owner: _Offer.checked(layout, seat.sizes[owner], inbox[owner], owner)
            for owner in seat.owners
            if owner in inbox
        }
        masks = {owner: _masks((len(codes), offer.size), seat) for owner, offer in offers.items()}
        answers = {
            owner: {
                A: np.empty((len(offer.keys), len(codes), N), dtype=np.uint32),
                B: np.empty((len(codes), offer.size), dtype=np.uint32),
            }
            for owner, offer in offers.items()
        }
        for rows in blocks(len(codes), _ROWS) if offers else ():
            ones = np.unpackbits(codes[rows], axis=1)
            weights = 1 - 2 * ones.astype(np.float64)
            shared = _public_part(seat.session, layout, weights)
            for owner, offer in offers.items():
                plain = masks[owner][rows] + ones.sum(axis=1, dtype=np.float64)[:, None]
                target = answers[owner]
                _evaluate(seat, offer, weights, shared, plain, target[A][:, rows], target[B][rows])
        to_server = {owner: {MASKS: mask} for owner, mask in masks.items()}
        return Turn(state, to_peers=answers, to_server=to_server)

    def reveal(self, seat: Seat, state: Arrays, codes: Bytes, inbox: Inbox) -> Turn:
        """The owner decrypts: ``revealed`` uint16 ``(n_evaluator, n_own)``, distances + masks."""
        layout = packing(seat.sizes, seat.num_bits)
        points = layout.chunks(len(codes))
        to_server = {}
        for peer in seat.evaluators:
            if peer not in inbox:
                continue
            num_rows = seat.sizes[peer]
            who = f"Client {peer} sent in step 'answer'"
            a = _checked(who, inbox[peer], A, np.uint32, (len(points), num_rows, N))
            b = _checked(who, inbox[peer], B, np.uint32, (num_rows, len(codes)))
            revealed = np.empty(b.shape, dtype=np.uint16)
            for chunk, secret, part in zip(points, state[SECRET], a, strict=True):
                revealed[:, chunk] = _decrypt(layout, secret, part, b[:, chunk])
            to_server[peer] = {REVEALED: revealed}
        return Turn(to_server=to_server)

    def distances(
        self, sizes: tuple[int, int], num_bits: int, by_owner: Arrays, by_evaluator: Arrays
    ) -> Ints:
        """The masks are taken off again."""
        shape = (sizes[1], sizes[0])
        revealed = _checked("The owner sent", by_owner, REVEALED, np.uint16, shape)
        masks = _checked("The evaluator sent", by_evaluator, MASKS, np.uint16, shape)
        for who, name, numbers in (
            ("owner", REVEALED, revealed),
            ("evaluator", MASKS, masks),
        ):
            if numbers.max(initial=0) >= T:
                raise UserError(f"The {who} sent {name!r} out of range; they must be below {T}.")
        distances = (revealed.astype(np.int64) - masks) % T
        if distances.max(initial=0) > num_bits:
            raise UserError(
                "What the owner and the evaluator sent makes a distance above the number of bits, "
                f"{num_bits}; it must be at most that."
            )
        return np.ascontiguousarray(distances.T)

    def cost(self, sizes: list[int], num_bits: int) -> Cost:
        """Bytes are exact for sizes that are alike; else they depend on who owns which pair."""
        layout = packing(dict(enumerate(sizes)), num_bits)
        num_points = sum(sizes)
        num_chunks = [len(layout.chunks(size)) for size in sizes]
        compared = (num_points**2 - sum(size**2 for size in sizes)) / 2
        # Of a pair either may be the owner; among two clients only one is.
        rows = (
            sum((num_points - n) * chunks for n, chunks in zip(sizes, num_chunks, strict=True)) / 2
        )
        owning = min(1.0, (len(sizes) - 1) / 2)
        keys = owning * sum(num_chunks)
        offered = 12 * (owning * num_points * num_bits + keys * N)
        polynomials = rows + keys * layout.ciphertexts
        products = DIGITS * num_bits * (compared + num_points * N * 1.9 / min(layout.beta, 16))
        seconds = _SECONDS_PER_POLYNOMIAL * polynomials + _SECONDS_PER_PRODUCT * products
        return Cost(seconds, offered + 4 * rows * N + 8 * compared)


RLWE = RingLWE()


@dataclass(frozen=True)
class _Offer:
    """What an owner sent: b_0 and the bits of each of its chunks."""

    layout: Packing
    size: int
    keys: Words
    bits: Words

    @classmethod
    def checked(cls, layout: Packing, size: int, message: Arrays, owner: int) -> _Offer:
        who = f"Client {owner} sent in step 'offer'"
        num_chunks = len(layout.chunks(size))
        keys = _checked(who, message, KEY, np.uint32, (DIGITS, num_chunks, N))
        bits = _checked(who, message, BITS, np.uint32, (DIGITS, size, layout.num_bits))
        return cls(layout, size, np.swapaxes(keys, 0, 1), bits)


def _checked(
    who: str, message: Arrays, name: str, dtype: DTypeLike, shape: tuple[int, ...]
) -> NDArray[Any]:
    found = message.get(name)
    if found is None or found.dtype != dtype or found.shape != shape:
        form = "nothing" if found is None else f"{found.dtype} {found.shape}"
        raise UserError(f"{who} {form} as {name!r}; it must be {np.dtype(dtype)} {shape}.")
    return found


def _base(session: bytes) -> NDArray[np.complex128]:
    """a_0, as a spectrum ``(3, N / 2)``."""
    return spectrum(public_polynomials(session, range(1))[:, 0])


def _public(session: bytes, ciphertexts: slice) -> Words:
    """A_c for some c."""
    return public_polynomials(session, range(1 + ciphertexts.start, 1 + ciphertexts.stop))


def _encrypt(seat: Seat, layout: Packing, secret: Small, codes: Bytes, target: Words) -> None:
    """Write b_c for all c, as far as there are points and bits, to ``(3, points, L)``."""
    beta = layout.beta
    plain = np.unpackbits(codes, axis=1)
    hidden = spectrum(secret)
    for some in blocks(layout.ciphertexts, _CACHED):
        products = coefficients(spectrum(_public(seat.session, some)) * hidden)
        by_slot = products.reshape(DIGITS, -1, layout.slots, beta)[:, :, : len(codes)]
        columns = slice(some.start * beta, min(some.stop * beta, layout.num_bits))
        bits = plain[:, columns]
        digits = np.swapaxes(by_slot, 1, 2).reshape(DIGITS, len(codes), -1)[..., : bits.shape[1]]
        digits[0] += binomial(bits.shape, seat.entropy)
        digits[2] += DELTA * bits
        target[:, :, columns] = carry(digits)


def _public_part(session: bytes, layout: Packing, weights: Floats) -> Floats:
    """Digits ``(3, n, N)`` of sum_c w_c A_c, which is the same for all owners."""
    padded = np.zeros((len(weights), layout.ciphertexts * layout.beta))
    padded[:, : layout.num_bits] = weights
    by_ciphertext = padded.reshape(len(weights), layout.ciphertexts, layout.beta)
    parts = (
        weighted_sums(by_ciphertext[:, some], _public(session, some))
        for some in blocks(layout.ciphertexts, _CIPHERTEXTS)
    )
    total = next(parts)
    for part in parts:
        total += part
    return total


def _evaluate(
    seat: Seat,
    offer: _Offer,
    weights: Floats,
    shared: Floats,
    plain: Floats,
    a: Words,
    b: Words,
) -> None:
    """Write highest digits of a' and b' for some rows of the evaluator.

    Parameters
    ----------
    weights : ``(r, L)``.
    shared : digits ``(3, r, N)`` of sum_c w_c A_c.
    plain : what is added to the distances, ``(r, n_owner)``.
    a, b : ``(chunks, r, N)`` and ``(r, n_owner)``.
    """
    digits = np.stack([weights @ digit.T.astype(np.float64) for digit in offer.bits])
    base = _base(seat.session)[:, None]
    for chunk, key, target in zip(offer.layout.chunks(offer.size), offer.keys, a, strict=True):
        hidden = spectrum(key)[:, None]
        for rows in blocks(len(weights), _CACHED):
            secret = spectrum(ternary(target[rows].shape, seat.entropy))
            zero = coefficients(secret * base)
            zero += shared[:, rows]
            zero[0] += binomial(target[rows].shape, seat.entropy)
            target[rows] = carry(zero)[2]
            other = coefficients(secret * hidden, offer.layout.beta)
            digits[:, rows, chunk] += other[..., : chunk.stop - chunk.start]
    digits[0] += binomial(b.shape, seat.entropy)
    digits[2] += DELTA * plain
    digits += _flood(b.shape, seat.entropy)
    b[:] = carry(digits)[2]


def _decrypt(layout: Packing, secret: Small, a: Words, b: Words) -> NDArray[np.uint16]:
    """Plaintexts ``(r, points)`` from highest digits ``(r, N)`` and ``(r, points)``."""
    plain = np.empty(b.shape, dtype=np.uint16)
    hidden = spectrum(secret)
    for rows in blocks(len(a), _CACHED):
        noisy = b[rows] - coefficients(spectrum(a[rows]) * hidden, layout.beta)[:, : b.shape[1]]
        plain[rows] = np.rint(noisy / DELTA).astype(np.int64) % T
    return plain


def _masks(shape: tuple[int, int], seat: Seat) -> NDArray[np.uint16]:
    """Uniform modulo t."""
    words = fresh(2 * prod(shape), seat.entropy).view(np.uint16)
    masks: NDArray[np.uint16] = words.reshape(shape) % np.uint16(T)
    return masks


def _flood(shape: tuple[int, ...], entropy: Entropy) -> Floats:
    """Digits ``(3, …)`` of integers that are uniform on [-2^79, 2^79)."""
    low = fresh(8 * prod(shape), entropy).view(np.uint32).reshape(2, *shape)
    high = fresh(2 * prod(shape), entropy).view(np.uint16).reshape(1, *shape)
    return np.concatenate([low.astype(np.float64), high.astype(np.float64) - FLOOD])
