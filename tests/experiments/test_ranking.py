"""Means over seeds, and the paired t-test: by hand, against SciPy, and in limit cases."""

import math

import pytest
from scipy.stats import ttest_rel

from fedul_flwr.experiments.statistics import Estimate, Ranking, paired_p_value, rank


def marked(ranked: dict[str, Ranking]) -> set[str]:
    return {name for name, ranking in ranked.items() if ranking.marked}


def test_given_three_pairs_then_the_p_value_is_that_of_a_calculation_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, standard deviation 1, so t = 2 / (1 / sqrt(3)) = sqrt(12).
    # With 2 degrees of freedom the two-sided p-value is 1 - t / sqrt(t^2 + 2).
    expected = 1 - math.sqrt(12 / 14)
    assert expected == pytest.approx(0.0742, abs=1e-4)
    assert paired_p_value([2, 4, 6], [1, 2, 3]) == pytest.approx(expected)


def test_given_equal_differences_then_the_p_value_is_its_limit() -> None:
    assert paired_p_value([3, 4, 5], [3, 4, 5]) == 1
    assert paired_p_value([4, 5, 6], [3, 4, 5]) == 0
    # Equal but for rounding (0.3 - 0.2 is not 0.2 - 0.1): SciPy's own limit.
    assert paired_p_value([0.3, 0.2], [0.2, 0.1]) < 1e-10


def test_given_five_seeds_then_the_interval_is_that_of_tables_of_student_t() -> None:
    # Mean 3, s = sqrt((4 + 1 + 0 + 1 + 4) / 4) = sqrt(2.5), and in tables of Student's t the 0.975
    # quantile of 4 degrees of freedom is 2.776.
    half = Estimate.of([1, 2, 3, 4, 5]).half_width
    assert half == pytest.approx(2.776 * math.sqrt(2.5 / 5), abs=1e-3)
    assert rank({"a": dict(enumerate([1.0, 2, 3, 4, 5]))})["a"].error.half_width == half


def test_given_one_seed_then_there_is_no_interval() -> None:
    assert Estimate.of([1.0]) == Estimate(1.0, None, 1, None)
    assert Estimate.of([]) == Estimate()
    assert Estimate.of([2.0, 2.0]).half_width == 0.0


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ({"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0, 1: 2.0}}, set()),  # two seeds are too few
        ({"a": {0: 1, 1: 2, 2: 1}, "b": {0: 1, 1: 2, 2: 1}, "c": {0: 2, 1: 3, 2: 2}}, {"a", "b"}),
        ({"a": {0: 1.0, 1: 2.0, 2: 1.0}, "b": {0: 2.0, 1: 3.0, 2: 2.0}}, {"a"}),  # always 1 more
        ({"a": {0: 1.0, 1: 2.0, 2: 1.0}, "b": {0: 2.0, 1: 2.0, 3: 1.5}}, set()),  # two in common
        ({"a": {0: 1.0, 1: 2.0, 2: 1.0}}, set()),  # nothing to compare with
        ({"a": {}, "b": {}}, set()),
    ],
)
def test_given_equal_differences_then_ties_with_the_lowest_error_alone_are_marked(
    errors: dict[str, dict[int, float]], expected: set[str]
) -> None:
    assert marked(rank(errors)) == expected


def test_given_a_run_that_the_test_does_not_tell_from_the_best_then_both_are_marked() -> None:
    errors = {"worse": (9.0, 9.3, 9.1), "best": (1.0, 1.5, 1.2), "close": (1.4, 1.3, 1.3)}
    ranked = rank({name: dict(enumerate(of_seeds)) for name, of_seeds in errors.items()})
    assert marked(ranked) == {"best", "close"}
    assert ranked["best"].p_value is None
    assert ranked["worse"].p_value == pytest.approx(ttest_rel([9, 9.3, 9.1], [1, 1.5, 1.2])[1])


def test_given_different_seeds_then_runs_are_tested_over_those_that_both_have() -> None:
    ranked = rank(
        {"a": {0: 1.0, 1: 1.2, 2: 1.1}, "some": {0: 2.0, 2: 2.3}, "one": {1: 5.0}, "none": {}}
    )
    assert ranked["some"].pairs == (0, 2)
    # Differences 1 and 1.2: t = 11 with one degree of freedom.
    assert ranked["some"].p_value == pytest.approx(1 - 2 / math.pi * math.atan(11))
    assert ranked["one"].p_value is None
    assert (ranked["none"].error.mean, ranked["none"].pairs) == (None, ())
    assert marked(ranked) == set()
