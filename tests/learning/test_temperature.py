"""Temperatures: by hand, of logits whose temperature is known, and at the limits."""

import numpy as np
import pytest
from scipy.special import softmax

from fedul_flwr.run.evaluation import fit_temperature


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
