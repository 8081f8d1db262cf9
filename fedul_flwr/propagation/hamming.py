"""Hamming distances of packed codes."""

from __future__ import annotations

import numpy as np

from fedul_flwr.data.packed_codes import blocks, check_codes
from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.errors import UserError


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
        If codes are not uint8 matrices of the same length L.
    """
    from fedul_flwr.propagation.compiled import TILE, tile_distances, tiles

    for codes in (codes_a, codes_b):
        check_codes(codes)
    if codes_a.shape[1] != codes_b.shape[1]:
        lengths = f"{8 * codes_a.shape[1]} and {8 * codes_b.shape[1]}"
        raise UserError(f"codes of {lengths} bits cannot be compared; L must be the same")
    distances = np.empty((len(codes_a), len(codes_b)), dtype=np.int64)
    found = np.empty((TILE, TILE), dtype=np.int64)
    right = tiles(codes_b)
    for rows, left in zip(blocks(len(codes_a), TILE), tiles(codes_a), strict=True):
        for columns, other in zip(blocks(len(codes_b), TILE), right, strict=True):
            tile_distances(left, other, found)
            target = distances[rows, columns]
            target[:] = found[: target.shape[0], : target.shape[1]]
    return distances
