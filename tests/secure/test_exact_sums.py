"""Sums of float32 columns and of their squares, exact to the last binary digit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fedul_flwr.secure import column_sums as module
from fedul_flwr.secure.column_sums import exact_sums
from tests.support.refusals import refuses

STEP = Fraction(1, 2**320)


def test_sums_by_hand() -> None:
    rows = np.array([[1.5, -2], [9, 9], [0.25, 0]], np.float32)
    # Rows 0 and 2: 1.75 and -2; squares 2.25 + 0.0625 and 4.
    wanted = [Fraction(7, 4), Fraction(-2), Fraction(37, 16), Fraction(4)]
    assert [n * STEP for n in exact_sums(rows, np.array([0, 2]))] == wanted


@pytest.mark.parametrize("chunk", [7, 4096])
def test_given_any_float32_numbers_then_nothing_is_rounded(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2**32, (200, 4), dtype=np.uint32).view(np.float32)  # of every exponent
    rows = np.where(np.isfinite(rows), rows, 0)
    rows[0] = [np.finfo(np.float32).max, np.finfo(np.float32).tiny, 1e-45, -0.0]
    sums = [sum(map(Fraction, column)) for column in rows.T.tolist()]
    squares = [sum(Fraction(x) ** 2 for x in column) for column in rows.T.tolist()]
    found = exact_sums(rows, np.arange(200))
    assert [number * STEP for number in found] == sums + squares
    assert exact_sums(rows, np.arange(0)) == [0] * 8


def test_full_chunks_of_the_largest_mantissa_are_exact() -> None:
    number = np.float32(2**24 - 1)
    found = exact_sums(np.full((2 * module.CHUNK, 1), number), np.arange(2 * module.CHUNK))
    assert found == [(2**24 - 1) * 8192 << 320, (2**24 - 1) ** 2 * 8192 << 320]


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_has_no_sum(number: float) -> None:
    with refuses("array-wrong", match="finite"):
        exact_sums(np.array([[1.0], [number]], np.float32), np.arange(2))
