"""Hamming distances by additively homomorphic encryption from ring learning with errors.

XCLP, section 3.2, with the scheme of Lyubashevsky, Peikert and Regev (2010) and Brakerski and
Vaikuntanathan (2011) in the place of Paillier's: R = Z_q[X] / (X^N + 1), ternary secrets, centered
binomial noise, N = 4096 and q = 2^96, inside the 128-bit columns, classical and quantum, of the
Homomorphic Encryption Standard (Albrecht et al. 2018). None of this is constant-time.

**Packing.** Ciphertext c of an owner contains beta bits of each of N / beta points,

    x_c(X) = sum_p sum_(m < beta) b_(p, beta c + m) X^(beta p + m),
    b_c = A_c s + e_c + Delta x_c.

Bits y of an evaluator's point, as weights w = 1 - 2 y, are w_c(X) = sum_m w_(beta c + m) X^-m:
coefficient beta p of sum_c w_c x_c is sum_k w_k b_pk, the distance minus the number of ones in y.
So the evaluator needs sum_c w_c A_c, and of sum_c w_c b_c only coefficients beta p, for which the
owner sends the coefficients that exist.

**Common A_c.** All owners, and all chunks of an owner with more than N / beta points, use the same
A_c with secrets of their own. Samples (A, A s_i + e_i) of several i are pseudo-random together: one
i after the other can be replaced by random ones, as the others are made from A alone.

**Hiding the evaluator's bits from the owner.** The owner gets a' and b'. a' = sum_c w_c A_c alone
would reveal w, so the evaluator adds u a_0 + e_1 with u and e_1 new for every row: a' is then a
sample of ring-LWE, whatever the owner sent, as A_c and a_0 are expanded from the session and not
chosen by it. (The same a' serves all owners: Peikert, Vaikuntanathan and Waters 2008.) b' is a
function of what the owner sent, which may be anything: an owner that adds c to a ciphertext of bit
k finds w_k c in b'. So to every number of b' that is sent, after all else, the evaluator adds a
word that is uniform on all 2^32 values and independent of everything (:func:`mask`). What an owner
sees is a' and uniform words.

**Hiding them from the server as well.** The server takes the words off, and has distances with
noise. The owner knows every e_c, so noise that depends on w would tell both together more than
distances. The evaluator adds u b_0 + e_2, which makes its part with a' an encryption of zero, and
flooding noise uniform on ±2^79, so that noise below 2^19 changes the distribution by a statistical
distance of at most 2^-61. Only then digits are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np

from fedul_flwr.data.packed_codes import blocks, check_num_bits
from fedul_flwr.data.types import Bytes, Floats
from fedul_flwr.errors import UserError
from fedul_flwr.secure.hamming.ring import (
    CBD_BITS,
    DIGITS,
    N,
    Small,
    Spectra,
    Words,
    binomial,
    carry,
    coefficients,
    public_polynomials,
    spectrum,
    ternary,
    weighted_sums,
)
from fedul_flwr.secure.randomness import Entropy, fresh, keystream

T = 2**13
"""Plaintexts are integers modulo t."""

DELTA = 2.0**19
"""Delta = q / t = 2^83, in units of the highest digit."""

FLOOD = 2**15
"""Half the width of the flooding noise, 2^79, in units of the highest digit."""

_NOISE = CBD_BITS * (T + 2 * N + 1)
"""Bound of |sum_k w_k e_k + u e_0 - s e_1 + e_2|."""

assert T * 2**32 < 2**53, "sums of digits must be exact in float64"
assert _NOISE < 2**19, "the flood must cover the noise"
# Dropping two digits of a' and b' adds less than 2^64 (N + 1).
assert FLOOD + N + 2 < DELTA / 2, "honest messages must decrypt"

_CIPHERTEXTS = 512  # at a time, for memory
_CACHED = 16  # polynomials at a time, for the processor's cache


@dataclass(frozen=True)
class Packing:
    """Positions of bits: bit beta c + m of slot p is coefficient beta p + m of x_c."""

    beta: int
    num_bits: int

    @property
    def slots(self) -> int:
        """Number of points per ciphertext, N / beta."""
        return N // self.beta

    @property
    def ciphertexts(self) -> int:
        """C = ceil(L / beta)."""
        return -(-self.num_bits // self.beta)

    def chunks(self, num_points: int) -> list[slice]:
        """Groups of points, each with its own secret and ciphertexts."""
        return list(blocks(num_points, self.slots))


def packing(sizes: Mapping[int, int], num_bits: int) -> Packing:
    """Packing for all clients: the largest power of two beta with room for the largest client.

    Raises
    ------
    UserError
        If L is not a positive multiple of 8, or not below t.
    """
    check_num_bits(num_bits)
    if num_bits >= T:
        raise UserError(f"codes have {num_bits} bits; the protocol 'rlwe' takes less than {T}")
    room = N // max((2, *sizes.values()))
    return Packing(2 ** (max(1, room).bit_length() - 1), num_bits)


@dataclass(frozen=True)
class Offer:
    """An owner's ciphertexts.

    Attributes
    ----------
    layout : positions of bits in them.
    keys : b_0 of each chunk, ``(3, chunks, N)``.
    bits : ``(3, n_owner, L)``; (p, beta c + m) is coefficient beta p + m of b_c.
    """

    layout: Packing
    keys: Words
    bits: Words

    @property
    def chunks(self) -> list[slice]:
        """Groups of points, one for each of the owner's secrets."""
        return self.layout.chunks(self.bits.shape[1])


