"""Loops over packed codes and their distances, compiled by Numba (extra ``xclp``).

NumPy takes 20 times as long, so there is no second way without Numba. Import this module only where
it is used: loading Numba takes a fraction of a second, and compiling
takes a second at the first call in every process. A cache on disk would fail in a read-only
installation, and could be stale or from another machine. All functions release the interpreter's
lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes, Ints
from fedul_flwr.errors import require

require("xclp", "A graph of nearest points", "numba")
import numba  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

Words = NDArray[np.uint64]
P = ParamSpec("P")
R = TypeVar("R")

TILE = 128
"""Codes per tile. Distances between two tiles take 128 KB, which fits into a core's cache."""

_WORDS = 8
"""Number of words of two codes that are compared before the distance is updated."""


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    machine_code: Callable[P, R] = numba.njit(nogil=True)(function)
    return machine_code


def _one_bits(_context: Any, _word: Any) -> Any:
    """Number of ones in a word, as LLVM's ctpop, which can be vectorized: type and code."""
    number = numba.types.int64(numba.types.uint64)
    return number, lambda _context, builder, _signature, words: builder.ctpop(words[0])


_ones: Any = intrinsic(_one_bits)


def tiles(codes: Bytes) -> Words:
    """Codes ``(n, L / 8)`` as ``(ceil(n / TILE), words, TILE)``, padded with zeros.

    A word of one code is next to the same word of the next code: a vector register then has words
    of several codes, and no sum across the register is needed.
    """
    size, num_bytes = codes.shape
    count, words = -(-size // TILE), -(-num_bytes // (8 * _WORDS)) * _WORDS
    padded = np.zeros((count * TILE, 8 * words), dtype=np.uint8)
    padded[:size, :num_bytes] = codes
    by_code = padded.view(np.uint64).reshape(count, TILE, words)
    return np.ascontiguousarray(by_code.transpose(0, 2, 1))


@_compiled
def tile_distances(left: Words, right: Words, distances: Ints) -> None:
    """Write Hamming distances ``(TILE, TILE)`` of the codes of two tiles into ``distances``."""
    distances[:] = 0
    for first in range(0, len(left), _WORDS):
        for i in range(TILE):
            for j in range(TILE):
                ones = 0
                for word in range(first, first + _WORDS):
                    ones += _ones(left[word, i] ^ right[word, j])
                distances[i, j] += ones


@_compiled
def offer(nearest: Ints, distances: Ints, first_row: int, first_column: int) -> None:
    """Update the nearest points by a block of distances, ignoring a point's distance to itself.

    Parameters
    ----------
    nearest : ``(n, k)``, the k smallest keys distance · n + index of every point so far: smaller
        keys are nearer, and ties are broken by index. It is a heap: the largest key comes first,
        and entry c is not larger than entry (c - 1) // 2.
    """
    num_points, k = nearest.shape
    for i in range(min(distances.shape[0], num_points - first_row)):
        heap = nearest[first_row + i]
        for j in range(min(distances.shape[1], num_points - first_column)):
            key = distances[i, j] * num_points + first_column + j
            if key >= heap[0] or first_row + i == first_column + j:
                continue
            # Replace the first key; larger ones than the new key move up, level by level.
            position, child = 0, 1
            while child < k:
                if child + 1 < k and heap[child + 1] > heap[child]:
                    child += 1
                if heap[child] <= key:
                    break
                heap[position] = heap[child]
                position, child = child, 2 * child + 1
            heap[position] = key


@_compiled
def compare_turn(words: Words, nearest: Ints, turn: int, workers: int, worker: int) -> None:
    """A worker's part of a turn: :func:`offer` distances of pairs of tiles, in both directions.

    Turn t has the pairs (a, b) with a + b = t modulo the number of tiles. Each tile is in only one
    of them, so workers share no row of ``nearest``; as many turns as tiles cover all pairs.
    """
    distances = np.empty((TILE, TILE), dtype=np.int64)
    for a in range(worker, len(words), workers):
        b = (turn - a) % len(words)
        if a <= b:
            tile_distances(words[a], words[b], distances)
            offer(nearest, distances, a * TILE, b * TILE)
        if a < b:
            offer(nearest, distances.T, b * TILE, a * TILE)
