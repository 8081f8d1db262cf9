"""Class priors of sets from a model's posteriors, on synthetic data whose truth is known."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.set_priors import (
    POOR_FIT,
    Dirichlet,
    check_fit,
    learn_priors,
    log_likelihoods,
    misfits_in_words,
    set_likelihoods,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CENTERS = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])


def sample(priors: Floats, size: int, seed: int) -> tuple[Floats, Ints]:
    """Sets of ``size`` points of three normal distributions; p(x | k) and the set of each."""
    rng = np.random.default_rng(seed)
    sets = np.repeat(np.arange(len(priors)), size)
    classes = np.array([rng.choice(3, p=priors[m]) for m in sets])
    points = CENTERS[classes] + rng.normal(size=(len(sets), 2))
    squares = ((points[:, None] - CENTERS) ** 2).sum(axis=2)
    return np.exp(-squares / 2), sets


def test_one_step_by_hand() -> None:
    # Set 0: priors 1/2, 1/2. Point 0 has p(x | k) = 3, 1: shares 3/4, 1/4. Point 1 has 1, 4:
    # shares 1/5, 4/5. With 2 labels told as 1/4, 3/4: (0.95 + 0.5, 1.05 + 1.5) / 4.
    likelihoods = np.array([[3.0, 1.0], [1.0, 4.0], [1.0, 1.0]])
    told = Dirichlet(np.array([[0.25, 0.75], [0.9, 0.1]]), np.array([2.0, np.inf]))
    start = np.array([[0.5, 0.5], [0.2, 0.8]])
    found = learn_priors(likelihoods, np.array([0, 0, 1]), start, told)
    np.testing.assert_allclose(found[0], [1.45 / 4, 2.55 / 4])
    assert found[1].tolist() == [0.9, 0.1]


def test_the_test_prior_divides_the_posterior() -> None:
    posterior = np.array([[0.6, 0.4]])
    assert set_likelihoods(posterior, None) is posterior
    np.testing.assert_allclose(set_likelihoods(posterior, np.array([0.75, 0.25])), [[0.8, 1.6]])


def test_a_set_without_points_keeps_its_priors() -> None:
    told = Dirichlet(np.array([[0.3, 0.7], [0.5, 0.5]]), np.array([0.0, 0.0]))
    for empty in (0, 1):
        found = learn_priors(np.array([[1.0, 1.0]]), np.array([1 - empty]), told.means, told)
        np.testing.assert_allclose(found[empty], told.means[empty])
    assert log_likelihoods(np.array([[1.0, 0.0]]), np.array([0]), told.means)[1] == 0
    likelihoods, sets = certain([[2, 4], [2, 4], [0, 0]])
    uniform = np.full((3, 2), 0.5)
    # 2·(2 ln 2/3 + 4 ln 4/3) = 0.680 for two sets, whose median is that: 0.680 / 0.455.
    fit = check_fit(likelihoods, sets, Dirichlet.exact(uniform))
    assert fit.p_values[2] == 1
    assert fit.inflation == pytest.approx(0.680 / 0.455, rel=1e-3)


def test_a_row_that_is_known_to_be_uncertain_may_be_wrong_by_as_much() -> None:
    truth = np.full((5, 3), 1 / 3)
    likelihoods, sets = sample(truth, 1000, 5)
    told = truth.copy()
    told[2] = [0.5, 0.3, 0.2]
    worth = np.full(5, np.inf)
    assert check_fit(likelihoods, sets, Dirichlet(told, worth)).misfits[2]
    worth[2] = 20  # a standard error of 0.11
    assert not check_fit(likelihoods, sets, Dirichlet(told, worth)).misfits[2]
    # Of 60 labels 54 in a class of a third of the points: what is told is far from the data,
    # although the class priors that fit both best are close to the data.
    told[2], worth[2] = [0.9, 0.05, 0.05], 60
    misfits = check_fit(likelihoods, sets, Dirichlet(told, worth)).misfits
    assert np.flatnonzero(misfits).tolist() == [2]


def certain(counts: list[list[int]]) -> tuple[Floats, Ints]:
    """A model that is sure of every point: so many points of each class in each set."""
    classes = np.concatenate([np.repeat(np.arange(len(row)), row) for row in counts])
    return np.eye(len(counts[0]))[classes], np.repeat(np.arange(len(counts)), np.sum(counts, 1))


def test_p_values_by_hand() -> None:
    # Of 9 points 6, 3 and 0 where a third of each was told: 2·(6 ln 2 + 3 ln 1) = 12 ln 2. With two
    # degrees of freedom the p-value is exp(-6 ln 2) = 1/64. The other sets are as told.
    likelihoods, sets = certain([[3, 3, 3], [6, 3, 0], [3, 3, 3]])
    fit = check_fit(likelihoods, sets, Dirichlet.exact(np.full((3, 3), 1 / 3)))
    np.testing.assert_allclose(fit.p_values, [1, 1 / 64, 1])
    np.testing.assert_allclose(fit.shares[1], [2 / 3, 1 / 3, 0])
    assert fit.inflation == 1


def test_p_values_of_uncertain_priors_by_hand() -> None:
    # Told are halves, worth 12 labels, and no third class. Of 12 points 12 are of class 0. The row
    # between is (12 + 6, 6, 0) / 24 = (3/4, 1/4, 0), and the penalty per label
    # (ln 2/3 + ln 2)/2 = ln(4/3)/2. So 2·(12 ln 4/3 + 12 ln(4/3)/2) = 36 ln 4/3, whose p-value is
    # (3/4)^18.
    likelihoods, sets = certain([[12, 0, 0], [6, 6, 0], [6, 6, 0], [6, 6, 0], [3, 3, 6]])
    told = np.tile([0.5, 0.5, 0.0], (5, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a class that is told to be absent divides by nothing
        fit = check_fit(likelihoods, sets, Dirichlet(told, np.full(5, 12.0)))
    np.testing.assert_allclose(fit.p_values[:4], [0.75**18, 1, 1, 1], rtol=0.01)


def test_where_all_sets_misfit_as_much_chance_is_taken_to_be_larger() -> None:
    # Statistics are 12 ln 2 each, six times the median 2 ln 2 of chi squares of two degrees of
    # freedom. So the p-value is that of this median.
    likelihoods, sets = certain([[6, 3, 0], [3, 6, 0], [0, 3, 6]])
    fit = check_fit(likelihoods, sets, Dirichlet.exact(np.full((3, 3), 1 / 3)))
    assert fit.inflation == pytest.approx(6)
    np.testing.assert_allclose(fit.p_values, [0.5] * 3)


def test_if_most_priors_are_wrong_none_stands_out_and_the_owner_is_told_so() -> None:
    truth = np.tile([[0.8, 0.1, 0.1]], (6, 1))
    likelihoods, sets = sample(truth, 500, 7)
    told = Dirichlet.exact(np.roll(truth, 1, axis=1))
    fit = check_fit(likelihoods, sets, told)
    assert not fit.misfits.any()
    (line,) = misfits_in_words(fit, told, list("abcdef"), list("xyz"))
    assert "of most sets" in line
    assert f"{fit.inflation:.0f} times" in line
    just_good = replace(fit, inflation=POOR_FIT)
    assert list(misfits_in_words(just_good, told, list("abcdef"), list("xyz"))) == []
