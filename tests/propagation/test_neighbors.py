"""The k nearest of every point equal those of a full sort, with ties by index."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.propagation import codes as module
from fedul_flwr.propagation.codes import (
    cosine_from_hamming,
    encode,
    hamming,
    neighbors_by_code,
    neighbors_by_cosine,
    neighbors_by_distance,
)
from fedul_flwr.propagation.compiled import TILE
from tests.propagation.conftest import SEED, Floats, clusters


def sorted_rows(distances: NDArray[np.int64], num_bits: int, k: int) -> Floats:
    """A hat by sorting (distance, index) of every row in full."""
    found = np.zeros(distances.shape)
    for i, row in enumerate(distances):
        others = [(h, j) for j, h in enumerate(row) if j != i and 2 * h < num_bits]
        for h, j in sorted(others)[:k]:
            found[i, j] = cosine_from_hamming(h, num_bits)
    return found


@pytest.mark.parametrize("k", [1, 10, 40, 299, 300, 1000])
@pytest.mark.parametrize("num_bits", [8, 64, 1024])
def test_equals_a_full_sort(num_bits: int, k: int) -> None:
    # With few bits nearly all comparisons are ties; codes of zeros only stand for zero vectors.
    codes = encode(clusters(2 * TILE + 44)[0], SEED, num_bits)
    codes[~codes.any(axis=1), 0] = 1
    distances = hamming(codes, codes)
    expected = sorted_rows(distances, num_bits, k)
    np.testing.assert_array_equal(neighbors_by_code(codes, k).toarray(), expected)
    by_distance = neighbors_by_distance(distances, num_bits, k)
    np.testing.assert_array_equal(by_distance.toarray(), expected)


@pytest.mark.parametrize("num_points", [TILE - 1, TILE, TILE + 1, 2 * TILE])
def test_equals_a_full_sort_at_the_edges_of_tiles(num_points: int) -> None:
    codes = encode(clusters(num_points)[0], SEED, 256)
    expected = sorted_rows(hamming(codes, codes), 256, 10)
    np.testing.assert_array_equal(neighbors_by_code(codes, 10).toarray(), expected)


def test_any_number_of_cores_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = encode(clusters(3 * TILE + 5)[0], SEED, 64)  # short ones, with many ties
    expected = sorted_rows(hamming(codes, codes), 64, 10)
    for cores in (1, 2, 3, 7):
        monkeypatch.setattr(module, "usable_cpus", lambda cores=cores: cores)
        np.testing.assert_array_equal(neighbors_by_code(codes, 10).toarray(), expected)


@pytest.mark.parametrize("kind", ["u2", "u8", ">i4", "i8"])
def test_distances_of_any_type_and_order(kind: str) -> None:
    codes = encode(clusters(150)[0], SEED, 64)
    distances = hamming(codes, codes)
    expected = sorted_rows(distances, 64, 10)
    for given_so in (distances.astype(kind), distances.astype(kind, order="F")):
        given_so.setflags(write=False)
        found = neighbors_by_distance(given_so, 64, 10)
        np.testing.assert_array_equal(found.toarray(), expected)


def test_distances_in_a_narrow_type() -> None:
    # All similar, and 2 h < L = 1200 is beyond what a uint8 holds.
    codes = encode(clusters(50)[0], SEED, 200)
    distances = hamming(codes, codes)
    found = neighbors_by_distance(distances.astype(np.uint8), 1200, 5)
    np.testing.assert_array_equal(found.toarray(), sorted_rows(distances, 1200, 5))


@pytest.mark.parametrize(("distance", "edges"), [(3, 2), (4, 0)])
def test_at_a_right_angle_there_is_no_edge(distance: int, edges: int) -> None:
    # Of 8 bits: 4 make a cosine of 0, which is not to be stored either.
    found = neighbors_by_distance(np.array([[0, distance], [distance, 0]]), 8, 1)
    assert found.nnz == edges
    codes = np.array([[0b11110000], [0b11110000 ^ (2**distance - 1)]], dtype=np.uint8)
    assert neighbors_by_code(codes, 1).nnz == edges


def test_zero_vectors_are_similar_to_nobody() -> None:
    features = clusters(40)[0]
    features[[0, 17, 39]] = 0
    rest = np.delete(np.arange(40), [0, 17, 39])
    codes = encode(features, SEED, 256)
    for found, without in (
        (neighbors_by_code(codes, 5), neighbors_by_code(codes[rest], 5)),
        (neighbors_by_cosine(features, 5), neighbors_by_cosine(features[rest], 5)),
    ):
        matrix = found.toarray()
        assert not matrix[[0, 17, 39]].any()
        assert not matrix[:, [0, 17, 39]].any()
        np.testing.assert_array_equal(matrix[np.ix_(rest, rest)], without.toarray())


def test_all_points_alike() -> None:
    # Everybody is at distance 0: lower indices go first.
    found = neighbors_by_code(np.full((5, 4), 7, np.uint8), 2).toarray()
    assert [np.flatnonzero(row).tolist() for row in found] == [
        [1, 2],
        [0, 2],
        [0, 1],
        [0, 1],
        [0, 1],
    ]
    assert set(found.ravel()) == {0.0, 1.0}
