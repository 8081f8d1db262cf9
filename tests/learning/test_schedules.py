"""Weights and thresholds that grow and step sizes that fall over the rounds."""

import math

import pytest

from fedul_flwr.learning.plan import cosine, plateau, ramp_up, signal_threshold


def test_a_ramp_by_hand() -> None:
    # t = .1: exp(-5·.81); t = .5: exp(-5·.25)
    assert ramp_up(1, 10) == pytest.approx(math.exp(-4.05))
    assert ramp_up(5, 10) == pytest.approx(math.exp(-1.25))
    assert [ramp_up(number, 10) for number in (10, 11, 99)] == [1.0, 1.0, 1.0]


def test_a_cosine_by_hand() -> None:
    # T = 4: angles 0, 45, 90 and 135 degrees; it would be 0 in round 5.
    root = math.sqrt(0.5)
    expected = [1, (1 + root) / 2, 0.5, (1 - root) / 2]
    assert [cosine(number, 4) for number in (1, 2, 3, 4)] == pytest.approx(expected)


def by_round(*losses: float, every: int = 1) -> dict[int, float]:
    return {every * number: loss for number, loss in enumerate(losses, start=1)}


def test_a_plateau_by_hand() -> None:
    # Patience 2: 3 and 4 are no lower than 3, so it is divided; then 5 and 3 are none either.
    # Then 2 is lower, and one loss that is no lower is not yet two.
    losses = [3.0, 3.0, 4.0, 5.0, 3.0, 2.0, 2.0]
    factors = [plateau(by_round(*losses[:count]), 2) for count in range(8)]
    assert factors == [1, 1, 1, 1 / 3, 1 / 3, 1 / 9, 1 / 9, 1 / 9]
    assert plateau(by_round(*losses, 2.5), 2) == 1 / 27


def test_a_plateau_counts_rounds_and_not_evaluations() -> None:
    # Patience 5, a loss every 2 rounds: lowest in round 2, then rounds 4, 6 and 8 make 2, 4 and 6.
    factors = [plateau(by_round(*[1.0] * count, every=2), 5) for count in range(1, 8)]
    assert factors == [1, 1, 1, 1 / 3, 1 / 3, 1 / 3, 1 / 9]
    # Ten rounds in one step are one division, not two.
    assert plateau(by_round(1.0, 1.0, every=10), 5) == 1 / 3


def test_thresholds_of_annealing_by_hand() -> None:
    # K = 10, halfway: 1/10 + 9/10·α for α = exp(-2.5) = .082085.
    assert signal_threshold(5, 10, 10) == pytest.approx(0.1738765, abs=1e-7)
    # Round 1 of 100, K = 2: (1 + exp(-4.95))/2.
    assert signal_threshold(1, 100, 2) == pytest.approx(0.50354170, abs=1e-8)
