"""Means over seeds, and the paired t-test: by hand, against SciPy, and in limit cases."""

import math

import pandas as pd
import pytest
from scipy.stats import ttest_rel

from fedul_flwr.experiments.statistics import estimates, paired_p_value, rank


def by_seed(errors: dict[str, dict[int, float]]) -> pd.DataFrame:
    seeds = sorted({seed for of in errors.values() for seed in of})
    return pd.DataFrame.from_dict(errors, orient="index", columns=seeds, dtype=float)


def marked(ranked: pd.DataFrame) -> set[str]:
    return {*map(str, ranked.index[ranked["marked"]])}


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
    ranked = rank(by_seed({"a": dict(enumerate([1.0, 2, 3, 4, 5]))}))
    assert ranked.at["a", "half_width"] == pytest.approx(2.776 * math.sqrt(2.5 / 5), abs=1e-3)


def test_given_one_seed_then_there_is_no_interval() -> None:
    found = estimates(by_seed({"one": {0: 1.0}, "none": {}, "equal": {0: 2.0, 1: 2.0}}))
    assert found["mean"].fillna(-1).tolist() == [1.0, -1, 2.0]
    assert found["half_width"].fillna(-1).tolist() == [-1, -1, 0.0]
    assert found["seeds"].tolist() == [1, 0, 2]


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
    assert marked(rank(by_seed(errors))) == expected


def test_given_a_run_that_the_test_does_not_tell_from_the_best_then_both_are_marked() -> None:
    errors = {"worse": (9.0, 9.3, 9.1), "best": (1.0, 1.5, 1.2), "close": (1.4, 1.3, 1.3)}
    ranked = rank(by_seed({name: dict(enumerate(of_seeds)) for name, of_seeds in errors.items()}))
    assert marked(ranked) == {"best", "close"}
    assert math.isnan(ranked["p_value"]["best"])
    assert ranked["p_value"]["worse"] == pytest.approx(ttest_rel([9, 9.3, 9.1], [1, 1.5, 1.2])[1])


def test_given_different_seeds_then_runs_are_tested_over_those_that_both_have() -> None:
    errors = {"a": {0: 1.0, 1: 1.2, 2: 1.1}, "some": {0: 2.0, 2: 2.3}, "one": {1: 5.0}, "none": {}}
    ranked = rank(by_seed(errors))
    assert ranked["pairs"].to_dict() == {"a": 3, "some": 2, "one": 1, "none": 0}
    # Differences 1 and 1.2: t = 11 with one degree of freedom.
    p_values = ranked["p_value"].dropna().to_dict()
    assert p_values == {"some": pytest.approx(1 - 2 / math.pi * math.atan(11))}
    assert math.isnan(ranked["mean"]["none"])
    assert marked(ranked) == set()
