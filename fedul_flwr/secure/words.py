"""Vectors of words: how numbers are written in them, added, and hidden under masks.

A vector has words, which are added modulo 2^32, and behind them a tail of whole numbers of several
words each. A mask is added to the whole number: sums of its words one by one would tell more than
its sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bools, Floats
from fedul_flwr.errors import UserError
from fedul_flwr.secure.session import KeyStream

Words = NDArray[np.uint32]


class Tail(NamedTuple):
    """The last words of a vector: whole numbers of ``digits`` words each, lowest word first."""

    numbers: int = 0
    digits: int = 1

    @property
    def size(self) -> int:
        """Number of words."""
        return self.numbers * self.digits


NO_TAIL = Tail()


def step_size(bound: float, clients: int) -> float:
    """Distance of two neighboring values of :func:`quantize`: the largest that cannot overflow."""
    return bound / _levels(clients)


def _levels(clients: int) -> int:
    return (2**31 - 1) // clients


def quantize(values: Floats, bound: float, clients: int, rng: np.random.Generator) -> Words:
    """Entries as multiples of :func:`step_size`, rounded at random so that the mean is exact."""
    if not np.isfinite(values).all():
        raise UserError(
            "A vector for a secure sum has an entry that is not a finite number.",
            "model-not-finite",
        )
    levels = _levels(clients)
    scaled = np.array(values, np.float64)
    scaled *= levels / bound
    scaled += rng.random(scaled.shape)
    np.floor(scaled, out=scaled)
    np.clip(scaled, -levels, levels, out=scaled)
    return scaled.astype(np.int32).view(np.uint32)


def dequantize(words: Words, bound: float, clients: int) -> Floats:
    """The sum of vectors from the sum of their words, of the same shape."""
    return np.asarray(words.view(np.int32) * step_size(bound, clients), np.float64)


def whole_words(numbers: Sequence[int], digits: int) -> Words:
    """Whole numbers as words, ``(len(numbers) · digits,)``: two's complement, lowest word first."""
    if any(abs(number) >= 2 ** (32 * digits - 21) for number in numbers):
        raise UserError("A number is too large for a secure sum.", "message-out-of-range")
    written = b"".join(number.to_bytes(4 * digits, "little", signed=True) for number in numbers)
    return np.frombuffer(written, "<u4").astype(np.uint32)


def whole_numbers(words: Words, digits: int) -> list[int]:
    """What :func:`whole_words` has written, or sums of these."""
    rows = words.astype("<u4").reshape(-1, digits)
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in rows]


FIXED_DIGITS, FIXED_BITS = 4, 48
"""Words of a number in fixed point, and how many of its bits are below 1: steps of 2^-48 are a
thousandth of the variance of 10 points whose deviation is 2e-7."""
_LARGEST = 2.0**58
"""Numbers in fixed point are below it: a million of them stay below half of 2^80."""


def fixed_words(numbers: Floats) -> Words:
    """Numbers ``(n,)`` of floating point as words ``(n · FIXED_DIGITS,)``, rounded to 2^-48.

    They are whole numbers of four words, as :func:`whole_words` writes them.
    """
    if not (np.abs(numbers) < _LARGEST).all():
        raise UserError(
            "A number is not finite, or too large for a secure sum: points or features have to be "
            "scaled.",
            "message-out-of-range",
        )
    steps = np.rint(np.ldexp(np.abs(numbers), FIXED_BITS))
    high, low = (part.astype(np.uint64) for part in np.divmod(steps, 2.0**64))
    return np.stack(_signed(low, high, numbers < 0), axis=1).astype("<u8").view(np.uint32).ravel()


def fixed_numbers(words: Words) -> Floats:
    """The numbers of :func:`fixed_words`, or of sums of them."""
    low, high = words.reshape(-1, FIXED_DIGITS).copy().view("<u8").T
    is_negative = high >= 2**63
    low, high = _signed(low, high, is_negative)
    steps = np.ldexp(high.astype(np.float64), 64) + low.astype(np.float64)
    return np.asarray(np.ldexp(np.where(is_negative, -steps, steps), -FIXED_BITS))


def two_part_words(numbers: Floats) -> Words:
    """Words of numbers as of :func:`fixed_words`, or of ones in two parts ``(n, 2)``, whose sums
    need more digits than a part has room for."""
    parts = numbers.reshape(len(numbers), -1).T
    return add_vectors([*map(fixed_words, parts)], Tail(len(numbers), FIXED_DIGITS))


