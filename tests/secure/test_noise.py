"""Gaussian noise against other formulas and bounds, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fedul_flwr.secure.noise import gaussian_sigma
from tests.support.refusals import refuses


def delta_of(epsilon: float, mu: float) -> float:
    """δ(ε) of Balle and Wang (2018), theorem 8, as it stands there."""
    tail = np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    return float(norm.cdf(mu / 2 - epsilon / mu) - tail)


@pytest.mark.parametrize("delta", [1e-8, 1e-5, 0.01, 0.3, 0.99])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1, 8, 100, 700])
def test_noise_is_enough_and_no_less_would_be(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta, 3.0)
    assert delta_of(epsilon, 3 / sigma) == pytest.approx(delta, rel=1e-6)
    assert delta_of(epsilon, 3 / (0.999 * sigma)) > delta


def test_known_values() -> None:
    # Where ε vanishes, δ = 2 Φ(μ/2) - 1. With μ = 2: δ = 0.6826895, and σ = Δ/2.
    assert gaussian_sigma(1e-12, 0.6826894921370859, 1.0) == pytest.approx(0.5)
    # a = μ/2 - ε/μ = 0 at μ = √(2ε): with ε = 2, δ = 1/2 - e² Φ(-2) = 1/2 - 0.1681021 = 0.3318979.
    assert gaussian_sigma(2, 0.5 - math.exp(2) * norm.cdf(-2), 1.0) == pytest.approx(0.5)
    # Tails beyond the smallest float: ε = 10⁶ needs μ near √(2ε) = 1414, less 4.26 for δ = 10⁻⁵.
    assert 1 / gaussian_sigma(1e6, 1e-5, 1.0) == pytest.approx(math.sqrt(2e6) - 4.26, abs=0.3)


EPSILONS, DELTAS = st.floats(1e-3, 1e3), st.floats(1e-12, 0.9)


@given(epsilon=EPSILONS, delta=DELTAS, releases=st.integers(1, 3000))
def test_noise_grows_with_the_root_of_releases(epsilon: float, delta: float, releases: int) -> None:
    once = gaussian_sigma(epsilon, delta, 2.0)
    found = gaussian_sigma(epsilon, delta, 2.0, releases)
    assert found == pytest.approx(math.sqrt(releases) * once, rel=1e-15)
    assert gaussian_sigma(epsilon, delta, 2.0, 4) == 2 * once


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity", "releases"),
    [
        (0.0, 1e-5, 2.0, 1),
        (math.inf, 1e-5, 2.0, 1),
        (1.0, 0.0, 2.0, 1),
        (1.0, 1.0, 2.0, 1),
        (1.0, 1e-5, 0.0, 1),
        (1.0, 1e-5, math.inf, 1),
        (1.0, 1e-5, 2.0, 0),
    ],
)
def test_given_numbers_without_noise_then_they_are_refused(
    epsilon: float, delta: float, sensitivity: float, releases: int
) -> None:
    with refuses("argument-not-allowed"):
        gaussian_sigma(epsilon, delta, sensitivity, releases)
