"""Hamming distances of packed codes as matrix products, which BLAS does on all cores.

With bits a of one code and b of the other, h = sum_l a_l xor b_l = |a| + sum_l (1 - 2 a_l) b_l. A
float64 holds integers up to 2^53, of which a distance needs 13 bits for L = 4,096: several codes b
are written into the digits of one number, and one product gives all their distances, exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes, Floats, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.codes import blocks, check_codes

_EXACT_BITS = 52
"""Digits stay below 2^52, so that partial sums of either sign stay below 2^53."""


def hamming(codes_a: Bytes, codes_b: Bytes) -> Ints:
    """Numbers of bits in which codes differ (phase 1).

    Parameters
    ----------
    codes_a, codes_b : uint8 ``(n_a, L / 8)`` and ``(n_b, L / 8)``.

    Returns
    -------
    int64 ``(n_a, n_b)``, between 0 and L.

    Raises
    ------
    UserError
        Codes that are no uint8 matrices of one length L.
    """
    for codes in (codes_a, codes_b):
        check_codes(codes)
    if codes_a.shape[1] != codes_b.shape[1]:
        lengths = f"{8 * codes_a.shape[1]} and {8 * codes_b.shape[1]}"
        raise UserError(f"codes of {lengths} bits cannot be compared; L must be the same")
    distances = np.empty((len(codes_a), len(codes_b)), dtype=np.int64)
    for rows in blocks(len(codes_a)):
        left = left_factor(codes_a[rows])
        for columns in blocks(len(codes_b)):
            right = right_factor(codes_b[columns])
            distances[rows, columns] = product_distances(left, right, columns.stop - columns.start)
    return distances


def left_factor(codes: Bytes) -> Floats:
    """``(n, L + 1)``: 1 - 2 a_l, and |a| in the last column."""
    bits = np.unpackbits(codes, axis=1)
    factor = np.empty((len(bits), bits.shape[1] + 1))
    np.subtract(1.0, 2.0 * bits, out=factor[:, :-1])
    factor[:, -1] = bits.sum(axis=1, dtype=np.int64)
    return factor


def right_factor(codes: Bytes) -> Floats:
    """``(ceil(n / g), L + 1)``: b_l of g codes in the digits of a number; digits 1 at the end."""
    bits = np.unpackbits(codes, axis=1)
    width, group = _digits(bits.shape[1])
    size = -(-len(bits) // group)
    factor = np.zeros((size, bits.shape[1] + 1))
    for digit in range(group):
        part = bits[digit * size : (digit + 1) * size]
        factor[: len(part), :-1] += part * 2.0 ** (width * digit)
    factor[:, -1] = sum(2.0 ** (width * digit) for digit in range(group))
    return factor


def product_distances(left: Floats, right: Floats, num_columns: int) -> NDArray[np.unsignedinteger]:
    """Distances ``(n_a, num_columns)`` of the codes behind two factors, in few bytes each."""
    num_bits = left.shape[1] - 1
    width, group = _digits(num_bits)
    digits = (left @ right.T).astype(np.int64)
    size = len(right)
    distances = np.empty((len(left), group * size), dtype=np.min_scalar_type(num_bits))
    for digit in range(group):
        distances[:, digit * size : (digit + 1) * size] = digits & (2**width - 1)
        digits >>= width
    return distances[:, :num_columns]


def _digits(num_bits: int) -> tuple[int, int]:
    """Bits of a digit, which hold a distance between 0 and L, and digits of a number."""
    width = num_bits.bit_length()
    return width, _EXACT_BITS // width
