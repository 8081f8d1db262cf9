"""Slow oblivious transfers of one pair, from the papers and RFCs, with Python's integers.

Nothing of ``fedul_flwr.secure.hamming`` is used. Points are (X, Y, Z, T) with x = X / Z, y = Y / Z
and x y = T / Z (RFC 8032, 5.1.4).
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.hamming.reference import aes_stream

P = 2**255 - 19
D = -121665 * pow(121666, P - 2, P) % P
Point = tuple[int, int, int, int]
Bits = list[int]


def point(x: int, y: int) -> Point:
    return x, y, 1, x * y % P


def add(one: Point, other: Point) -> Point:
    a = (one[1] - one[0]) * (other[1] - other[0])
    b = (one[1] + one[0]) * (other[1] + other[0])
    c = 2 * D * one[3] * other[3]
    d = 2 * one[2] * other[2]
    e, f, g, h = (b - a) % P, (d - c) % P, (d + c) % P, (b + a) % P
    return e * f % P, g * h % P, f * g % P, e * h % P


def negative(one: Point) -> Point:
    return -one[0] % P, one[1], one[2], -one[3] % P


def times(scalar: int, one: Point) -> Point:
    total, power = point(0, 1), one
    while scalar:
        if scalar & 1:
            total = add(total, power)
        scalar, power = scalar >> 1, add(power, power)
    return total


def affine(one: Point) -> tuple[int, int]:
    inverted = pow(one[2], P - 2, P)
    return one[0] * inverted % P, one[1] * inverted % P


def compressed(one: Point) -> bytes:
    x, y = affine(one)
    return (y + ((x & 1) << 255)).to_bytes(32, "little")


def decompressed(data: bytes) -> Point | None:
    number = int.from_bytes(data, "little")
    odd, y = divmod(number, 2**255)
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or x * x % P != square or (x == 0 and odd):
        return None
    return point(x if x & 1 == odd else P - x, y)


def montgomery(one: Point) -> bytes:
    _, y = affine(one)
    return ((1 + y) * pow(1 - y, P - 2, P) % P).to_bytes(32, "little")


def hashed_point(data: bytes) -> Point:
    counter = 0
    while True:
        found = decompressed(hashlib.shake_128(data + counter.to_bytes(8, "little")).digest(32))
        if found is not None:
            return times(8, found)
        counter += 1


def scalar(seed: bytes) -> int:
    """Ed25519's private number of 32 bytes (RFC 8032, 5.1.5)."""
    number = int.from_bytes(hashlib.sha512(seed).digest()[:32], "little")
    return number & (2**254 - 8) | 2**254


_BASE = decompressed(bytes([0x58]) + bytes([0x66]) * 31)
assert _BASE is not None
BASE: Point = _BASE
ORDER = 2**252 + 27742317777372353535851937790883648493


def small_order_points() -> list[Point]:
    """All eight: multiples of one of order 8, which is ORDER times a point of order 8 * ORDER."""
    for number in range(2, 100):
        found = decompressed(number.to_bytes(32, "little"))
        if found is None:
            continue
        small = times(ORDER, found)
        if affine(times(4, small)) != (0, 1):
            return [times(multiple, small) for multiple in range(8)]
    raise AssertionError("no point of order 8")


def bits_of(data: bytes) -> Bits:
    """The highest bit of the first byte comes first."""
    return [byte >> 7 - place & 1 for byte in data for place in range(8)]


def bytes_of(bits: Bits) -> bytes:
    return int("".join(map(str, bits)), 2).to_bytes(len(bits) // 8, "big")


@dataclass
class Transferred:
    """All messages of a pair: see the fields' names in ``ot``."""

    points: bytes
    point: bytes
    choices: bytes
    corrections: list[list[int]]
    owners_sums: list[list[int]]
    evaluators_sums: list[list[int]]


def transfer(
    session: bytes, owner: list[bytes], evaluator: list[bytes], entropy: Callable[[int], bytes]
) -> Transferred:
    """Client 0 owns the pair, client 1 evaluates; codes of their points."""
    base, pads = (f"fedul-flwr ot {what} 0 1 ".encode() + session for what in ("base", "pads"))
    # The owner chooses among the base pairs by s.
    s = bits_of(entropy(16))
    stream = aes_stream(entropy(32), 32 * 128)
    own = [scalar(stream[32 * i : 32 * i + 32]) for i in range(128)]
    common = hashed_point(base)
    known = [times(k, BASE) for k in own]
    firsts = [add(common, negative(pk)) if s[i] else pk for i, pk in enumerate(known)]
    said = [compressed(pk) for pk in firsts]
    # The evaluator makes keys of both of each pair.
    r = scalar(entropy(32))
    big_r = times(r, BASE)
    answer = compressed(big_r)

    def key(index: int, shared: Point) -> bytes:
        place = index.to_bytes(8, "little")
        data = base + place + answer + said[index] + montgomery(shared)
        return hashlib.shake_128(data).digest(32)

    keys = [
        (key(i, times(r, pk)), key(i, times(r, add(common, negative(pk)))))
        for i, pk in enumerate(firsts)
    ]
    for i in (0, 1, 127):  # the owner has the one that it chose
        assert key(i, times(own[i], big_r)) == keys[i][s[i]]
    # The extension.
    size = len(b"".join(evaluator))
    y = bits_of(b"".join(evaluator))
    t = [bits_of(aes_stream(first, size)) for first, _ in keys]
    g = [bits_of(aes_stream(second, size)) for _, second in keys]
    u = [[a ^ b ^ c for a, b, c in zip(t[i], g[i], y, strict=True)] for i in range(128)]
    q = [[a ^ b for a, b in zip(g[i], u[i], strict=True)] if s[i] else t[i] for i in range(128)]

    def pad(h: int, row: Bits) -> list[int]:
        data = pads + h.to_bytes(8, "little") + bytes_of(row)
        found = hashlib.shake_128(data).digest(2 * len(owner))
        return [found[2 * p] + 256 * found[2 * p + 1] for p in range(len(owner))]

    length = 8 * len(owner[0])
    x = [bits_of(code) for code in owner]
    corrections = []
    told = [[0] * len(evaluator) for _ in owner]
    got = [[0] * len(evaluator) for _ in owner]
    for h, choice in enumerate(y):
        point_of, k = divmod(h, length)
        row = [column[h] for column in q]
        a, b = pad(h, row), pad(h, [bit ^ secret for bit, secret in zip(row, s, strict=True)])
        mine = pad(h, [column[h] for column in t])
        corrections.append([])
        for p in range(len(owner)):
            bit = x[p][k]
            random = a[p] - bit
            corrections[h].append((random + (1 - bit) - b[p]) % 2**16)
            told[p][point_of] = (told[p][point_of] + random) % 2**16
            received = mine[p] + choice * corrections[h][p]
            got[p][point_of] = (got[p][point_of] + received) % 2**16
    packed = b"".join(bytes_of(column) for column in u)
    return Transferred(b"".join(said), answer, packed, corrections, told, got)
