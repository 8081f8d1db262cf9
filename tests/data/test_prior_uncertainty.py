"""Uncertain class priors as Dirichlet distributions, calculated by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import dirichlet

from fedul_flwr.data.prior_uncertainty import Dirichlet


def test_counts_have_the_mean_and_concentration_of_the_posterior() -> None:
    found = Dirichlet.from_counts([[3, 1], [0, 0]])
    assert found.means.tolist() == [[3.5 / 5, 1.5 / 5], [0.5, 0.5]]
    assert found.concentrations.tolist() == [5.0, 1.0]
    np.testing.assert_allclose(found.means[0], dirichlet([3.5, 1.5]).mean())


def test_intervals_have_the_summed_variance_of_uniform_distributions() -> None:
    low, high = np.array([[0.1, 0.3, 0.3]]), np.array([[0.3, 0.4, 0.6]])
    found = Dirichlet.from_intervals(low, high)
    alpha = found.concentrations[0] * found.means[0]
    assert dirichlet(alpha).var().sum() == pytest.approx((0.2**2 + 0.1**2 + 0.3**2) / 12)


def test_an_interval_of_width_zero_is_exact() -> None:
    point = np.array([[0.25, 0.75]])
    found = Dirichlet.from_intervals(point, point)
    assert found.concentrations.tolist() == [np.inf]
    assert found.means.tolist() == point.tolist()


def test_intervals_that_exclude_nothing_are_worth_jeffreys_prior() -> None:
    # Variance 2/12; Σ t(1 − t) = 1/2; s = 3 − 1 = 2, above 2 · 1/2. Of ten classes: Σ = 0.9 after
    # normalising, variance 10/12, s = 0.08: below 10 · 1/2.
    assert Dirichlet.from_intervals(np.zeros((1, 2)), np.ones((1, 2))).concentrations[0] == (
        pytest.approx(2.0)
    )
    assert Dirichlet.from_intervals(np.zeros((1, 10)), np.ones((1, 10))).concentrations[0] == 5.0


def test_noise_counts_as_the_labels_that_are_as_uncertain() -> None:
    # Σ t(1 − t) = 0.42; 0.42 / 0.02 − 1 = 20 labels, of which 14 and 6, and 1/2 for each class.
    found = Dirichlet.from_noise(np.array([[0.7, 0.3]]), 0.02)
    np.testing.assert_allclose(found.means[0], [14.5 / 21, 6.5 / 21])
    assert found.concentrations[0] == pytest.approx(21)
    assert Dirichlet.from_noise(np.array([[1.0, 0.0], [0.5, 0.5]]), 0.02).means[0, 1] > 0


def test_no_noise_is_exact() -> None:
    priors = np.array([[0.7, 0.3]])
    found = Dirichlet.from_noise(priors, 0.0)
    assert found.means is priors
    assert found.concentrations.tolist() == [np.inf]
