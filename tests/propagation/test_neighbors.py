"""The k nearest of every point equal those of a full sort, with ties by index."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
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
from fedul_flwr.propagation.compiled import TILE, compare_turn, offer, tiles
from tests.propagation.conftest import SEED, Floats, clusters
from tests.support.refusals import refuses


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


@pytest.mark.parametrize("num_tiles", [1, 2, 5, 8])
@pytest.mark.parametrize("workers", [1, 3])
def test_all_turns_compare_every_pair_once(num_tiles: int, workers: int) -> None:
    # Room for n keys a point: all n - 1 others must be there, and a second time would be seen.
    size = num_tiles * TILE
    codes = np.repeat(np.arange(1, num_tiles + 1, dtype=np.uint8), TILE)[:, None]
    nearest = np.full((size, size), 9 * size)  # 8 bits: one more than the largest distance
    for turn in range(num_tiles):
        for worker in range(workers):
            compare_turn(tiles(codes), nearest, turn, workers, worker)
    expected = hamming(codes, codes) * size + np.arange(size)
    np.fill_diagonal(expected, 9 * size)
    np.testing.assert_array_equal(np.sort(nearest), np.sort(expected))


def test_workers_of_a_turn_share_no_row() -> None:
    # Side by side they would overwrite each other's neighbors.
    words = tiles(np.arange(1, 4 * TILE + 1, dtype=np.uint8)[:, None])
    for turn in range(4):
        taken = np.zeros(4 * TILE, dtype=np.int64)
        for worker in range(3):
            nearest = np.full((4 * TILE, 1), 9 * 4 * TILE)
            compare_turn(words, nearest, turn, 3, worker)
            taken += nearest[:, 0] < 9 * 4 * TILE
        assert taken.max() == 1


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


def test_keys_of_many_points_do_not_overflow() -> None:
    # Late among very many points, at the largest distances.
    largest, size = module._COSINE_STEPS - 1, 4_000_000
    nearest = np.full((size, 1), (largest + 1) * size)
    offer(nearest, np.array([[largest, largest - 1]]), size - 1, size - 3)
    assert nearest[-1, 0] == (largest - 1) * size + size - 2
    assert (nearest[:-1] == (largest + 1) * size).all()


@hypothesis_settings(deadline=None)
@given(k=st.integers(1, 9), distances=st.lists(st.integers(0, 5), max_size=32))
def test_keeps_the_smallest_that_were_offered(k: int, distances: list[int]) -> None:
    nearest = np.full((40, k), 6 * 40)
    for first in range(0, len(distances), 4):
        offer(nearest, np.array([distances[first : first + 4]]), 39, first)
    keys = [40 * distance + index for index, distance in enumerate(distances)]
    assert sorted(nearest[39]) == sorted(keys + k * [6 * 40])[:k]
    assert (nearest[:39] == 6 * 40).all()


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


@pytest.mark.parametrize(
    "distances",
    [
        np.zeros((2, 3), np.int64),
        np.zeros((2, 2)),
        np.array([[0, 65], [65, 0]]),
        np.array([[0, -1], [-1, 0]]),
        np.array([[0, 1], [2, 0]]),
    ],
)
def test_refuses_what_are_no_distances(distances: NDArray[np.int64]) -> None:
    with refuses("array-wrong"):
        neighbors_by_distance(distances, 64, 3)


def test_refuses_a_graph_without_edges() -> None:
    with refuses("argument-not-allowed"):
        neighbors_by_code(np.ones((3, 4), np.uint8), 0)
    with refuses("array-wrong"):
        neighbors_by_cosine(np.array([[1.0], [np.nan]]), 1)


def test_offers_of_any_shape_with_padding_that_is_nearer_than_all() -> None:
    distances = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    padded = np.hstack([distances, np.zeros((5, 3), dtype=np.int64)])
    nearest = np.full((5, 2), 50)
    offer(nearest, padded[:2], 0, 0)
    offer(nearest, np.vstack([padded[2:], np.zeros((4, 8), dtype=np.int64)])[:, 1:], 2, 1)
    # Key = 5 · distance + index. Rows 2 to 4 were not offered point 0.
    assert np.sort(nearest).tolist() == [[6, 12], [5, 7], [6, 8], [7, 9], [8, 12]]
