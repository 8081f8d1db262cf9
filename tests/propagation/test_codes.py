"""Codes are pinned, depend on directions only, and differ as often as angles say; distances."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedul_flwr.propagation import codes as module
from fedul_flwr.propagation.codes import cosine_from_hamming, encode, hamming, projections
from tests.propagation.conftest import SEED

KNOWN_CODES = "1eb018491aec7fe9 dc46c8ece34d5b2b 271c25110dec55d6"
KNOWN_ENDS = "ae14 b4b6 4f27"
KNOWN_PROJECTION = [-2.5436766264484594, 0.7146324844810231, -1.7309295523230517]


def test_known_answer() -> None:
    # What every release on every platform has to give: clients of different versions compare codes.
    points = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, -2.0, 3.0]])
    assert encode(points, SEED, 64).tobytes().hex(" ", 8) == KNOWN_CODES
    assert encode(points, SEED, 4096)[:, -2:].tobytes().hex(" ", 2) == KNOWN_ENDS
    first = next(projections(SEED, 3, 8))[0]
    np.testing.assert_allclose(first, KNOWN_PROJECTION, rtol=1e-12)


def test_blocks_do_nothing_and_short_codes_begin_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(0).normal(size=(37, 11))
    whole = encode(points, SEED, 512)
    assert (encode(points, SEED, 128) == whole[:, :16]).all()
    for numbers in (1, 500, 4000):
        monkeypatch.setattr(module, "_BLOCK_NUMBERS", numbers)
        assert (encode(points, SEED, 512) == whole).all()


@hypothesis_settings(deadline=None)
@given(
    exponent=st.integers(-300, 290), point=st.lists(st.floats(-100, 100), min_size=6, max_size=6)
)
def test_only_directions_count(exponent: int, point: list[float]) -> None:
    vector = np.array([point])
    vector[np.abs(vector) < 1e-6] = 0  # leaves room for the scale above the smallest float
    assert (encode(vector * 2.0**exponent, SEED, 64) == encode(vector, SEED, 64)).all()


def test_distances_lie_in_the_binomial_band_of_the_angle() -> None:
    num_bits = 4096
    angles = np.linspace(0, np.pi, 60)
    rng = np.random.default_rng(1)
    plane = np.linalg.qr(rng.normal(size=(30, 2)))[0].T
    points = np.cos(angles)[:, None] * plane[0] + np.sin(angles)[:, None] * plane[1]
    codes = encode(points, SEED, num_bits)
    distances = hamming(codes[:1], codes)[0]
    q = angles / np.pi
    deviation = np.sqrt(num_bits * q * (1 - q))
    assert (np.abs(distances - num_bits * q) <= 4.5 * deviation + 1e-6).all()
    # And not much narrower: the bits are independent, the estimates of one plane nearly so.
    inner = slice(1, -1)
    scores = (distances[inner] - num_bits * q[inner]) / deviation[inner]
    assert np.abs(scores).max() > 0.5
    error = cosine_from_hamming(distances, num_bits) - np.cos(angles)
    assert np.abs(error).max() < 4.5 * np.pi * 0.5 / np.sqrt(num_bits)


def test_cosine_by_hand() -> None:
    # cos(pi / 3) = 0.5; exact at the ends and in the middle.
    found = cosine_from_hamming(np.array([0, 8, 12, 16, 24]), 24)
    assert found.tolist() == [1, pytest.approx(0.5), 0, pytest.approx(-0.5), -1]


# Distances of whole words equal those counted bit by bit


def counted(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.int64]:
    bits_a, bits_b = np.unpackbits(a, axis=1), np.unpackbits(b, axis=1)
    return (bits_a[:, None] != bits_b[None]).sum(axis=2)


@pytest.mark.parametrize("num_bits", [8, 248, 256, 576, 4088, 4096, 65528, 65536])
def test_extremes_of_every_length(num_bits: int) -> None:
    # All bits differ, none do, or half; lengths that fill the last word and lengths that do not.
    zeros, ones = np.zeros(num_bits // 8, np.uint8), np.full(num_bits // 8, 255, np.uint8)
    mixed = np.random.default_rng(0).integers(0, 256, num_bits // 8, dtype=np.uint8)
    codes = np.stack([zeros, ones, mixed, ones, zeros, ~mixed, ones])
    np.testing.assert_array_equal(hamming(codes, codes), counted(codes, codes))


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("array-wrong", lambda: encode(np.array([[0.0, 1.0], [np.nan, 1.0]]), SEED, 64)),
    ("array-wrong", lambda: encode(np.array([1.0, 2.0]), SEED, 64)),
    ("array-wrong", lambda: encode(np.array([["a"]]), SEED, 64)),  # type: ignore[arg-type]
    ("array-wrong", lambda: encode(np.empty((3, 0)), SEED, 64)),
    ("argument-not-allowed", lambda: encode(np.ones((1, 2)), SEED, 0)),
    ("argument-not-allowed", lambda: encode(np.ones((1, 2)), SEED, -8)),
    ("argument-not-allowed", lambda: encode(np.ones((1, 2)), SEED, 12)),
    ("array-wrong", lambda: hamming(np.zeros((1, 8), np.uint8), np.zeros((1, 16), np.uint8))),
    ("array-wrong", lambda: hamming(np.zeros(8, np.uint8), np.zeros(8, np.uint8))),
    ("array-wrong", lambda: hamming(np.zeros((2, 8)), np.zeros((2, 8)))),  # type: ignore[arg-type]
    ("array-wrong", lambda: hamming(np.zeros((2, 0), "u1"), np.zeros((2, 0), "u1"))),
]
