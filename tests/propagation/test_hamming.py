"""Distances of whole words equal those counted bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.propagation.codes import hamming
from fedul_flwr.propagation.compiled import TILE
from tests.support.refusals import refuses


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


def test_across_tiles() -> None:
    codes = np.random.default_rng(0).integers(0, 256, (2 * TILE + 60, 8), dtype=np.uint8)
    expected = np.bitwise_xor(codes[:, None], codes[None, -60:])
    counts = np.array([bin(byte).count("1") for byte in range(256)])
    np.testing.assert_array_equal(hamming(codes, codes[-60:]), counts[expected].sum(axis=2))
    np.testing.assert_array_equal(hamming(codes[-60:], codes), hamming(codes, codes[-60:]).T)


def test_refuses_codes_of_two_lengths() -> None:
    with refuses("array-wrong"):
        hamming(np.zeros((1, 8), np.uint8), np.zeros((1, 16), np.uint8))


@pytest.mark.parametrize("codes", [np.zeros(8, np.uint8), np.zeros((2, 8)), np.zeros((2, 0), "u1")])
def test_refuses_what_is_no_code(codes: NDArray[np.uint8]) -> None:
    with refuses("array-wrong"):
        hamming(codes, codes)
