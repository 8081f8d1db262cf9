"""Temperatures and prediction sets: by hand, where they are known, and at the limits."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from fedul_flwr.learning.calibration import (
    MARGINS,
    TEMPERATURES,
    coverage_by_margin,
    fit_temperature,
    margins_for,
    matching_temperature,
    near_the_top,
    prediction_sets,
    sure_by_temperature,
)


def test_given_equal_logits_then_the_temperature_is_that_by_hand() -> None:
    # p(0) = 1 / (1 + exp(-2 / T)) at all four points, of which three are of class 0. With one
    # point spread over both classes it is to be (3 + 1/2) / 5 = 0.7: 2 / T = log(0.7 / 0.3).
    logits = np.array([[2.0, 0.0]] * 4)
    found = fit_temperature(logits, np.array([0, 0, 1, 0]))
    assert found == pytest.approx(2 / np.log(7 / 3), rel=1e-4)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_given_labels_drawn_at_a_temperature_then_it_is_found(temperature: float) -> None:
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((20_000, 5))
    chances = softmax(logits / temperature, axis=1).cumsum(axis=1)
    labels = (rng.random((20_000, 1)) > chances).sum(axis=1)
    assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=0.05)


def test_given_labels_that_are_all_right_then_probabilities_do_not_become_certain() -> None:
    logits, labels = np.array([[4.0, 0.0], [0.0, 4.0]]), np.array([0, 1])
    confidence = softmax(logits / fit_temperature(logits, labels), axis=1).max()
    assert confidence == pytest.approx(2.5 / 3, rel=1e-4)  # (2 + 1/2) / 3


def test_a_model_is_as_sure_on_average_as_it_is_right() -> None:
    rng = np.random.default_rng(0)
    logits = 7 * rng.normal(size=(500, 4))
    sure = sure_by_temperature(logits)
    for accuracy in (0.5, 0.7, 0.9):
        scaled = softmax(logits / matching_temperature(sure, 500, accuracy), axis=1)
        assert scaled.max(axis=1).mean() == pytest.approx(accuracy, abs=0.003)
    assert matching_temperature(sure, 500, 0.1) == pytest.approx(
        TEMPERATURES[-1]
    )  # never so unsure


def test_sets_have_the_class_of_as_many_points_as_wanted() -> None:
    """Of labels, one-hot shares, coverage is a count."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=3_000)
    logits = (
        2 * rng.normal(size=(3_000, 3))
        + np.array([1.0, 2.0, 4.0])[labels, None] * (np.eye(3)[labels])
    )
    for shares, slack in ((np.eye(3)[labels], 0.01), (_of_sets(labels, 50), 0.06)):
        gram, said = shares.T @ shares, shares.T @ np.eye(3)[logits.argmax(axis=1)]
        coverage = coverage_by_margin(gram, said, near_the_top(shares, logits))
        assert (np.diff(coverage, axis=1) >= 0).all()
        sets = prediction_sets(logits, margins_for(coverage, 0.95))
        assert sets[np.arange(3_000), logits.argmax(axis=1)].all()  # never empty
        for k in range(2):
            assert sets[labels == k, k].mean() == pytest.approx(0.95, abs=slack)
        alone = (logits.argmax(axis=1) == labels)[labels == 2].mean()  # more than is wanted
        assert sets[labels == 2, 2].mean() == pytest.approx(max(alone, 0.95), abs=slack)


def _of_sets(labels: Any, size: int) -> Any:
    """Class shares of sets into which points are sorted, mostly by their class."""
    rng = np.random.default_rng(1)
    order = np.argsort(labels + 0.4 * rng.normal(size=len(labels)))
    shares = np.empty((len(labels), 3))
    for part in np.array_split(order, len(labels) // size):
        shares[part] = np.bincount(labels[part], minlength=3) / len(part)
    return shares


@pytest.mark.parametrize(("labels", "margin"), [(8, np.inf), (10, 0.0)])
def test_a_class_of_few_points_is_in_every_set(labels: int, margin: float) -> None:
    """All n points right are a coverage of n / (n + 1): 8/9 is below 0.9, and 10/11 above."""
    shares = np.eye(2)[[0] * labels + [1] * 100]
    gram = shares.T @ shares
    coverage = coverage_by_margin(gram, gram, near_the_top(shares, 5 * shares))
    assert margins_for(coverage, 0.9).tolist() == [margin, 0.0]


def test_a_class_without_points_is_in_no_set_but_where_it_is_predicted() -> None:
    shares, logits = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), np.eye(3)[:2]
    gram, said = shares.T @ shares, shares.T @ np.eye(3)[logits.argmax(axis=1)]
    coverage = coverage_by_margin(gram, said, near_the_top(shares, logits))
    assert (coverage[2] == 1).all()
    assert margins_for(np.zeros((1, 1 + len(MARGINS))), 0.9)[0] == np.inf
