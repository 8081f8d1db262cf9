"""Uncertain class priors as Dirichlet distributions, calculated by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import dirichlet

from fedul_flwr.data.prior_uncertainty import Dirichlet, effective_labels


def test_counts_have_the_mean_and_concentration_of_the_posterior() -> None:
    found = Dirichlet.from_counts([[3, 1], [0, 0]])
    assert found.means.tolist() == [[3.5 / 5, 1.5 / 5], [0.5, 0.5]]
    assert found.concentrations.tolist() == [5.0, 1.0]
    np.testing.assert_allclose(found.means[0], dirichlet([3.5, 1.5]).mean())


def test_the_variances_of_a_dirichlet_distribution_give_its_concentration() -> None:
    alpha = np.array([[3.0, 5.0, 2.0, 0.5], [40.0, 1.0, 7.0, 2.0]])
    means = alpha / alpha.sum(axis=1, keepdims=True)
    variances = np.array([dirichlet(row).var() for row in alpha])
    np.testing.assert_allclose(effective_labels(means, variances), [10.5, 50.0])


def test_errors_larger_than_any_labels_have_are_worth_none() -> None:
    assert effective_labels(np.array([[0.5, 0.5]]), np.array([[0.3, 0.3]])).tolist() == [0.0]


def test_intervals_vary_as_uniform_distributions() -> None:
    # Midpoints 0.2, 0.35, 0.45: (0.04 / 0.2 + 0.01 / 0.35 + 0.09 / 0.45) / 12 = 0.0357143;
    # 2 / 0.0357143 − 1 = 55.
    low, high = np.array([[0.1, 0.3, 0.3]]), np.array([[0.3, 0.4, 0.6]])
    assert Dirichlet.from_intervals(low, high).concentrations[0] == pytest.approx(55)


def test_an_interval_of_width_zero_is_exact() -> None:
    point = np.array([[0.25, 0.75]])
    found = Dirichlet.from_intervals(point, point)
    assert found.concentrations.tolist() == [np.inf]
    assert found.means.tolist() == point.tolist()


def test_intervals_that_exclude_nothing_are_worth_at_least_jeffreys_prior() -> None:
    # (1 + 1) / 0.5 / 12 = 1/3; 1 / (1/3) − 1 = 2, above 2 · 1/2.
    assert Dirichlet.from_intervals(np.zeros((1, 2)), np.ones((1, 2))).concentrations[0] == (
        pytest.approx(2.0)
    )
    # 10 · (1 / 0.1) / 12 = 8.33; 9 / 8.33 − 1 = 0.08, below 10 · 1/2.
    assert Dirichlet.from_intervals(np.zeros((1, 10)), np.ones((1, 10))).concentrations[0] == 5.0


def test_noise_counts_as_labels_with_jeffreys_prior() -> None:
    # 20 labels, of which 14 and 6, and 1/2 for each class.
    found = Dirichlet.from_noise(np.array([[0.7, 0.3]]), 20.0)
    np.testing.assert_allclose(found.means[0], [14.5 / 21, 6.5 / 21])
    assert found.concentrations[0] == pytest.approx(21)
    assert Dirichlet.from_noise(np.array([[1.0, 0.0]]), 20.0).means[0, 1] > 0
