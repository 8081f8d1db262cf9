"""Class priors: Bayes' rule, expectation maximization and the mean over clients, by other means."""

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from fedul_flwr.config.base import checked_prior, in_order, parse_prior
from fedul_flwr.data.class_priors import (
    FLOOR,
    class_masses,
    estimate_prior,
    mean_prior,
    reweigh,
    uniform_prior,
)

Floats = NDArray[np.float64]
CENTERS = np.array([-2.0, 0.0, 2.5])
TRAINED, SHIFTED = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7])


def densities(x: Floats) -> Floats:
    """p(x | k) of three Gaussians on a line, ``(n, 3)``, without the common factor."""
    return np.exp(-0.5 * (x[:, None] - CENTERS) ** 2)


def bayes(x: Floats, prior: Floats) -> Floats:
    joint = densities(x) * prior
    return joint / joint.sum(axis=1, keepdims=True)


def draw(prior: Floats, n: int, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    """Points of the mixture with exactly these shares of the classes, and the classes."""
    rng = np.random.default_rng(seed)
    classes = np.repeat(np.arange(3), np.round(prior * n).astype(int))
    return CENTERS[classes] + rng.standard_normal(len(classes)), classes


def test_reweighing_is_bayes_rule() -> None:
    x = np.linspace(-5, 6, 40)
    found = reweigh(bayes(x, TRAINED), TRAINED, SHIFTED)
    np.testing.assert_allclose(found, bayes(x, SHIFTED), rtol=1e-12)


def test_the_shift_of_a_mixture_is_found() -> None:
    x, classes = draw(SHIFTED, 20_000)
    posterior = bayes(x, TRAINED)
    found = estimate_prior(posterior, TRAINED)
    np.testing.assert_allclose(found, SHIFTED, atol=0.01)
    # The mean of the posterior, one step, is far off: iterations are what finds it.
    assert np.abs(posterior.mean(axis=0) - SHIFTED).max() > 0.05
    better = reweigh(posterior, TRAINED, found).argmax(axis=1)
    assert (better != classes).mean() < 0.8 * (posterior.argmax(axis=1) != classes).mean()


def test_an_estimate_keeps_a_floor() -> None:
    sure = np.array([[1.0, 0.0, 0.0]] * 5)
    found = estimate_prior(sure, TRAINED, pseudo_points=0)
    assert found[0] > 0.999
    np.testing.assert_allclose(found[1:], FLOOR / 3, rtol=2 * FLOOR)
    assert found.sum() == pytest.approx(1)
    checked_prior(found)


def test_few_points_exclude_no_class() -> None:
    # Five points of the first class, and three imagined ones that are spread as in training.
    sure = np.array([[1.0, 0.0, 0.0]] * 5)
    np.testing.assert_allclose(estimate_prior(sure, TRAINED), (5 * np.eye(3)[0] + 3 * TRAINED) / 8)
    posterior = bayes(draw(SHIFTED, 20_000)[0], TRAINED)
    plain = estimate_prior(posterior, TRAINED, pseudo_points=0)
    np.testing.assert_allclose(estimate_prior(posterior, TRAINED), plain, atol=1e-3)


def test_mean_over_clients_by_hand() -> None:
    first = class_masses(np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([10, 30]))
    np.testing.assert_allclose(first, [8, 32])
    second = class_masses(np.array([[1.0, 0.0]]), np.array([60]))
    np.testing.assert_allclose(mean_prior([first, second]), [0.68, 0.32])
    found = mean_prior([np.array([3.0, 0.0])])
    np.testing.assert_allclose(found, [1, FLOOR / 2], rtol=2 * FLOOR)


def test_priors_as_text() -> None:
    assert parse_prior("0.2, 0.3,0.5") == [0.2, 0.3, 0.5]
    with pytest.raises(ValueError, match=r"^(?!.*').*numbers"):
        parse_prior("a,b")
    with pytest.raises(ValueError, match=r"'a', 'b' .*numbers"):
        parse_prior("0.5;0.5", ("a", "b"))


def test_given_names_then_priors_are_in_their_order() -> None:
    counts = pd.Series([9, 1], index=["sound", "ill"])  # as `value_counts` has them
    for values in (counts, dict(counts)):
        assert in_order(values, ["ill", "sound"]).tolist() == [1, 9]
        with pytest.raises(ValueError, match=r"sound, ill.*ill, well"):
            in_order(values, ["ill", "well"])
    for plain in ([9, 1], np.array([9, 1]), pd.Series([9, 1])):
        assert in_order(plain, ["ill", "sound"]) is plain


@pytest.mark.parametrize(
    "wrong", [[0.0, 1.0], [0.5, 0.6], [np.nan, 0.5], [[0.5, 0.5]], [1 / 3] * 3]
)
def test_priors_that_are_none_are_refused(wrong: list[float]) -> None:
    posterior, even = np.array([[0.5, 0.5]]), uniform_prior(2)
    with pytest.raises(ValueError, match=r"prior|\(1, 2\)|3 .* 2"):
        reweigh(posterior, even, wrong)
    with pytest.raises(ValueError, match=r"prior|\(1, 2\)"):
        estimate_prior(posterior, wrong)


@pytest.mark.parametrize("row", [[0.0, 0.0], [-0.1, 1.1], [np.nan, 0.5]])
def test_posteriors_and_masses_that_are_none_are_refused(row: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        estimate_prior(np.array([row]), uniform_prior(2))
    with pytest.raises(ValueError, match="masses"):
        mean_prior(np.array([row]))
