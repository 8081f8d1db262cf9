"""Assignment of a set's points to classes: by hand, against all assignments, and at its ends."""

from itertools import permutations

import numpy as np
import pytest

from fedul_flwr.arrays import Floats
from fedul_flwr.learning.proportions import (
    EXACT_UP_TO,
    assign_set,
    assign_sets,
    exact_assignment,
    largest_remainders,
    sinkhorn_plan,
)


def log_probabilities(n: int, num_classes: int, seed: int = 0) -> Floats:
    draws = np.random.default_rng(seed).dirichlet(np.ones(num_classes), n)
    log_p: Floats = np.log(draws + 1e-12)
    return log_p


@pytest.mark.parametrize(
    ("shares", "size", "counts"),
    [
        # 3.5, 2.1, 1.4: one point is left, and .5 is the largest remainder.
        ([0.5, 0.3, 0.2], 7, [4, 2, 1]),
        # 1/3 each of 4 points: the first class at a tie.
        ([1 / 3, 1 / 3, 1 / 3], 4, [2, 1, 1]),
        # 1.6, 1.6, .8: two are left, and the remainders are .6, .6, .8.
        ([0.4, 0.4, 0.2], 4, [2, 1, 1]),
        # 3, 3, 4 exactly, though 10 · 0.3 may be a little less than 3 in floating point.
        ([0.1 * 3, 0.3, 0.4], 10, [3, 3, 4]),
        ([1.0, 0.0], 5, [5, 0]),
    ],
)
def test_counts_by_hand(shares: list[float], size: int, counts: list[int]) -> None:
    assert largest_remainders(np.array(shares), size).tolist() == counts


def test_no_other_assignment_with_these_counts_is_more_likely() -> None:
    log_p, counts = log_probabilities(6, 3), np.array([3, 1, 2])
    found = exact_assignment(log_p, counts)
    assert np.bincount(found, minlength=3).tolist() == counts.tolist()
    rows = np.arange(6)
    best = max(log_p[rows, list(p)].sum() for p in set(permutations([0, 0, 0, 1, 2, 2])))
    assert log_p[rows, found].sum() == pytest.approx(best)


def test_the_plan_has_rows_of_one_and_columns_of_the_counts() -> None:
    log_p, counts = log_probabilities(300, 5), np.array([150.0, 90.0, 45.0, 15.0, 0.0])
    plan = sinkhorn_plan(log_p, counts)
    np.testing.assert_allclose(plan.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(plan.sum(axis=0), counts, atol=3e-4)
    # It is the predictions with every column scaled: log-odds between two points do not change.
    odds = np.log(plan[:, :4]) - log_p[:, :4]
    np.testing.assert_allclose(odds[:, 1] - odds[:, 0], odds[0, 1] - odds[0, 0], atol=1e-9)


@pytest.mark.parametrize("size", [5, EXACT_UP_TO, EXACT_UP_TO + 1])
def test_a_set_of_one_class_has_that_class(size: int) -> None:
    found = assign_set(log_probabilities(size, 3), np.array([0.0, 1.0, 0.0]))
    assert found.tolist() == [1] * size


def test_one_set_of_each_class_is_supervised() -> None:
    sets = np.array([2, 0, 1, 2, 0])
    assert (assign_sets(log_probabilities(5, 3), sets, np.eye(3)) == sets).all()


def test_sure_predictions_in_the_shares_stay_on_both_sides_of_the_exact_sizes() -> None:
    for size in (200, 400):
        classes = np.repeat([0, 1], [size // 4, 3 * size // 4])
        log_p = np.log(np.where(np.eye(2)[classes] > 0, 0.99, 0.01))
        assert (assign_set(log_p, np.array([0.25, 0.75])) == classes).all()


def test_each_set_has_its_own_shares() -> None:
    log_p = np.log(np.full((8, 2), 0.5))
    sets = np.array([0, 1] * 4)
    found = assign_sets(log_p, sets, np.array([[0.25, 0.75], [1.0, 0.0]]))
    assert np.bincount(found[sets == 0], minlength=2).tolist() == [1, 3]
    assert found[sets == 1].tolist() == [0] * 4
