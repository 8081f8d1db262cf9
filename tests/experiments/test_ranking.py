"""The test over seeds, against SciPy, by hand, and where the statistic has no value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from fedul_flwr.experiments.ranking import Standing, half_width, paired_p_value, rank


def marked(standings: dict[str, Standing]) -> set[str]:
    return {name for name, standing in standings.items() if standing.marked}


def test_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, standard deviation 1, so t = 2 / (1 / sqrt(3)) = sqrt(12).
    # With 2 degrees of freedom the two-sided p-value is 1 - t / sqrt(t^2 + 2).
    expected = 1 - math.sqrt(12 / 14)
    assert expected == pytest.approx(0.0742, abs=1e-4)
    assert paired_p_value([2, 4, 6], [1, 2, 3]) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_as_scipy(seed: int) -> None:
    first, second = np.random.default_rng(seed).normal(5, 1, (2, 4 + seed))
    expected = float(ttest_rel(first, second).pvalue)
    assert paired_p_value(list(first), list(second)) == pytest.approx(expected)


def test_differences_without_variance() -> None:
    assert paired_p_value([3, 4, 5], [3, 4, 5]) == 1
    assert paired_p_value([4, 5, 6], [3, 4, 5]) == 0
    # Equal but for rounding (0.3 - 0.2 is not 0.2 - 0.1): SciPy's own limit.
    assert paired_p_value([0.3, 0.2], [0.2, 0.1]) < 1e-10


def test_mean_and_sample_standard_deviation() -> None:
    standing = rank({"a": {0: 1.0, 1: 2.0, 2: 6.0}})["a"]
    # Deviations from 3 are -2, -1, 3: sqrt((4 + 1 + 9) / 2).
    assert (standing.mean, standing.std) == (3.0, pytest.approx(math.sqrt(7)))
    assert (standing.best, standing.marked, standing.p_value) == (True, True, None)


def test_half_of_the_confidence_interval_of_five_seeds() -> None:
    # Mean 3, s = sqrt((4 + 1 + 0 + 1 + 4) / 4) = sqrt(2.5), and in tables of Student's t the 0.975
    # quantile of 4 degrees of freedom is 2.776.
    assert half_width([1, 2, 3, 4, 5]) == pytest.approx(2.776 * math.sqrt(2.5 / 5), abs=1e-3)
    assert rank({"a": dict(enumerate([1.0, 2, 3, 4, 5]))})["a"].half_width == half_width(
        range(1, 6)
    )


def test_one_seed_has_no_confidence_interval() -> None:
    assert half_width([1.0]) is None
    assert half_width([2.0, 2.0]) == 0.0
    assert rank({"a": {0: 1.0}, "b": {}})["a"].half_width is None


def test_what_the_test_does_not_tell_apart_is_marked() -> None:
    standings = rank(
        {
            "worse": {0: 9.0, 1: 9.3, 2: 9.1},
            "best": {0: 1.0, 1: 1.5, 2: 1.2},
            "close": {0: 1.4, 1: 1.3, 2: 1.3},
        }
    )
    assert marked(standings) == {"best", "close"}
    assert standings["best"].p_value is None
    assert standings["worse"].p_value == pytest.approx(ttest_rel([9, 9.3, 9.1], [1, 1.5, 1.2])[1])


def test_one_seed_marks_the_lowest_alone() -> None:
    standings = rank({"a": {0: 1.0}, "b": {0: 1.001}})
    assert marked(standings) == {"a"}
    assert {s.p_value for s in standings.values()} == {None}
    assert {s.std for s in standings.values()} == {None}


def test_equals_are_all_marked() -> None:
    assert marked(rank({"a": {0: 1.0}, "b": {0: 1.0}, "c": {0: 2.0}})) == {"a", "b"}
    assert marked(rank({"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0, 1: 2.0}})) == {"a", "b"}


def test_a_constant_difference_is_a_difference() -> None:
    assert marked(rank({"a": {0: 1.0, 1: 2.0}, "b": {0: 2.0, 1: 3.0}})) == {"a"}


def test_runs_are_tested_over_the_seeds_that_both_have() -> None:
    standings = rank(
        {
            "a": {0: 1.0, 1: 1.2, 2: 1.1},
            "some": {0: 2.0, 2: 2.3},
            "one": {1: 5.0},
            "none": {},
        }
    )
    assert standings["some"].pairs == (0, 2)
    # Differences 1 and 1.2: t = 11 with one degree of freedom.
    assert standings["some"].p_value == pytest.approx(1 - 2 / math.pi * math.atan(11))
    assert standings["one"].p_value is None
    assert (standings["none"].mean, standings["none"].pairs) == (None, ())
    assert marked(standings) == {"a", "some"}


def test_nothing_known() -> None:
    assert marked(rank({"a": {}, "b": {}})) == set()