def encrypt(layout: Packing, session: bytes, codes: Bytes, entropy: Entropy) -> tuple[Small, Offer]:
    """An owner's secrets, ``(chunks, N)``, and its ciphertexts for evaluators.

    Parameters
    ----------
    session : 32 bytes; a_0 and A_c are expanded from them.
    codes : ``(n_owner, L / 8)``.
    """
    chunks = layout.chunks(len(codes))
    secrets = ternary((len(chunks), N), entropy)
    keys = coefficients(_base(session)[:, None] * spectrum(secrets))
    keys[0] += binomial(secrets.shape, entropy)
    plain = np.unpackbits(codes, axis=1)
    bits = np.empty((DIGITS, *plain.shape), dtype=np.uint32)
    for chunk, secret in zip(chunks, secrets, strict=True):
        _encrypt_chunk(layout, session, secret, plain[chunk], bits[:, chunk], entropy)
    return secrets, Offer(layout, carry(keys), bits)


def _encrypt_chunk(
    layout: Packing, session: bytes, secret: Small, plain: Bytes, target: Words, entropy: Entropy
) -> None:
    """Write the used coefficients of b_c for bits ``(points, L)`` to ``(3, points, L)``."""
    hidden = spectrum(secret)
    for some in blocks(layout.ciphertexts, _CACHED):
        products = coefficients(spectrum(_public(session, some)) * hidden)
        by_slot = products.reshape(DIGITS, -1, layout.slots, layout.beta)[:, :, : len(plain)]
        columns = slice(some.start * layout.beta, some.stop * layout.beta)
        bits = plain[:, columns]
        digits = np.swapaxes(by_slot, 1, 2).reshape(DIGITS, len(plain), -1)[..., : bits.shape[1]]
        digits[0] += binomial(bits.shape, entropy)
        digits[2] += DELTA * bits
        target[:, :, columns] = carry(digits)


def public_sums(layout: Packing, session: bytes, weights: Floats) -> Floats:
    """Digits ``(3, r, N)`` of sum_c w_c A_c, which are the same for all owners.

    Parameters
    ----------
    weights : -1 or 1, ``(r, L)``.
    """
    padded = np.zeros((len(weights), layout.ciphertexts * layout.beta))
    padded[:, : layout.num_bits] = weights
    by_ciphertext = padded.reshape(len(weights), layout.ciphertexts, layout.beta)
    parts = (
        weighted_sums(by_ciphertext[:, some], _public(session, some))
        for some in blocks(layout.ciphertexts, _CIPHERTEXTS)
    )
    return reduce(np.add, parts)