def two_part_numbers(words: Words) -> Floats:
    """The numbers of :func:`two_part_words`, or of sums of them, in two parts ``(n, 2)``."""
    rows = words.reshape(-1, FIXED_DIGITS).astype("<u4")
    upper = rows[:, 2:].copy().view("<i8")[:, 0].astype(np.float64)
    high = np.ldexp(upper, 64 - FIXED_BITS)
    low = np.zeros(len(rows))
    for digit in (1, 0):  # each is smaller than what is there, unless that is 0
        more = low + np.ldexp(rows[:, digit].astype(np.float64), 32 * digit - FIXED_BITS)
        total = high + more
        high, low = total, more - (total - high)
    return np.stack([high, low], axis=1)


def _signed(
    low: NDArray[np.uint64], high: NDArray[np.uint64], negated: Bools
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Two's complement of whole numbers in halves of 64 bits, where ``negated``."""
    carry = (low == 0).astype(np.uint64)
    return np.where(negated, ~low + np.uint64(1), low), np.where(negated, ~high + carry, high)


STEP_DIGITS = 4
"""Words of a number in steps of 2^-64."""
_STEPS = 2**64


def step_words(numbers: Iterable[float], digits: int = STEP_DIGITS) -> Words:
    """Numbers as multiples of 2^-64, each exactly rounded: what is added up is exact."""
    listed = [*numbers]
    if not np.isfinite(listed).all():
        raise UserError("A number of its update is not finite.", "message-out-of-range")
    return whole_words([round(Fraction(number) * _STEPS) for number in listed], digits)


def step_numbers(words: Words, digits: int = STEP_DIGITS) -> Floats:
    """The numbers of :func:`step_words`, or sums of them."""
    return np.array([number / _STEPS for number in whole_numbers(words, digits)])


class Encoding(NamedTuple):
    """How a client's numbers are written for a sum, with so many words each, and read from it."""

    digits: int
    write: Callable[[Any, int], Words]
    read: Callable[[Words, int], Any]

    def tail(self, count: int) -> Tail:
        """The form of a vector of ``count`` numbers."""
        return Tail(count, self.digits)


IN_STEPS = Encoding(STEP_DIGITS, step_words, step_numbers)
"""Of a few numbers of floating point."""
FIXED = Encoding(FIXED_DIGITS, lambda n, _: fixed_words(n), lambda words, _: fixed_numbers(words))
"""Of many of them."""
IN_TWO_PARTS = Encoding(
    FIXED_DIGITS, lambda n, _: two_part_words(n), lambda words, _: two_part_numbers(words)
)
"""Of the same in two parts."""


def whole(digits: int) -> Encoding:
    """Of whole numbers below 2^(32 · digits - 21)."""
    return Encoding(digits, whole_words, whole_numbers)


def _carried(totals: NDArray[np.int64], digits: int) -> Words:
    """Words of the same whole numbers, from sums and differences of fewer than 2^31 words."""
    rows = totals.reshape(-1, digits)
    carried = np.empty(rows.shape, np.uint32)
    carry = np.zeros(len(rows), np.int64)
    for digit in range(digits):
        carry = carry + rows[:, digit]
        carried[:, digit] = carry & (2**32 - 1)
        carry >>= 32  # rounds down, so that what is below 0 borrows
    return carried.ravel()


def add_vectors(vectors: Sequence[Words], tail: Tail = NO_TAIL) -> Words:
    """The sum of vectors of equal form."""
    split = len(vectors[0]) - tail.size
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total[:split] += vector[:split]
    if tail.numbers:
        last = np.stack([vector[split:] for vector in vectors]).astype(np.int64)
        total[split:] = _carried(last.sum(axis=0), tail.digits)
    return total


class Mask(NamedTuple):
    """A key that is used for one mask only, and whether the mask is added or subtracted."""

    key: bytes
    added: bool


_PIECE = 2**16
"""Words of all masks that are drawn before the next ones: they stay in a processor's cache."""


def add_masks(words: Words, masks: Iterable[Mask], tail: Tail = NO_TAIL) -> None:
    """Add key streams to ``words`` in place: modulo 2^32, and as whole numbers to ``tail``."""
    streams = [(KeyStream(mask.key), np.add if mask.added else np.subtract) for mask in masks]
    split = len(words) - tail.size
    for start in range(0, split, _PIECE):
        piece = words[start : min(start + _PIECE, split)]
        _add_streams(piece, streams)
    if tail.numbers:
        total = words[split:].astype(np.int64)
        _add_streams(total, streams)
        words[split:] = _carried(total, tail.digits)


def _add_streams(total: NDArray[Any], streams: Iterable[tuple[KeyStream, np.ufunc]]) -> None:
    """Add the next words of each stream to ``total``, or subtract them, in place."""
    drawn = np.empty(4 * total.size, np.uint8)
    for stream, combine in streams:
        stream.read_into(drawn)
        combine(total, drawn.view("<u4"), out=total)
