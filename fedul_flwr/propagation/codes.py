"""Locality-sensitive codes of points, and every point's nearest ones, without an n x n matrix.

Codes are of XCLP's phase 1 and appendix C.2. Clients with the same seed have the same projections
p_1 … p_L, so codes of different clients are comparable.

Neighbors are of phase 2: per row the k largest similarities, without the point itself and without
negative ones. Ties are broken by the lower index, so that equal distances always give the same
graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedul_flwr.arrays import Bytes, Floats, Ints, blocks, check_num_bits
from fedul_flwr.data.cores import usable_cpus
from fedul_flwr.errors import UserError
from fedul_flwr.secure.noise import gaussians
from fedul_flwr.secure.similarity import Codes, HammingDistances

SEED_BYTES = 32
NUM_BITS = 4096
"""L of the paper, appendix A.2."""

_BLOCK_NUMBERS = 2**22
"""Size of a block of projections or products in numbers: 32 MB for any d and n."""


def projections(seed: bytes, num_features: int, num_bits: int) -> Iterator[Floats]:
    """Random projections, unit Gaussian, in blocks of rows (phase 1).

    The numbers are the same for all who have the seed: NumPy guarantees a stable raw stream of a
    bit generator, but not of ``standard_normal``. Gaussians are therefore computed from that stream
    (:func:`~fedul_flwr.secure.noise.gaussians`). Projection l does not depend on
    ``num_bits``: a short code is the start of a long one.

    Parameters
    ----------
    seed : 32 bytes that the clients share, unknown to the server.
    num_features : d.
    num_bits : L, a multiple of 8.

    Yields
    ------
    ``(b, d)``, the next b of the L projections; b is a multiple of 8.
    """
    generator = np.random.Philox(np.random.SeedSequence(int.from_bytes(seed, "little")))
    at_a_time = max(8, _BLOCK_NUMBERS // num_features // 8 * 8)
    for start in range(0, num_bits, at_a_time):
        size = min(at_a_time, num_bits - start)
        yield gaussians(generator.random_raw(size * num_features)).reshape(size, num_features)


def encode(features: NDArray[np.floating], seed: bytes, num_bits: int = NUM_BITS) -> Bytes:
    """Codes of vectors: bit l is 1 where v · p_l > 0 (phase 1).

    Only the direction of a vector matters. The bits of a zero vector are all 0, which another
    vector has only with probability 2^-L; the graph treats it as similar to no point. Callers
    that send distances instead of codes leave zero vectors out.

    Parameters
    ----------
    features : ``(n, d)``, finite; n may be 0.
    seed, num_bits : as for :func:`projections`.

    Returns
    -------
    uint8 ``(n, L / 8)``, bit 0 of a point is the highest of its first byte.

    Raises
    ------
    UserError
        If features are not a finite matrix, or L is not a positive multiple of 8.

    Examples
    --------
    Only directions count, and opposite ones differ in every bit:

    >>> codes = encode(np.array([[1.0, 2.0], [3.0, 6.0], [-1.0, -2.0]]), bytes(32), num_bits=64)
    >>> hamming(codes, codes)[0].tolist()
    [0, 0, 64]
    """
    features = checked_features(features)
    check_num_bits(num_bits)
    codes = np.empty((len(features), num_bits // 8), dtype=np.uint8)
    first = 0
    for block in projections(seed, features.shape[1], num_bits):
        last = first + len(block) // 8
        for rows in blocks(len(features), max(1, _BLOCK_NUMBERS // max(block.shape))):
            products = directions(features[rows]) @ block.T
            codes[rows, first:last] = np.packbits(products > 0, axis=1)
        first = last
    return codes


def cosine_from_hamming(distances: NDArray[np.integer], num_bits: int) -> Floats:
    """Estimate of the cosine between two vectors from the distance of their codes (eq. 3).

    cos(pi h / L): each bit differs with probability angle / pi. The standard deviation of h is
    sqrt(L q (1 - q)) with that probability q, at most sqrt(L) / 2.

    Parameters
    ----------
    distances : h, any shape, between 0 and L.
    num_bits : L.

    Returns
    -------
    Same shape, in [-1, 1]; exactly 1, 0 and -1 at 0, L / 2 and L.

    Examples
    --------
    >>> cosine_from_hamming(np.array([0, 32, 64]), num_bits=64).tolist()
    [1.0, 0.0, -1.0]
    """
    # The sine of the complement, because cos(pi / 2) is 6e-17 and would count as similar.
    return np.asarray(np.sin(np.pi * (0.5 - np.asarray(distances) / num_bits)), dtype=np.float64)


def checked_features(features: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return features ``(n, d)`` unchanged after a check.

    Raises
    ------
    UserError
        If it is not a matrix of numbers, or has NaN or infinity; the message names the first row.
    """
    features = np.asarray(features)
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        raise UserError(
            f"features are {features.dtype} {features.shape}; they must be numbers, (points, d)",
            "array-wrong",
        )
    finite = np.isfinite(features).all(axis=1)
    if not finite.all():
        raise UserError(
            f"features of point {np.argmin(finite)} are not all finite numbers",
            "array-wrong",
        )
    return features


def directions(features: NDArray[np.floating]) -> Floats:
    """float64 ``(n, d)``, rows divided by their largest entry: no product over- or underflows."""
    wide: Floats = features.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True)
    np.divide(wide, largest, out=wide, where=largest > 0)
    return wide


def hamming(codes_a: Bytes, codes_b: Bytes) -> Ints:
    """Numbers of bits in which codes differ (phase 1).

    Parameters
    ----------
    codes_a, codes_b : uint8 ``(n_a, L / 8)`` and ``(n_b, L / 8)``.

    Returns
    -------
    int64 ``(n_a, n_b)``, between 0 and L.

    Examples
    --------
    >>> codes = np.array([[0b00000000], [0b00000111]], dtype=np.uint8)
    >>> hamming(codes, codes).tolist()
    [[0, 3], [3, 0]]
    """
    from fedul_flwr.propagation.compiled import TILE, tile_distances, tiles

    distances = np.empty((len(codes_a), len(codes_b)), dtype=np.int64)
    block = np.empty((TILE, TILE), dtype=np.int64)
    right = tiles(codes_b)
    for rows, left in zip(blocks(len(codes_a), TILE), tiles(codes_a), strict=True):
        for columns, other in zip(blocks(len(codes_b), TILE), right, strict=True):
            tile_distances(left, other, block)
            target = distances[rows, columns]
            target[:] = block[: target.shape[0], : target.shape[1]]
    return distances


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
    """
    from fedul_flwr.propagation import compiled

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
    """
    distances = np.asarray(distances)
    size = len(distances)
    nearest = _Nearest(size, k, _largest_similar(num_bits))
    for rows in blocks(size, _BLOCK_ROWS):
        nearest.offer(distances[rows], rows.start)
    points, others, values = nearest.triples()
    return _csr(points, others, cosine_from_hamming(values, num_bits), size)


def neighbors_by_cosine(features: NDArray[np.floating], k: int) -> sparse.csr_array:
    """The same from features, by the exact cosine, which codes only estimate.

    Parameters
    ----------
    features : ``(n, d)``, finite. Zero vectors are isolated.
    k : as for :func:`neighbors_by_code`.
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
