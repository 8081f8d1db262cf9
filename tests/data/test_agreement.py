"""Columns of one owner beside those of all others."""

import numpy as np
import pytest

from fedul_flwr.data.agreement import (
    BINS,
    FEWEST,
    column_counts,
    differences,
    packed,
    packed_size,
    unpacked,
)
from fedul_flwr.data.columns import Column, Columns

COLUMNS = Columns((Column("leukocytes"), Column("sex", categories=("f", "m")), Column("shift")))


def table(leukocytes: float, men: float, shift: float = 0.0, rows: int = 200) -> np.ndarray:
    rng = np.random.default_rng(rows)
    is_man = np.arange(rows) < men * rows
    columns = (
        leukocytes * rng.lognormal(0, 0.3, rows),
        *(~is_man, is_man),
        shift + rng.normal(0, 1, rows),
    )
    return np.column_stack(columns).astype(np.float32)


def said_by(own: np.ndarray, *others: np.ndarray) -> list[str]:
    """What the owner of the first table reads, by sums of whole numbers."""
    counts = [column_counts(one) for one in (own, *others)]
    sums = [sum(numbers) for numbers in zip(*map(packed, counts), strict=True)]
    assert len(sums) == packed_size(4)
    return [*differences(counts[0], unpacked(sums, 4), COLUMNS)]


def test_each_number_is_in_one_bin_and_sums_are_those_of_the_counts() -> None:
    # Eight bins a decade: 1 and 1.3 are in one, 1.34 > 10^(1/8) = 1.3335 in the next.
    rows = np.array([[1.0, -1.0], [1.3, 0.0], [1.34, 1e-9], [1e30, -1e30]], np.float32)
    counts = column_counts(rows)
    assert counts.shape == (2, BINS)
    middle = BINS // 2
    first = middle + 1 + 6 * 8  # decades from 10^-6
    assert counts[0, [first, first + 1, -1]].tolist() == [2, 1, 1]
    assert counts[1, [middle - 1 - 6 * 8, middle, 0]].tolist() == [1, 2, 1]
    many = [packed(10_000_000 * counts), packed(counts)]
    total = unpacked([a + b for a, b in zip(*many, strict=True)], 2)
    np.testing.assert_array_equal(total, 10_000_001 * counts)


def test_an_owner_with_another_unit_reads_it_and_the_others_do_not() -> None:
    right, other = table(7.0, 0.5), table(7.2, 0.45, rows=150)
    assert said_by(right, other, table(6.8, 0.55)) == []
    wrong = table(7_000.0, 0.5)
    [said] = said_by(wrong, right, other)
    assert "leukocytes" in said
    assert "1e+03" in said
    assert said_by(right, wrong, other) == []  # half of the others' numbers are like its own


def test_a_category_that_is_swapped_is_named_where_shares_show_it() -> None:
    right, other = table(7, 0.9), table(7, 0.85, rows=150)
    [female, male] = said_by(table(7, 0.1), right, other)
    assert "'f'" in female
    assert "'m'" in male
    assert "90%" in female
    assert said_by(table(7, 0.5), right, other) == []


@pytest.mark.parametrize("shift", [100.0, -100.0])
def test_numbers_on_both_sides_of_zero(shift: float) -> None:
    [said] = said_by(table(7, 0.5, shift), table(7, 0.5), table(7, 0.5, rows=150))
    assert "shift" in said


def test_few_points_say_nothing() -> None:
    few = table(7_000.0, 0.5, rows=FEWEST - 1)
    assert said_by(few, table(7, 0.5)) == []
    assert said_by(table(7_000.0, 0.5)) == []  # and there is nobody else
