"""Columns of one owner beside those of all others."""

import numpy as np
import pytest

from fedul_flwr.data.agreement import (
    BINS,
    FEWEST,
    category_pairs,
    column_counts,
    differences,
    in_place_of_rare,
    packed,
    packed_size,
    swapped,
    unpacked,
)
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.standardize import moments

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


PEOPLE = Columns((Column("sex", categories=("f", "m")), Column("age"), Column("height")))


def people(seed: int, *, is_swapped: bool = False, rows: int = 80, gap: float = 12) -> np.ndarray:
    """As many women as men; men are larger by ``gap`` cm."""
    rng = np.random.default_rng(seed)
    is_man = np.arange(rows) % 2
    height = rng.normal(165, 7, rows) + gap * is_man
    named = 1 - is_man if is_swapped else is_man
    columns = (1 - named, named, rng.normal(60, 9, rows), height)
    return np.column_stack(columns).astype(np.float64)


def extended(rows: np.ndarray) -> np.ndarray:
    """With products of pairs."""
    pairs = category_pairs(PEOPLE)
    return np.column_stack([rows, rows[:, pairs[:, 0]] * rows[:, pairs[:, 1]]])


def swap_said(own: np.ndarray, *others: np.ndarray) -> list[str]:
    every = np.concatenate([own, *others])
    mine, whole = (moments(extended(rows), np.arange(len(rows))) for rows in (own, every))
    return [*swapped(mine, len(own), whole, len(every), PEOPLE)]


def test_pairs_are_features_of_categories_and_numbers() -> None:
    assert category_pairs(PEOPLE).tolist() == [[0, 2], [0, 3], [1, 2], [1, 3]]
    assert category_pairs(None).shape == category_pairs(Columns((Column("x"),))).shape == (0, 2)
    many = Columns((Column("c", tuple(map(str, range(300)))), Column("x")))
    assert not len(category_pairs(many))


def test_a_swapped_category_as_frequent_as_the_other_is_named_by_what_goes_with_it() -> None:
    others = people(1), people(2)
    [said] = swap_said(people(0, is_swapped=True), *others)
    assert "'sex'" in said
    assert "'height'" in said
    assert swap_said(people(0), *others) == []
    # The other owners still see two of three, and so nothing.
    assert swap_said(others[0], people(0, is_swapped=True), others[1]) == []


def test_where_a_category_is_rare_no_product_has_a_number_of_its_rows() -> None:
    rows, pairs = people(0), category_pairs(PEOPLE)
    assert np.isnan(in_place_of_rare(rows, PEOPLE, pairs)).all()
    rows[:, 1] = np.arange(80) < FEWEST - 1  # nine men: the women's sums would tell theirs
    rows[:, 0] = 1 - rows[:, 1]
    means = in_place_of_rare(rows, PEOPLE, pairs)
    np.testing.assert_allclose(means, [rows[:, 2].mean(), rows[:, 3].mean()] * 2)
    rows[:, 1] = np.arange(80) < FEWEST
    rows[:, 0] = 1 - rows[:, 1]
    assert np.isnan(in_place_of_rare(rows, PEOPLE, pairs)).all()


def test_a_swapped_category_that_nothing_goes_with_is_not_seen() -> None:
    odd, others = people(0, is_swapped=True, gap=0), (people(1, gap=0), people(2, gap=0))
    assert swap_said(odd, *others) == []
    assert swap_said(people(0, is_swapped=True, rows=20), *others) == []  # too few
    constant = people(0)
    constant[:, 0] = 0
    constant[:, 1] = 1
    assert swap_said(constant, *others) == []
