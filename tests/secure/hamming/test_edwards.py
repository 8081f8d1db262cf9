"""edwards25519: base points and keys of the RFCs, the group's laws, refusals."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedul_flwr.secure.hamming import edwards
from fedul_flwr.secure.hamming.edwards import (
    P,
    Point,
    add,
    compress,
    decompress,
    hashed_point,
    negative,
    to_montgomery,
)

# RFC 8032, 5.1: y = 4 / 5.
BASE = Point(
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)
ORDER = 2**252 + 27742317777372353535851937790883648493
NEUTRAL = Point(0, 1)


def times(scalar: int, point: Point) -> Point:
    """Double and add."""
    product = NEUTRAL
    for bit in f"{scalar:b}":
        product = add(product, product)
        if bit == "1":
            product = add(product, point)
    return product


def small_order_points() -> list[Point]:
    """All eight: multiples of one of order 8, which is ORDER times a point of order 8 * ORDER."""
    data = (number.to_bytes(32, "little") for number in range(2, 100))
    for candidate in data:
        try:
            point = times(ORDER, decompress(candidate))
        except ValueError:
            continue
        if times(4, point) != NEUTRAL:
            return [times(multiple, point) for multiple in range(8)]
    raise AssertionError("no point of order 8")


def clamped(scalar: bytes) -> int:
    """RFC 7748, section 5."""
    return int.from_bytes(scalar, "little") & (2**254 - 8) | 2**254


def test_the_base_point_of_both_curves() -> None:
    # 4 / 5 is 0x6666...6658; x is even, so the highest bit is 0. u is 9 on the other curve.
    assert compress(BASE).hex() == "58" + "66" * 31
    assert decompress(bytes.fromhex("58" + "66" * 31)) == BASE
    assert BASE.y * 5 % P == 4
    assert to_montgomery(BASE) == bytes([9]) + bytes(31)


def test_the_order_of_the_base_point() -> None:
    assert times(ORDER, BASE) == NEUTRAL
    assert times(ORDER - 1, BASE) == negative(BASE)


def test_a_key_of_rfc_8032() -> None:
    # 7.1, test 1; its scalar is the clamped half of SHA-512 of the secret.
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    scalar = clamped(hashlib.sha512(secret).digest()[:32])
    assert compress(times(scalar, BASE)).hex() == public
    assert Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw().hex() == (
        public
    )


def test_keys_of_rfc_7748() -> None:
    # 6.1: Alice's and Bob's, and what they share.
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    of_alice, of_bob = (times(clamped(secret), BASE) for secret in (alice, bob))
    assert to_montgomery(of_alice).hex() == (
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    )
    assert to_montgomery(of_bob).hex() == (
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    )
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert to_montgomery(times(clamped(alice), of_bob)).hex() == shared
    of_bob_by_u = X25519PublicKey.from_public_bytes(to_montgomery(of_bob))
    assert X25519PrivateKey.from_private_bytes(alice).exchange(of_bob_by_u).hex() == shared


def test_addition_is_that_of_a_group() -> None:
    one, two, three = (hashed_point(name) for name in (b"1", b"2", b"3"))
    assert add(one, two) == add(two, one)
    assert add(add(one, two), three) == add(one, add(two, three))
    assert add(one, NEUTRAL) == one
    assert add(one, negative(one)) == NEUTRAL
    assert add(add(one, two), negative(two)) == one
    assert add(times(5, one), times(7, one)) == times(12, one)


def test_bytes_and_points_are_one_to_one() -> None:
    for number in range(20):
        point = hashed_point(bytes([number]))
        for each in (point, negative(point)):
            assert (-(each.x**2) + each.y**2 - 1) % P == (
                -121665 * pow(121666, -1, P) * each.x**2 * each.y**2
            ) % P
            assert decompress(compress(each)) == each
        # They differ in the highest bit alone.
        assert compress(point)[:31] == compress(negative(point))[:31]
        assert compress(point)[31] ^ compress(negative(point))[31] == 128


def test_a_hashed_point_is_of_prime_order_and_the_same_for_the_same_bytes() -> None:
    points = [hashed_point(bytes([number])) for number in range(4)]
    assert len(set(points)) == 4
    assert [hashed_point(bytes([number])) for number in range(4)] == points
    for point in points:
        assert times(ORDER, point) == NEUTRAL
        assert point != NEUTRAL


def test_a_hashed_point_is_8_times_the_first_candidate_that_is_a_point() -> None:
    first = []
    for number in range(12):
        data = bytes([number])
        for counter in range(20):
            candidate = hashlib.shake_128(data + counter.to_bytes(8, "little")).digest(32)
            try:
                point = decompress(candidate)
            except ValueError:
                continue
            assert hashed_point(data) == times(8, point)
            first.append(counter)
            break
    # Every second candidate is a point: of 12 inputs, some take the first and some a later one.
    assert len(first) == 12
    assert min(first) == 0 < max(first)


def test_a_hash_that_gives_no_point_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(data: bytes) -> Point:
        asked.append(data)
        raise ValueError

    monkeypatch.setattr(edwards, "decompress", refuse)
    with pytest.raises(AssertionError, match="no candidate is a point"):
        hashed_point(b"data")
    assert len(set(asked)) == 256


def test_bytes_that_are_no_point() -> None:
    half = 0
    for y in range(2, 200):
        try:
            decompress(y.to_bytes(32, "little"))
        except ValueError:
            half += 1
    assert 60 < half < 140  # of 198; x^2 is a square for about half of all y
    for number in (
        2,  # (4 - 1) / (4 D + 1) is not a square
        P,  # 0 again
        P + 1,
        2**255 - 1,
        1 + 2**255,  # x = 0 has no odd twin
        P - 1 + 2**255,
    ):
        with pytest.raises(ValueError, match=r"^not a point of edwards25519$"):
            decompress(number.to_bytes(32, "little"))


def test_small_order_has_no_place_on_the_other_curve() -> None:
    points = small_order_points()
    assert len(set(points)) == 8
    assert {point.y for point in points} >= {0, 1, P - 1}  # orders 4, 1 and 2
    private = X25519PrivateKey.generate()
    for point in points:
        assert decompress(compress(point)) == point
        with pytest.raises(ValueError):  # noqa: PT011 - of Python or of the library
            private.exchange(X25519PublicKey.from_public_bytes(to_montgomery(point)))
