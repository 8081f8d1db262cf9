"""Vectors of words: numbers as words, sums of these, and masks over them."""

import math
from fractions import Fraction

import numpy as np
import pytest

from fedul_flwr.secure.words import (
    FIXED_DIGITS,
    Mask,
    Tail,
    add_masks,
    add_vectors,
    dequantize,
    fixed_numbers,
    fixed_words,
    quantize,
    step_size,
    two_part_numbers,
    two_part_words,
    whole_numbers,
    whole_words,
)
from tests.support.refusals import refuses


def test_given_numbers_then_words_count_steps_of_which_no_sum_overflows() -> None:
    rng = np.random.default_rng(0)
    # Three clients: levels floor((2^31 - 1) / 3) = 715827882, a step is 2 / 715827882.
    assert step_size(2.0, 3) == 2.0 / 715827882
    extremes = quantize(np.array([2.0, -2.0, 5.0, 0.0]), 2.0, 3, rng)
    assert extremes.view(np.int32).tolist() == [715827882, -715827882, 715827882, 0]
    whole = dequantize(np.sum([extremes] * 3, axis=0, dtype=np.uint32), 2.0, 3)
    assert whole.tolist() == [6.0, -6.0, 6.0, 0.0]


def test_given_a_number_between_two_steps_then_it_is_rounded_so_that_the_mean_is_right() -> None:
    levels = (2**31 - 1) // 1000
    quarter = np.full(100_000, 0.25 / levels)
    words = quantize(quarter, 1.0, 1000, np.random.default_rng(0))
    assert set(words.tolist()) == {0, 1}
    # Standard deviation of the mean: sqrt(0.25 * 0.75 / 100000) = 0.0014.
    assert abs(float(words.mean()) - 0.25) < 0.007


@pytest.mark.parametrize("number", [2**43, -(2**43)])
def test_given_a_whole_number_that_could_overflow_a_sum_then_it_is_refused(number: int) -> None:
    nearest = number - (1 if number > 0 else -1)
    assert whole_numbers(whole_words([nearest], 2), 2) == [nearest]
    with refuses("message-out-of-range"):
        whole_words([0, number], 2)


def test_given_a_mask_then_each_word_of_a_whole_number_is_uniform() -> None:
    """Carries do not show: of 2,000 numbers each value of a byte comes about equally often."""
    words, tail = np.zeros(4000, np.uint32), Tail(2000, 2)
    masks = [Mask(bytes([1]) * 32, added=True), Mask(bytes([2]) * 32, added=False)]
    add_masks(words, masks, tail)
    for word in words.reshape(-1, 2).T:
        counts = np.bincount(np.ascontiguousarray(word).view(np.uint8), minlength=256)
        assert ((counts - 31.25) ** 2 / 31.25).sum() < 400  # 255 degrees: above by chance 1e-8
    add_masks(words, [m._replace(added=not m.added) for m in masks], tail)
    assert not words.any()


def test_sums_in_fixed_point_are_exact_but_for_the_rounding_of_each_summand() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=2000) * 10.0 ** rng.integers(-10, 15, 2000) for _ in range(7)]
    vectors = [fixed_words(part) for part in parts]
    total = fixed_numbers(add_vectors(vectors, Tail(2000, FIXED_DIGITS)))
    exact = np.array([math.fsum(row) for row in np.stack(parts, axis=1)])
    bound = 7 * 2.0**-49 + np.abs(exact) * 2.0**-52
    assert (np.abs(total - exact) <= bound).all()
    # The same numbers as whole ones of four words.
    whole = whole_words([round(Fraction(float(n)) * 2**48) for n in parts[0]], FIXED_DIGITS)
    np.testing.assert_array_equal(vectors[0], whole)
    edges = [-0.5, 2.0**57, -(2.0**57), 2.0**16, -(2.0**16), -(2.0**-48), 0.0]
    assert fixed_numbers(fixed_words(np.array([*edges, -1e-18]))).tolist() == [*edges, 0.0]


@pytest.mark.parametrize("number", [np.nan, np.inf, -(2.0**58)])
def test_given_a_number_beyond_fixed_point_then_it_is_refused(number: float) -> None:
    with refuses("message-out-of-range"):
        fixed_words(np.array([number]))


def test_sums_of_numbers_in_two_parts_have_digits_that_one_part_has_no_room_for() -> None:
    rng = np.random.default_rng(0)
    high = rng.normal(size=(3, 400)) * 10.0 ** rng.integers(-6, 15, (3, 400))
    parts = np.stack([high, rng.random((3, 400)) * np.spacing(high) / 2], axis=-1)
    words = add_vectors([*map(two_part_words, parts)], Tail(400, FIXED_DIGITS))
    exact = [sum(map(Fraction, parts[:, at].ravel())) for at in range(400)]
    read = [Fraction(high) + Fraction(low) for high, low in two_part_numbers(words)]
    # Six roundings, by half a step at most.
    assert max(abs(a - b) for a, b in zip(exact, read, strict=True)) <= 3 * Fraction(1, 2**48)
    alone = fixed_words(high[0])  # one part is the number where it has room
    assert two_part_numbers(alone).sum(axis=1).tolist() == fixed_numbers(alone).tolist()
