"""Slow, exact arithmetic of the ring, from its definition: for attacks and for known answers.

Nothing of ``fedul_flwr.secure.hamming.rlwe`` is used but its constants.
"""

import hashlib
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from fedul_flwr.secure.hamming.rlwe import DIGITS, N

Ints = NDArray[np.int64]
Q = 2**96


def aes_stream(key: bytes, size: int) -> bytes:
    """The blocks 0, 1, … under AES-256: counter mode by its definition."""
    blocks = b"".join(number.to_bytes(16) for number in range(-(-size // 16)))
    return Cipher(AES(key), ECB()).encryptor().update(blocks)[:size]


def public(session: bytes, index: int) -> Ints:
    """Digits ``(3, N)`` of public polynomial ``index``."""
    key = hashlib.shake_128(session + b"rlwe" + index.to_bytes(4, "little")).digest(32)
    words = np.frombuffer(aes_stream(key, 12 * N), "<u4")
    return words.reshape(N, DIGITS).T.astype(np.int64)


def product(a: Ints, b: Ints) -> Ints:
    """Coefficients of a b modulo X^N + 1, by the definition: X^i a, b_i times, for all i.

    ``a`` may have more axes before the last. Nothing is reduced: digits below 2^32 times a small
    polynomial stay below 2^63.
    """
    # X^i a is a_(j - i) for j >= i, else -a_(N + j - i).
    turned = np.concatenate([-a, a], axis=-1)
    total = np.zeros_like(a)
    for i, factor in enumerate(b.tolist()):
        if factor:
            total += factor * turned[..., N - i : 2 * N - i]
    return total


def inverse(a: Ints, bits: int) -> Ints:
    """1 / a modulo X^N + 1 and 2^bits, for a(1) odd.

    Modulo 2, a(X)^N = a(X^N) = a(1) = 1, so 1 / a = a^(N - 1) = a · a^2 · a^4 … a^(N / 2). From
    there Newton's v (2 - a v) is right modulo the square of the modulus where v is.
    """
    assert a.sum() % 2 == 1
    found, square = np.zeros(N, np.int64), a % 2
    found[0] = 1
    for _ in range(N.bit_length() - 1):
        found, square = product(square, found) % 2, product(square, square) % 2
    modulus = 2
    while modulus < 2**bits:
        modulus **= 2
        rest = -product(a % modulus, found) % modulus
        rest[0] += 2
        found = product(rest, found) % modulus
    return found % 2**bits


def integers(digits: NDArray[Any]) -> list[int]:
    """Digits ``(3, …)`` of any size and sign as integers modulo q, in one list."""
    columns = digits.reshape(DIGITS, -1).T.tolist()
    return [sum(int(digit) << 32 * place for place, digit in enumerate(c)) % Q for c in columns]


def words(numbers: list[int], shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Integers modulo q as uint32 digits ``(3, *shape)``."""
    digits = [[number >> 32 * place & 2**32 - 1 for number in numbers] for place in range(DIGITS)]
    return np.array(digits, dtype=np.uint32).reshape(DIGITS, *shape)
