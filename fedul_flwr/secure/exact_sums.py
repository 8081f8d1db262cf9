"""Sums and sums of squares of float32 columns without rounding.

They depend on the points alone. Rounded sums would also depend on which client has which points,
and the last digits of their total could tell something of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Inputs, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.secure.wide_sums import FRACTION_BITS

CHUNK = 4096
"""Rows at a time."""

_DIGITS = 24
"""Binary digits of a float32 number."""
_SMALLEST, _SPAN = -148, 277
"""Exponents e of float32 numbers m 2^e with 0.5 <= |m| < 1: the first one, and how many."""


def exact_sums(inputs: Inputs, points: Ints) -> list[int]:
    """Sums of d columns over rows ``points`` of ``inputs``, then sums of their squares.

    Returns
    -------
    ``2 d`` integers: multiples of 2^-320, for :func:`fedul_flwr.secure.wide_sums.masked`.

    Raises
    ------
    UserError
        If a number is not finite.
    """
    width = inputs.shape[1]
    # By column and exponent e: sums of the integers M = m 2^24, and of both halves of M².
    found = np.zeros((3, width * _SPAN), dtype=np.int64)
    first = _SPAN * np.arange(width) - _SMALLEST
    for start in range(0, len(points), CHUNK):
        rows = np.asarray(inputs[points[start : start + CHUNK]], dtype=np.float32)
        if not np.isfinite(rows).all():
            raise UserError("A column has numbers that are not finite, and no sum.")
        parts, exponents = np.frexp(rows.astype(np.float64))
        whole = parts * 2.0**_DIGITS
        high = np.floor(whole * whole * 2.0**-_DIGITS)
        low = whole * whole - high * 2.0**_DIGITS
        places = (exponents + first).ravel()
        for kind, numbers in enumerate((whole, high, low)):
            # Exact: 4,096 integers below 2^24 add up to less than 2^53.
            found[kind] += np.bincount(places, numbers.ravel(), width * _SPAN).astype(np.int64)
    # x = M 2^(e - 24), and x² = (high 2^24 + low) 2^(2 e - 48).
    sums, highs = (_joined(found[k], width, k + 1, FRACTION_BITS - _DIGITS) for k in (0, 1))
    lows = _joined(found[2], width, 2, FRACTION_BITS - 2 * _DIGITS)
    return sums + [high + low for high, low in zip(highs, lows, strict=True)]


def _joined(totals: NDArray[np.int64], width: int, power: int, shift: int) -> list[int]:
    """For each column Σ_e total_e 2^(power e + shift)."""
    joined = [0] * width
    for place in np.flatnonzero(totals).tolist():
        column, exponent = place // _SPAN, place % _SPAN + _SMALLEST
        joined[column] += int(totals[place]) << (power * exponent + shift)
    return joined
