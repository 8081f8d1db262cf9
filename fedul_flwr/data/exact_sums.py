"""Exact sums of float32 columns, and the moments that follow from sums over clients."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Ints
from fedul_flwr.data.standardize import Moments
from fedul_flwr.data.types import Inputs
from fedul_flwr.errors import UserError

FRACTION_BITS = 320
"""Number of fractional bits."""
DIGITS = 20
"""Words of a number. Of 10^12 squares of float32 numbers, which are below 2^256, the sum is below
2^(296 + 320), and that of 2^20 clients is below half of 2^640."""

CHUNK = 4096
"""Rows at a time."""

_MANTISSA_BITS = 24
"""Binary digits of a float32 number."""
_SMALLEST, _SPAN = -148, 277
"""Exponents e of float32 numbers m 2^e with 0.5 <= |m| < 1: the first one, and how many."""


def exact_sums(inputs: Inputs, points: Ints) -> list[int]:
    """Sums of d columns over rows ``points`` of ``inputs``, then sums of their squares."""
    width = inputs.shape[1]
    # By column and exponent e: sums of the integers M = m 2^24, and of both halves of M².
    limbs = np.zeros((3, width * _SPAN), dtype=np.int64)
    first = _SPAN * np.arange(width) - _SMALLEST
    for start in range(0, len(points), CHUNK):
        rows = np.asarray(inputs[points[start : start + CHUNK]], dtype=np.float32)
        if not np.isfinite(rows).all():
            raise UserError("A column has numbers that are not finite, and no sum.", "array-wrong")
        parts, exponents = np.frexp(rows.astype(np.float64))
        whole = parts * 2.0**_MANTISSA_BITS
        high = np.floor(whole * whole * 2.0**-_MANTISSA_BITS)
        low = whole * whole - high * 2.0**_MANTISSA_BITS
        positions = (exponents + first).ravel()
        for kind, numbers in enumerate((whole, high, low)):
            # Exact: 4,096 integers below 2^24 add up to less than 2^53.
            limbs[kind] += np.bincount(positions, numbers.ravel(), width * _SPAN).astype(np.int64)
    # x = M 2^(e - 24), and x² = (high 2^24 + low) 2^(2 e - 48).
    sums, highs = (_joined(limbs[k], width, k + 1, FRACTION_BITS - _MANTISSA_BITS) for k in (0, 1))
    lows = _joined(limbs[2], width, 2, FRACTION_BITS - 2 * _MANTISSA_BITS)
    return sums + [high + low for high, low in zip(highs, lows, strict=True)]


def _joined(totals: NDArray[np.int64], width: int, power: int, shift: int) -> list[int]:
    """For each column Σ_e total_e 2^(power e + shift)."""
    joined = [0] * width
    for index in np.flatnonzero(totals).tolist():
        column, exponent = index // _SPAN, index % _SPAN + _SMALLEST
        joined[column] += int(totals[index]) << (power * exponent + shift)
    return joined


def moments_of(num_points: int, sums: list[int]) -> Moments:
    """Pooled moments from sums and sums of squares of all points, rounded once.

    Nothing cancels: m = Σ x / N and v = Σ x² / N - m² are computed in rational numbers.
    """
    width, steps = len(sums) // 2, num_points << FRACTION_BITS
    if not all(0 <= number < steps << 256 for number in sums[width:]):  # squares of float32
        raise UserError(
            "The masked sum of columns holds numbers that no points have: masks did not cancel.",
            "sum-wrong",
        )
    means = [Fraction(number, steps) for number in sums[:width]]
    squares = [Fraction(number, steps) for number in sums[width:]]
    variances = [max(s - m * m, Fraction(0)) for s, m in zip(squares, means, strict=True)]
    return Moments(np.array(list(map(float, means))), np.array(list(map(float, variances))))
