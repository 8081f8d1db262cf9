"""Masked sums of numbers of any size: fixed point of 640 bits.

Numbers are integers modulo 2^640 that count multiples of 2^-320. Sums of float32 numbers, of their
squares and of 10^12 such points fit, so that nobody has to tell how large a column is. An integer
travels as 20 digits of 32 bits, the lowest one first. A mask is added to the whole integer: were
digits masked one by one, their sums would tell more than the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.errors import UserError
from fedul_flwr.secure.rowsums import pair_masks

Digits = NDArray[np.uint32]
"""``(n, DIGITS)``: n integers."""

FRACTION_BITS = 320
"""Number of fractional bits."""

DIGITS, DIGIT_BITS = 20, 32
BYTES = DIGITS * DIGIT_BITS // 8

LARGEST = 2 ** (298 + FRACTION_BITS)
"""Bound on a summand: 2^40 squares of float32 numbers, which are below 2^256, are below it, and
sums of 2^20 summands below half of the ring."""


def masked(numbers: Sequence[int], keys: Mapping[int, bytes], own: int) -> Digits:
    """A client's summands, hidden by masks that cancel in the sum of all participants.

    Parameters
    ----------
    numbers : integers, which count multiples of 2^-320.
    keys : for each other participant, 32 bytes shared only with it, for this sum only.
    own : this client's number.

    Raises
    ------
    UserError
        If a number is too large.
    """
    if any(abs(number) >= LARGEST for number in numbers):
        raise UserError("Columns hold numbers beyond float32, or more points than 10^12.")
    written = b"".join(number.to_bytes(BYTES, "little", signed=True) for number in numbers)
    digits = np.frombuffer(written, "<u4").reshape(-1, DIGITS)
    mask = pair_masks(keys, own, digits.shape, "<u4")
    return _carried(digits + mask)


def total(parts: Iterable[Digits]) -> list[int]:
    """The sum of the participants' numbers, from all that :func:`masked` returned to them."""
    digits = _carried(np.sum(list(parts), axis=0, dtype=np.uint64))
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in digits]


def _carried(digits: NDArray[np.uint64]) -> Digits:
    """Digits below 2^32 of the same integers modulo 2^640.

    Parameters
    ----------
    digits : sums and differences of fewer than 2^31 digits, modulo 2^64.
    """
    found = np.empty(digits.shape, dtype="<u4")
    carry = np.zeros(len(digits), dtype=np.int64)
    for place in range(DIGITS):
        carry = carry + digits[:, place].view(np.int64)
        found[:, place] = carry & (2**DIGIT_BITS - 1)
        carry >>= DIGIT_BITS  # rounds down, so that what is below 0 borrows
    return found
