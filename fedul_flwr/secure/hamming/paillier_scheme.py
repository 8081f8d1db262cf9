"""Paillier's cryptosystem: additively homomorphic encryption of integers modulo n.

P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes", EUROCRYPT
1999, section 4, with base g = 1 + n. The public key is n = p q. A plaintext m in Z_n becomes

    c = (1 + m n) r^n mod n²

for r uniform among the residues coprime to n, so that the product of ciphertexts encrypts the sum
of their plaintexts. Powers with secret exponents use GMP's ``mpz_powm_sec``. All other functions of
GMP and Python are not constant-time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import gmpy2
import numpy as np
from gmpy2 import mpz

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.randomness import Entropy

Number: TypeAlias = mpz

_ROUNDS = 40
"""Rounds of GMP's primality test: Baillie-PSW, and Miller-Rabin 16 times."""

_LONGEST_GROUP = 8
"""Largest group of bits: a table of 2^8 products of 768 bytes fits into a core's cache."""


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """Two primes p and q of the same length. Its repr does not show them."""

    p: Number
    q: Number

    @cached_property
    def n(self) -> Number:
        """The public key."""
        return self.p * self.q

    def encrypt(self, plaintext: Number, entropy: Entropy) -> Number:
        """A new ciphertext, below n², of a plaintext from 0 to n - 1.

        Raises
        ------
        ValueError
            If the plaintext is not in Z_n.
        """
        if not 0 <= plaintext < self.n:
            raise ValueError("a plaintext must be from 0 to n - 1")
        return add_plaintext(self._residue(entropy), plaintext, self.n)

    def decrypt(self, ciphertext: Number) -> Number:
        """The plaintext of a ciphertext that is coprime to n (section 7, by CRT)."""
        in_p, in_q = (
            # g^(p-1) = 1 + (p-1) p q = 1 - p q modulo p², so L_p of it is -q modulo p.
            _quotient(gmpy2.powmod_sec(ciphertext, prime - 1, prime**2), prime)
            * gmpy2.invert(-other, prime)
            % prime
            for prime, other in ((self.p, self.q), (self.q, self.p))
        )
        return _combine(in_p, self.p, in_q, self.q)

    def _residue(self, entropy: Entropy) -> Number:
        """A uniform n-th power modulo n², as from :func:`nth_residue`, but faster."""
        # Modulo p² the n-th powers are the p-th powers: r^n = (r^q)^p, and r -> r^q only permutes
        # the residues, as q is coprime to p (p - 1). x^p modulo p² depends on x modulo p alone and
        # is x modulo p, so a uniform x from 1 to p - 1 gives each of them once. The same holds for
        # q, and by CRT the two parts of an n-th power are independent.
        in_p, in_q = (
            gmpy2.powmod_sec(1 + uniform_below(prime - 1, entropy), prime, prime**2)
            for prime in (self.p, self.q)
        )
        return _combine(in_p, self.p**2, in_q, self.q**2)


def generate_key(modulus_bits: int, entropy: Entropy) -> PrivateKey:
    """Two different random primes whose product has ``modulus_bits`` (even) bits exactly."""
    p = q = _random_prime(modulus_bits // 2, entropy)
    while q == p:
        q = _random_prime(modulus_bits // 2, entropy)
    return PrivateKey(p, q)


def uniform_below(bound: Number, entropy: Entropy) -> Number:
    """A uniform integer from 0 to ``bound - 1``."""
    bits = (bound - 1).bit_length()
    while True:
        drawn = mpz.from_bytes(entropy((bits + 7) // 8), "big") & ((mpz(1) << bits) - 1)
        if drawn < bound:
            return drawn


def nth_residue(n: Number, entropy: Entropy) -> Number:
    """r^n mod n² for a new uniform r: an encryption of 0 without the private key."""
    return gmpy2.powmod(1 + uniform_below(n - 1, entropy), n, n**2)


def add_plaintext(ciphertext: Number, plaintext: Number, n: Number) -> Number:
    """A ciphertext of the sum, with the same randomness."""
    return (1 + plaintext % n * n) * ciphertext % n**2


def signed_products(ciphertexts: Sequence[Number], bits: Bytes, n: Number) -> list[Number]:
    """For every row y of bits, the product of c_k^(1 - 2 y_k) modulo n².

    Parameters
    ----------
    ciphertexts : L of them, coprime to n.
    bits : 0 or 1, ``(rows, L)``.
    n : public key.

    That is P / Q², with P the product of all c_k and Q of those with y_k = 1. Bits are processed in
    groups of w, with a table of the 2^w possible products of a group: 2^w + rows multiplications
    for each of the L / w groups.
    """
    modulus = n**2
    rows, length = bits.shape
    width = min(range(1, _LONGEST_GROUP + 1), key=lambda w: (2**w + rows) / w)
    everything, chosen = mpz(1), [mpz(1)] * rows
    for start in range(0, length, width):
        table = [mpz(1)]
        for ciphertext in ciphertexts[start : start + width]:
            table += [entry * ciphertext % modulus for entry in table]
        group = bits[:, start : start + width]
        indices = (group @ (1 << np.arange(group.shape[1]))).tolist()
        everything = everything * table[-1] % modulus
        chosen = [q * table[i] % modulus for q, i in zip(chosen, indices, strict=True)]
    return [everything * gmpy2.invert(q * q, modulus) % modulus for q in chosen]


def all_coprime(numbers: Iterable[Number], n: Number) -> bool:
    """Whether none of the numbers shares a factor with n, 0 included."""
    product = mpz(1)
    for number in numbers:
        product = product * number % n
    return bool(gmpy2.gcd(product, n) == 1)


def to_bytes(numbers: Iterable[Number], width: int) -> Bytes:
    """Big-endian numbers, uint8 ``(count, width)``."""
    joined = b"".join(number.to_bytes(width, "big") for number in numbers)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)


def from_bytes(rows: Bytes) -> list[Number]:
    """The numbers of :func:`to_bytes`."""
    return [mpz.from_bytes(row.tobytes(), "big") for row in rows]


def _random_prime(bits: int, entropy: Entropy) -> Number:
    """A random prime with its two highest bits set, so that a product of two has 2 ``bits``."""
    while True:
        drawn = uniform_below(mpz(1) << bits, entropy) | (mpz(3) << (bits - 2)) | 1
        if gmpy2.is_prime(drawn, _ROUNDS):
            return drawn


def _quotient(power: Number, prime: Number) -> Number:
    """Paillier's L: u = 1 modulo the prime becomes (u - 1) / prime."""
    return (power - 1) // prime


def _combine(in_p: Number, p: Number, in_q: Number, q: Number) -> Number:
    """The residue modulo p q that is ``in_p`` modulo p and ``in_q`` modulo q."""
    return in_q + (in_p - in_q) * gmpy2.invert(q, p) % p * q
