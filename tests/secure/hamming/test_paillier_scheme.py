"""Paillier's scheme: all of Z_35 by hand, homomorphic identities, what the primes are."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from scipy.stats import kstest

from fedul_flwr.secure.hamming.paillier import (
    PrivateKey,
    add_plaintext,
    all_coprime,
    from_bytes,
    generate_key,
    nth_residue,
    signed_products,
    to_bytes,
    uniform_below,
)
from tests.support.hamming.pairs import seeded

TINY = PrivateKey(mpz(5), mpz(7))
KEY = generate_key(512, os.urandom)
OTHER = generate_key(512, os.urandom)


def scripted(values: Iterable[int]) -> Callable[[int], bytes]:
    """Entropy that gives these numbers, one at a call."""
    left = iter(values)
    return lambda size: next(left).to_bytes(size, "big")


def test_decryption_by_hand() -> None:
    # n = 35, n² = 1225, m = 12, r = 2. 2^35 = 34359738368 = 18 modulo 1225, 1 + 12 * 35 = 421,
    # 421 * 18 = 7578 = 228 modulo 1225.
    # p = 5: 228 = 3 modulo 25, 3^4 = 81 = 6, L = (6 - 1) / 5 = 1; 1 / -7 = 1 / 3 = 2 modulo 5; 2.
    # q = 7: 228 = 32 modulo 49, 32^6 = 22, L = (22 - 1) / 7 = 3; 1 / -5 = 1 / 2 = 4 modulo 7; 5.
    # 12 is 2 modulo 5 and 5 modulo 7.
    assert TINY.n == 35
    assert (1 + 12 * 35) * 2**35 % 1225 == 228
    assert TINY.decrypt(mpz(228)) == 12


def test_every_ciphertext_of_z_35_is_decrypted() -> None:
    coprime = [r for r in range(35) if math.gcd(r, 35) == 1]
    seen = set()
    for plaintext in range(35):
        for r in coprime:
            ciphertext = (1 + plaintext * 35) * r**35 % 1225
            assert TINY.decrypt(mpz(ciphertext)) == plaintext
            seen.add(ciphertext)
    # (m, r) -> c is one to one: 35 * 24 = 840 = phi(1225).
    assert len(seen) == 840


def test_the_owners_randomness_is_uniform_among_nth_residues() -> None:
    # x from 1 to 4 and y from 1 to 6, drawn as x - 1 and y - 1: each of the 24 residues once.
    residues = sorted(
        int(TINY.encrypt(mpz(0), scripted([x, y]))) for x in range(4) for y in range(6)
    )
    assert residues == sorted({r**35 % 1225 for r in range(35) if math.gcd(r, 35) == 1})
    assert len(residues) == 24


def test_no_draw_makes_the_owners_randomness_share_a_factor_with_n() -> None:
    # Modulo 5 two bits are drawn, so that 4 to 7 are 0 to 3; modulo 7 three, of which 6 and 7 are
    # drawn again.
    for x in range(8):
        for y in range(8):
            found = TINY.encrypt(mpz(0), scripted([x, y, 2]))
            assert math.gcd(int(found), 35) == 1
            assert found == TINY.encrypt(mpz(0), scripted([x % 4, y if y < 6 else 2]))


def test_nobody_can_try_out_all_randomness() -> None:
    # With r below 2^16, say, whoever divides by all r^n reads the plaintext.
    entropy = seeded(1)
    key = generate_key(256, entropy)
    drawn = [key.encrypt(mpz(0), entropy) for _ in range(300)]
    # r^n modulo p has the part x^p = x that was drawn modulo p.
    for prime in (key.p, key.q):
        assert kstest([uniform(x % prime, prime) for x in drawn], "uniform")[1] > 1e-3
    root = gmpy2.invert(key.n, math.lcm(int(key.p - 1), int(key.q - 1)))
    powers = [nth_residue(key.n, entropy) for _ in range(300)]
    found = [uniform(gmpy2.powmod(power, root, key.n), key.n) for power in powers]
    assert kstest(found, "uniform")[1] > 1e-3


def uniform(number: mpz, bound: mpz) -> float:
    """number / bound, of integers beyond a float's range."""
    return float(mpz(2**53) * number // bound) / 2**53


def test_encryption_without_the_private_key_by_hand() -> None:
    # r = 1 + 1 = 2, 2^35 = 18 modulo 1225.
    assert nth_residue(mpz(35), scripted([1])) == 18
    # r is from 1 to 34: of draws 33 is the last, 34 is drawn again. 34^35 = (-1)^35 = -1 modulo 35
    # and (35 - 1)^35 = -1 + 35 · 35 = -1 modulo 1225.
    assert nth_residue(mpz(35), scripted([33])) == 1224
    assert nth_residue(mpz(35), scripted([34, 1])) == 18
    assert add_plaintext(mpz(18), mpz(12), mpz(35)) == 228
    assert add_plaintext(mpz(18), mpz(12 - 35), mpz(35)) == 228


@pytest.mark.parametrize("plaintext", [0, 1, 2**500 + 7, -1], ids=["0", "1", "middle", "n - 1"])
def test_round_trip(plaintext: int) -> None:
    message = mpz(plaintext) % KEY.n
    one, other = (KEY.encrypt(message, os.urandom) for _ in range(2))
    assert one != other
    assert KEY.decrypt(one) == KEY.decrypt(other) == message
    assert KEY.decrypt(one * nth_residue(KEY.n, os.urandom) % KEY.n**2) == message
    assert OTHER.decrypt(one % OTHER.n**2) != message


def test_refuses_a_plaintext_outside_of_z_n() -> None:
    for plaintext in (mpz(-1), KEY.n):
        with pytest.raises(ValueError, match="plaintext"):
            KEY.encrypt(plaintext, os.urandom)


def test_a_key_shows_no_secret() -> None:
    assert str(int(KEY.p)) not in repr(KEY)
    assert str(int(KEY.q)) not in repr(KEY)


@pytest.mark.parametrize("rows", [0, 1, 3, 20, 600])
@pytest.mark.parametrize("length", [1, 7, 24])
def test_signed_products_are_products(rows: int, length: int) -> None:
    rng = np.random.default_rng(rows)
    modulus = 35**2
    factors = [mpz(2), mpz(3), mpz(11), mpz(1224)] * 6
    bits = rng.integers(0, 2, (rows, length), dtype=np.uint8)
    bits[:1], bits[1:2] = 0, 1
    expected = [
        math.prod(pow(int(c), 1 - 2 * int(y), modulus) for c, y in zip(factors, row, strict=False))
        % modulus
        for row in bits
    ]
    assert signed_products(factors[:length], bits, mpz(35)) == expected


def test_coprime_by_hand() -> None:
    n = mpz(35)
    assert all_coprime([], n)
    assert all_coprime([mpz(1), mpz(36), mpz(1224)], n)
    assert all_coprime([mpz(5), mpz(7)], mpz(6))
    for shares in (0, 5, 14, 35):
        assert not all_coprime([mpz(2), mpz(shares), mpz(3)], n)


def test_uniform_below_takes_the_bits_it_needs_and_draws_again() -> None:
    # Below 5 are 3 bits: 255 is 7 and 14 is 6, too large; 12 is 4.
    assert uniform_below(mpz(5), scripted([255, 14, 12])) == 4
    assert uniform_below(mpz(4), scripted([7])) == 3
    assert [uniform_below(mpz(256), scripted([value])) for value in (0, 255)] == [0, 255]
    assert {int(uniform_below(mpz(3), os.urandom)) for _ in range(200)} == {0, 1, 2}
    assert uniform_below(mpz(1), scripted([0])) == 0


def test_bytes_by_hand() -> None:
    rows = to_bytes([mpz(258), mpz(0), mpz(65535)], 2)
    assert rows.dtype == np.uint8
    assert rows.tolist() == [[1, 2], [0, 0], [255, 255]]
    assert from_bytes(rows) == [258, 0, 65535]
    assert to_bytes([], 2).shape == (0, 2)
    assert from_bytes(to_bytes([], 2)) == []


def test_primes_are_two_and_set_their_highest_bits() -> None:
    # With 5 bits, the two highest set and odd: 25, 27, 29, 31, of which 29 and 31 are prime.
    for _ in range(10):
        key = generate_key(10, os.urandom)
        assert {int(key.p), int(key.q)} == {29, 31}


def test_primes_are_tested_in_40_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []

    def asked(number: mpz, count: int = 25) -> bool:
        rounds.append(count)
        return is_prime(number, count)

    is_prime = gmpy2.is_prime
    monkeypatch.setattr(gmpy2, "is_prime", asked)
    generate_key(64, os.urandom)
    assert set(rounds) == {40}


@pytest.mark.parametrize("bits", [512, 3072])
def test_known_sizes(bits: int) -> None:
    key = generate_key(bits, os.urandom)
    assert key.n.bit_length() == bits
    for prime in (key.p, key.q):
        assert prime >> (bits // 2 - 2) == 3
        assert gmpy2.is_prime(prime)
    assert key.p != key.q
    assert key.decrypt(key.encrypt(mpz(1) << (bits - 1), os.urandom)) == mpz(1) << (bits - 1)
