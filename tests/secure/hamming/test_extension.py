"""IKNP's extension: its identity row by row, correlated transfers by hand, what messages show."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.hamming import ot as extension
from fedul_flwr.secure.hamming.ot import (
    columns,
    hidden_columns,
    hide_choices,
    offer_correlated,
    receive_correlated,
    rows_of,
)

CONTEXT = b"a context"


def setup(seed: int) -> tuple[Bytes, Bytes, Bytes]:
    """Both keys of each base pair, the secret, and the keys that it picks."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 256, (2, 128, 32), dtype=np.uint8)
    secret = rng.integers(0, 256, 16, dtype=np.uint8)
    return keys, secret, keys[np.unpackbits(secret), np.arange(128)]


def random_bytes(seed: int, *shape: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_rows_by_hand() -> None:
    # Column 0 is 1100 0000, column 9 is 0100 0000, all others are 0: row 0 has bit 0 set, row 1
    # bits 0 and 9, that is bytes 128 and 64.
    block = np.zeros((128, 1), np.uint8)
    block[0], block[9] = 0b11000000, 0b01000000
    rows = rows_of(block)
    assert rows.shape == (8, 16)
    assert rows[0].tolist() == [128] + 15 * [0]
    assert rows[1].tolist() == [128, 64] + 14 * [0]
    assert not rows[2:].any()


@pytest.mark.parametrize("size", [0, 1, 7, 40])
@pytest.mark.parametrize("pattern", ["zeros", "ones", "random"])
def test_rows_differ_by_the_secret_where_the_choice_is_1(pattern: str, size: int) -> None:
    keys, secret, chosen = setup(size)
    choices = {
        "zeros": np.zeros(size, np.uint8),
        "ones": np.full(size, 255, np.uint8),
        "random": random_bytes(1, size),
    }[pattern]
    message = hide_choices(keys, choices)
    assert message.shape == (128, size)
    own = rows_of(columns(keys[0], size))
    hidden = rows_of(hidden_columns(chosen, secret, message))
    assert own.shape == hidden.shape == (8 * size, 16)
    for row, other, choice in zip(own, hidden, np.unpackbits(choices), strict=True):
        np.testing.assert_array_equal(row ^ (choice * secret), other)


def test_correlated_transfers_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two points and one transfer. A = (5, 0), B = (65535, 7), bits (1, 0).
    # r = A - bits = (4, 0); corrections r + (1 - bits) - B = (4 - 65535, 1 - 7) = (5, 65530).
    # Choice 0 gets A = r + bits; choice 1 gets B + corrections = (4, 1) = r + (1 - bits).
    zero, one = np.zeros((1, 16), np.uint8), np.ones((1, 16), np.uint8)
    pads = {0: [5, 0], 1: [65535, 7]}

    def by_hand(_: bytes, first: int, rows: Bytes, width: int) -> Any:
        return np.array([pads[int(rows[0, 0])]], np.uint16)

    monkeypatch.setattr(extension, "_pads", by_hand)
    r, corrections = offer_correlated(CONTEXT, 0, zero, one[0], np.array([[1, 0]], np.uint16))
    assert r.tolist() == [[4, 0]]
    assert corrections.tolist() == [[5, 65530]]
    for choice, rows, expected in ((0, zero, [5, 0]), (1, one, [4, 1])):
        got = receive_correlated(CONTEXT, 0, rows, np.array([choice], np.uint8), corrections)
        assert got.tolist() == [expected]
        assert got.dtype == np.uint16


@pytest.mark.parametrize("width", [0, 1, 5, 200])
def test_the_chooser_gets_r_and_whether_bits_differ(width: int) -> None:
    secret, rows = random_bytes(0, 16), random_bytes(1, 24, 16)
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2, (24, width)).astype(np.uint16)
    choices = rng.integers(0, 2, 24).astype(np.uint8)
    r, corrections = offer_correlated(CONTEXT, 100, rows, secret, bits)
    own = rows ^ (choices[:, np.newaxis] * secret)
    got = receive_correlated(CONTEXT, 100, own, choices, corrections)
    assert got.dtype == r.dtype == corrections.dtype == np.uint16
    np.testing.assert_array_equal(got - r, bits ^ choices[:, np.newaxis])
    # The other choice's row is of no use: neither r nor r + 1, but with probability 2^-15.
    wrong = receive_correlated(CONTEXT, 100, own, 1 - choices, corrections) - r
    assert (wrong <= 1).sum() <= 0.01 * wrong.size


def test_pads_are_hashes_of_context_number_and_row() -> None:
    rows = random_bytes(0, 3, 16)
    found = extension._pads(CONTEXT, 255, rows, 2)
    assert found.shape == (3, 2)
    assert found.dtype == np.uint16
    for row, number, pad in zip(rows, ([255, 0], [0, 1], [1, 1]), found, strict=True):
        data = CONTEXT + bytes(number) + bytes(6) + row.tobytes()
        low, high, low_2, high_2 = hashlib.shake_128(data).digest(4)
        assert pad.tolist() == [low + 256 * high, low_2 + 256 * high_2]
