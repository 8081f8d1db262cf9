"""Sums of float32 columns and of their squares, exact to the last binary digit, and moments."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data import exact_sums as module
from fedul_flwr.data.exact_sums import exact_sums, moments_of
from fedul_flwr.data.standardize import Moments, moments, pooled
from tests.support.refusals import refuses

STEP = Fraction(1, 2**320)


def test_sums_by_hand() -> None:
    rows = np.array([[1.5, -2], [9, 9], [0.25, 0]], np.float32)
    # Rows 0 and 2: 1.75 and -2; squares 2.25 + 0.0625 and 4.
    wanted = [Fraction(7, 4), Fraction(-2), Fraction(37, 16), Fraction(4)]
    assert [n * STEP for n in exact_sums(rows, np.array([0, 2]))] == wanted


@pytest.mark.parametrize("chunk", [7, 4096])
def test_no_float32_is_rounded(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


def of_all(*clients: NDArray[np.float32]) -> Moments:
    """Moments from the sums of all clients."""
    sums = [exact_sums(rows, np.arange(len(rows))) for rows in clients]
    return moments_of(sum(map(len, clients)), [sum(column) for column in zip(*sums, strict=True)])


def test_moments_by_hand() -> None:
    # Points 1 and 2 have the sum 3 and the sum of squares 5: mean 1.5, variance 2.5 - 2.25.
    found = moments_of(2, [3 << 320, 0, 5 << 320, 0])
    assert (found.means.tolist(), found.variances.tolist()) == ([1.5, 0.0], [0.25, 0.0])


def test_given_a_sum_of_squares_that_no_float32_numbers_have_then_it_is_refused() -> None:
    # Of two points it is below 2·2^256.
    bound = 2 << 320 << 256
    assert moments_of(2, [0, bound - 1]).variances == pytest.approx(2.0**256)
    for number in (bound, -1):
        with refuses("sum-wrong", match="columns"):
            moments_of(2, [0, number])


def test_given_columns_of_any_size_then_moments_are_those_of_plaintext_and_of_numpy() -> None:
    rng, scales = np.random.default_rng(5), np.array([1e-9, 1.0, 1e9, 1e-30, 1e18])
    rows = [(scales * rng.normal(n, 1, (n, 5))).astype(np.float32) for n in (7, 1, 20, 13)]
    found = of_all(*rows)
    plain = pooled([7, 1, 20, 13], [moments(part, np.arange(len(part))) for part in rows])
    together = np.concatenate(rows).astype(np.float64)
    for means, variances in (plain, Moments(together.mean(axis=0), together.var(axis=0))):
        np.testing.assert_allclose(found.means, means, rtol=1e-14)
        np.testing.assert_allclose(found.variances, variances, rtol=1e-14)
    # However points are dealt, the moments have the same bits.
    dealt = of_all(*np.array_split(np.concatenate(rows)[::-1], 5))
    assert dealt.means.tolist() == found.means.tolist()
    assert dealt.variances.tolist() == found.variances.tolist()


def test_given_a_small_variance_beside_a_large_mean_then_no_digit_is_lost() -> None:
    # Squares of 10^9 differ by 128 in float64, and the variance is about 1,000.
    # Numbers 10^9 and, for one in three, 64 more: 64² · 2/9 = 910.2, no multiple of 128.
    column = (1e9 + 64 * (np.arange(30) % 3 == 0)).astype(np.float32)[:, None]
    wide = column.astype(np.float64)
    assert of_all(column, column).variances == pytest.approx(wide.var(axis=0), rel=1e-14)
    naive = (wide**2).mean(axis=0) - wide.mean(axis=0) ** 2
    assert naive != pytest.approx(wide.var(axis=0), rel=1e-2)


@pytest.mark.parametrize("value", [0.0, 3.25, -1e-9, 1e9, 3.0e38, 1e-45])
def test_given_a_constant_column_then_its_variance_is_0(value: float) -> None:
    found = of_all(*[np.full((4, 1), value, np.float32)] * 3)
    assert found.means.tolist() == [float(np.float32(value))]
    assert found.variances.tolist() == [0.0]
