"""Points of edwards25519, the twisted Edwards form of Curve25519 (RFC 7748, 4.1; RFC 8032, 5.1).

Python's integers are not constant-time: the time of a sum depends on the points. Secret scalars are
not used here; ``cryptography`` multiplies by them.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

POINT_BYTES = 32

P = 2**255 - 19
"""The field's prime."""

D = -121665 * pow(121666, -1, P) % P
"""The curve is -x^2 + y^2 = 1 + D x^2 y^2."""

_ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)

_CANDIDATES = 256


class Point(NamedTuple):
    """Affine coordinates, both in ``0..P-1``."""

    x: int
    y: int


def compress(point: Point) -> bytes:
    """32 bytes: y, little-endian, and the lowest bit of x as the highest of all."""
    return (point.y | (point.x & 1) << 255).to_bytes(POINT_BYTES, "little")


def decompress(data: bytes) -> Point:
    """The point encoded by 32 bytes (RFC 8032, 5.1.3).

    Raises
    ------
    ValueError
        If y is not below P, or there is no x on the curve with that lowest bit.
    """
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    numerator, denominator = (y * y - 1) % P, (D * y * y + 1) % P
    # The root of numerator / denominator, up to a root of -1, with one power instead of two.
    power = pow(numerator * denominator**7 % P, (P - 5) // 8, P)
    x = numerator * denominator**3 * power % P
    if denominator * x * x % P == -numerator % P:
        x = x * _ROOT_OF_MINUS_ONE % P
    on_curve = denominator * x * x % P == numerator
    if y >= P or not on_curve or (x == 0 and sign):
        raise ValueError("not a point of edwards25519")
    return Point(P - x if x & 1 != sign else x, y)


def negative(point: Point) -> Point:
    """The inverse: its sum with this point is the neutral element (0, 1)."""
    return Point(-point.x % P, point.y)


def add(one: Point, other: Point) -> Point:
    """The sum, by one formula for all points, equal ones and the neutral one too (RFC 8032)."""
    cross = D * one.x * other.x * one.y * other.y % P
    x = (one.x * other.y + one.y * other.x) * pow(1 + cross, -1, P)
    y = (one.y * other.y + one.x * other.x) * pow(1 - cross, -1, P)
    return Point(x % P, y % P)


def to_montgomery(point: Point) -> bytes:
    """The point's u = (1 + y) / (1 - y) on Curve25519, for X25519 (RFC 7748, 4.1).

    Raises
    ------
    ValueError
        For the neutral element, which has no u.
    """
    return ((1 + point.y) * pow(1 - point.y, -1, P) % P).to_bytes(POINT_BYTES, "little")


def hashed_point(data: bytes) -> Point:
    """A point of prime order with unknown discrete logarithm: try and increment, times 8."""
    for counter in range(_CANDIDATES):
        candidate = hashlib.shake_128(data + counter.to_bytes(8, "little")).digest(POINT_BYTES)
        try:
            point = decompress(candidate)
        except ValueError:  # about every second candidate
            continue
        for _ in range(3):
            point = add(point, point)
        return point
    raise AssertionError("no candidate is a point, as once in 2^256 times")
