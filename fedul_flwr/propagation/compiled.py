"""Loops over packed codes and their distances that Numba turns into machine code.

Import it where it is needed: Numba takes a fraction of a second to load, and a second to compile
when the functions are first called. They are compiled anew in every process. A cache on disk would
fail in a read-only installation, and could be stale or another machine's. All let go of the
interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes, Ints

Words = NDArray[np.uint64]
P = ParamSpec("P")
R = TypeVar("R")

TILE = 128
"""Codes of a tile. Distances between two tiles are 128 KB: they stay in a core's cache."""

_WORDS = 8
"""Words of two codes that are compared before their distance is looked up again."""


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    machine_code: Callable[P, R] = numba.njit(nogil=True)(function)
    return machine_code


def _one_bits(_context: Any, _word: Any) -> Any:
    """Type and code of the number of ones in a word: LLVM's ctpop, which it can vectorize."""
    number = numba.types.int64(numba.types.uint64)
    return number, lambda _context, builder, _signature, words: builder.ctpop(words[0])


_ones: Any = intrinsic(_one_bits)


def tiles(codes: Bytes) -> Words:
    """Codes ``(n, L / 8)`` as ``(ceil(n / TILE), words, TILE)``, filled up with zeros.

    A word of one code lies beside the same word of the next: a vector register takes several codes,
    and their distances need not be added up across it.
    """
    size, num_bytes = codes.shape
    count, words = -(-size // TILE), -(-num_bytes // (8 * _WORDS)) * _WORDS
    padded = np.zeros((count * TILE, 8 * words), dtype=np.uint8)
    padded[:size, :num_bytes] = codes
    by_code = padded.view(np.uint64).reshape(count, TILE, words)
    return np.ascontiguousarray(by_code.transpose(0, 2, 1))


@_compiled
def tile_distances(left: Words, right: Words, found: Ints) -> None:
    """Write Hamming distances ``(TILE, TILE)`` between the codes of two tiles into ``found``."""
    found[:] = 0
    for first in range(0, len(left), _WORDS):
        for i in range(TILE):
            for j in range(TILE):
                ones = 0
                for word in range(first, first + _WORDS):
                    ones += _ones(left[word, i] ^ right[word, j])
                found[i, j] += ones


@_compiled
def offer(nearest: Ints, distances: Ints, first_row: int, first_column: int) -> None:
    """Take distances of some points to others into account, but for a point's to itself.

    Parameters
    ----------
    nearest : ``(n, k)``, of every point the k smallest keys distance · n + index so far, so that
        smaller is nearer and ties go by index. A heap: the largest comes first, and entry c is not
        larger than entry (c - 1) // 2.
    distances : of points ``first_row``, … to ``first_column``, …; points n, … are padding.
    """
    num_points, k = nearest.shape
    for i in range(min(distances.shape[0], num_points - first_row)):
        heap = nearest[first_row + i]
        for j in range(min(distances.shape[1], num_points - first_column)):
            key = distances[i, j] * num_points + first_column + j
            if key >= heap[0] or first_row + i == first_column + j:
                continue
            # The first drops out; what is larger than the new key moves up, level by level.
            place, child = 0, 1
            while child < k:
                if child + 1 < k and heap[child + 1] > heap[child]:
                    child += 1
                if heap[child] <= key:
                    break
                heap[place] = heap[child]
                place, child = child, 2 * child + 1
            heap[place] = key


@_compiled
def compare_turn(words: Words, nearest: Ints, turn: int, workers: int, worker: int) -> None:
    """A worker's share of a turn: :func:`offer` distances of pairs of tiles, in both orientations.

    Turn t has the pairs (a, b) with a + b = t modulo the number of tiles. A tile is in one of them
    only, so workers share no row of ``nearest``, and as many turns as tiles have all pairs.
    """
    found = np.empty((TILE, TILE), dtype=np.int64)
    for a in range(worker, len(words), workers):
        b = (turn - a) % len(words)
        if a <= b:
            tile_distances(words[a], words[b], found)
            offer(nearest, found, a * TILE, b * TILE)
        if a < b:
            offer(nearest, found.T, b * TILE, a * TILE)