def evaluate(
    offers: Sequence[Offer],
    session: bytes,
    weights: Floats,
    entropy: Entropy,
) -> tuple[Words, list[Words]]:
    """Encrypted distances of some points of the evaluator to all points of several owners.

    Parameters
    ----------
    offers : ciphertexts of the owners, with the same layout.
    weights : 1 - 2 y, ``(r, L)``.

    Returns
    -------
    Highest digits of a', ``(r, N)``, the same for all owners, and those of the used coefficients
    of b' for each owner, ``(r, n_owner)``. The latter depend on what the owner sent, and must be
    masked before it gets them.
    """
    masked = public_sums(offers[0].layout, session, weights)
    digits = [_sums_of_bits(weights, offer.bits) for offer in offers]
    base = _base(session)[:, None]
    keys = [[spectrum(key)[:, None] for key in np.swapaxes(o.keys, 0, 1)] for o in offers]
    for rows in blocks(len(weights), _CACHED):
        hidden = spectrum(ternary(masked[0, rows].shape, entropy))
        masked[:, rows] += coefficients(hidden * base)
        masked[0, rows] += binomial(masked[0, rows].shape, entropy)
        for offer, own, target in zip(offers, keys, digits, strict=True):
            for chunk, key in zip(offer.chunks, own, strict=True):
                zeros = coefficients(hidden * key, offer.layout.beta)
                target[:, rows, chunk] += zeros[..., : chunk.stop - chunk.start]
    num_ones = (1 - weights).sum(axis=1, keepdims=True) / 2
    for target in digits:
        target[0] += binomial(target[0].shape, entropy)
        target[2] += DELTA * num_ones
        np.add(target, flood(target[0].shape, entropy), out=target)
    return carry(masked)[2], [carry(target)[2] for target in digits]


def _sums_of_bits(weights: Floats, bits: Words) -> Floats:
    """Digits ``(3, r, n_owner)`` of sum_k w_k b_k, in one product of matrices."""
    flat = bits.reshape(DIGITS * bits.shape[1], bits.shape[2]).astype(np.float64)
    sums = (flat @ weights.T).reshape(*bits.shape[:2], len(weights))
    return np.ascontiguousarray(sums.swapaxes(1, 2))


def mask(key: bytes, shape: tuple[int, int]) -> Words:
    """Uniform words ``(r, n_owner)`` that hide b' from its owner: ChaCha20's stream under a key."""
    return keystream(key, 4 * prod(shape)).view("<u4").reshape(shape)


def decrypt(layout: Packing, secrets: Small, a: Words, b: Words) -> Words:
    """b' - a' s as it is, ``(r, n_owner)``, from the result of :func:`evaluate`, masked or not.

    Nothing is rounded, so that a mask of any size can be taken off later.
    """
    plain = np.empty(b.shape, dtype=np.uint32)
    hidden = spectrum(secrets)
    for rows in blocks(len(b), _CACHED):
        received = spectrum(a[rows])
        for chunk, secret in zip(layout.chunks(b.shape[1]), hidden, strict=True):
            known = coefficients(received * secret, layout.beta)
            noisy = b[rows, chunk] - known[:, : chunk.stop - chunk.start]
            plain[rows, chunk] = np.rint(noisy).astype(np.int64) & (2**32 - 1)
    return plain


def rounded(digits: Words) -> Words:
    """Plaintexts modulo t from decrypted digits without a mask, of the same shape."""
    return (digits + np.uint32(DELTA / 2)) // np.uint32(DELTA)


def flood(shape: tuple[int, ...], entropy: Entropy) -> Floats:
    """Digits ``(3, …)`` of integers that are uniform on [-2^79, 2^79)."""
    low = fresh(8 * prod(shape), entropy).view(np.uint32).reshape(2, *shape)
    high = fresh(2 * prod(shape), entropy).view(np.uint16).reshape(1, *shape)
    return np.concatenate([low.astype(np.float64), high.astype(np.float64) - FLOOD])


def _base(session: bytes) -> Spectra:
    """a_0, as a spectrum ``(3, N / 2)``."""
    return spectrum(public_polynomials(session, range(1))[:, 0])


def _public(session: bytes, ciphertexts: slice) -> Words:
    """A_c for some c."""
    return public_polynomials(session, range(1 + ciphertexts.start, 1 + ciphertexts.stop))
