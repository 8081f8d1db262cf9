"""The k most similar points of every point, without an n x n matrix.

XCLP, phase 2: per row the k largest similarities, without the point itself and without negative
ones. Ties are broken by the lower index, so that equal distances always give the same graph.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.data.types import Bytes, Floats, Ints, blocks, check_codes, check_num_bits
from fedul_flwr.errors import UserError
from fedul_flwr.propagation.codes import checked_features, cosine_from_hamming, directions
from fedul_flwr.secure.similarity import Codes, HammingDistances

Distances = NDArray[np.integer]

_COSINE_STEPS = 2**30
"""Cosines are rounded to 1e-9, so that differences by machine or order of points have no effect."""

_BLOCK_ROWS = 128
"""Rows of distances per block: 51 MB for 50,000 points."""


def neighbors_by_code(codes: Bytes, k: int) -> sparse.csr_array:
    """Similarities of every point to its k nearest ones by Hamming distance of codes.

    Every pair is compared once, for both directions, on all cores. Memory: two copies of the
    codes, and 8 k bytes per point. The first call in a process compiles the loops.

    Parameters
    ----------
    codes : uint8 ``(n, L / 8)``. Codes with all bits 0 are those of zero vectors: isolated points.
    k : neighbors of a point, at least 1; fewer if fewer have a positive similarity.

    Returns
    -------
    A hat, float64 ``(n, n)``, at most k entries cos(pi h / L) in (0, 1] a row, zero diagonal.

    Raises
    ------
    UserError
        If codes are not a uint8 matrix, or k < 1.

    Examples
    --------
    >>> codes = np.array([[0b11110000], [0b11110011], [0b00001111]], dtype=np.uint8)
    >>> neighbors_by_code(codes, k=1).toarray().round(4).tolist()
    [[0.0, 0.7071, 0.0], [0.7071, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    from fedul_flwr.propagation import compiled

    check_codes(codes)
    present = codes.any(axis=1)
    if not present.all():
        return _spread(neighbors_by_code(codes[present], k), np.flatnonzero(present), len(codes))
    num_bits = 8 * codes.shape[1]
    nearest = _Nearest(len(codes), k, _largest_similar(num_bits))
    words = compiled.tiles(codes)
    workers = usable_cpus()
    with ThreadPoolExecutor(workers) as pool:
        for turn in range(len(words)):
            share = partial(compiled.compare_turn, words, nearest.keys, turn, workers)
            list(pool.map(share, range(workers)))
    points, others, distances = nearest.triples()
    return _csr(points, others, cosine_from_hamming(distances, num_bits), len(codes))


def nearest_points(compared: Codes | HammingDistances, k: int) -> sparse.csr_array:
    """The k most similar points of each point, ``(n, n)``, from what the server has of them.

    See :func:`neighbors_by_code` and :func:`neighbors_by_distance`.

    Examples
    --------
    >>> distances = np.array([[0, 2], [2, 0]])
    >>> nearest_points(HammingDistances(distances, num_bits=8), k=1).toarray().round(4).tolist()
    [[0.0, 0.7071], [0.7071, 0.0]]
    """
    if isinstance(compared, Codes):
        return neighbors_by_code(compared.codes, k)
    return neighbors_by_distance(compared.distances, compared.num_bits, k)


def neighbors_by_distance(distances: Distances, num_bits: int, k: int) -> sparse.csr_array:
    """The same from the matrix of Hamming distances, which is all that XCLP's server has.

    Parameters
    ----------
    distances : H, integers ``(n, n)`` between 0 and L; the diagonal is ignored.
    num_bits : L.
    k : as for :func:`neighbors_by_code`.

    Raises
    ------
    UserError
        If the matrix is not square, not symmetric, or not of integers from 0 to L; or if k < 1.

    Examples
    --------
    A distance of L / 2 or more is no similarity:

    >>> distances = np.array([[0, 2, 6], [2, 0, 8], [6, 8, 0]])
    >>> neighbors_by_distance(distances, num_bits=8, k=1).toarray().round(4).tolist()
    [[0.0, 0.7071, 0.0], [0.7071, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    check_num_bits(num_bits)
    distances = np.asarray(distances)
    size = len(distances)
    if distances.shape != (size, size) or distances.dtype.kind not in "iu":
        raise UserError(
            f"Hamming distances are {distances.dtype} {distances.shape}; "
            "they must be a square matrix of integers",
            "array-wrong",
        )
    nearest = _Nearest(size, k, _largest_similar(num_bits))
    for rows in blocks(size, _BLOCK_ROWS):
        block = distances[rows]
        if block.min(initial=0) < 0 or block.max(initial=0) > num_bits:
            raise UserError(
                f"a Hamming distance is not between 0 and L = {num_bits}", "array-wrong"
            )
        if not np.array_equal(block, distances[:, rows].T):
            raise UserError("Hamming distances must be symmetric", "array-wrong")
        nearest.offer(block, rows.start)
    points, others, values = nearest.triples()
    return _csr(points, others, cosine_from_hamming(values, num_bits), size)


def neighbors_by_cosine(features: NDArray[np.floating], k: int) -> sparse.csr_array:
    """The same from features, by the exact cosine, which codes only estimate.

    Parameters
    ----------
    features : ``(n, d)``, finite. Zero vectors are isolated.
    k : as for :func:`neighbors_by_code`.

    Raises
    ------
    UserError
        If features are not a finite matrix, or k < 1.

    Examples
    --------
    >>> points = np.array([[3.0, 4.0], [4.0, 3.0], [-1.0, 0.0]])
    >>> neighbors_by_cosine(points, k=1).toarray().round(4).tolist()
    [[0.0, 0.96, 0.0], [0.96, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    features = checked_features(features)
    present = features.any(axis=1)
    if not present.all():
        graph = neighbors_by_cosine(features[present], k)
        return _spread(graph, np.flatnonzero(present), len(features))
    units = directions(features)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    nearest = _Nearest(len(units), k, _COSINE_STEPS - 1)
    for rows in blocks(len(units), _BLOCK_ROWS):
        steps = np.rint(_COSINE_STEPS * (1 - units[rows] @ units.T))
        nearest.offer(np.maximum(steps, 0), rows.start)
    points, others, steps = nearest.triples()
    return _csr(points, others, 1 - steps / _COSINE_STEPS, len(units))


class _Nearest:
    """The k smallest pairs (distance, index) of every row so far.

    A pair is stored as one integer, distance · n + index.
    """

    def __init__(self, num_points: int, k: int, largest: int) -> None:
        if k < 1:
            raise UserError(
                f"k is {k}; a graph needs 1 neighbor of every point or more", "argument-not-allowed"
            )
        self.num_points = num_points
        self.none = (largest + 1) * num_points  # marks a missing neighbor
        self.keys = np.full((num_points, min(k, max(num_points - 1, 1))), self.none)

    def offer(self, distances: NDArray[Any], first: int) -> None:
        """Update by the distances of points ``first``, … to all points."""
        from fedul_flwr.propagation.compiled import offer

        # Always one type and layout, so that only one version is compiled.
        offer(self.keys, np.ascontiguousarray(distances, dtype=np.int64), first, 0)

    def triples(self) -> tuple[Ints, Ints, Ints]:
        """Points, their neighbors, distances."""
        points, rank = np.nonzero(self.keys < self.none)
        distances, others = np.divmod(self.keys[points, rank], max(self.num_points, 1))
        return points, others, distances


def _largest_similar(num_bits: int) -> int:
    """Largest Hamming distance of a positive cosine: 2 h < L."""
    return (num_bits - 1) // 2


def _csr(points: Ints, others: Ints, similarities: Floats, size: int) -> sparse.csr_array:
    matrix = sparse.csr_array((similarities, (points, others)), shape=(size, size))
    matrix.sort_indices()
    return matrix


def _spread(matrix: sparse.csr_array, present: Ints, size: int) -> sparse.csr_array:
    """Embed ``matrix`` into ``size`` points, at the positions ``present``."""
    entries: Any = matrix.tocoo()
    return _csr(present[entries.row], present[entries.col], entries.data, size)
