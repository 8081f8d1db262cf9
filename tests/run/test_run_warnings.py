"""Warnings about class shares and one-class models: when they come, when not, what they say."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.run.warnings import (
    distance,
    one_class_warning,
    shares_warning,
    slow_evaluation,
    training_warnings,
)

LESIONS = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
MEDICAL = np.array([33, 51, 110, 12, 111, 670, 13])
"""Points by class, of which one has 67 %."""
UNIFORM = np.full(7, 1 / 7)


def counts(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def test_given_shares_then_their_distance_is_that_by_hand() -> None:
    # |0.5 - 0.25| + |0.3 - 0.25| + |0.2 - 0.5| = 0.6, half of it.
    assert distance(counts(5, 3, 2), np.array([0.25, 0.25, 0.5])) == pytest.approx(0.3)


def test_given_data_far_from_the_prior_then_the_largest_difference_is_said() -> None:
    parts = {"validation points": counts(2, 2, 2, 2, 2, 2, 2), "test points": MEDICAL}
    found = shares_warning(parts, UNIFORM, LESIONS, "do this")
    assert found == (
        "Class shares differ from the class priors that the model is trained for: the test points "
        "by 53% (total variation distance). Most of all, class 'nv' has 67% of the test points and "
        "a prior of 14%. The error over all points then depends mostly on the frequent classes: "
        "do this."
    )
    parts = {"validation points": MEDICAL, "test points": MEDICAL}
    both = str(shares_warning(parts, UNIFORM, LESIONS, ""))
    assert "the validation points by 53% and the test points by 53%" in both


def test_given_one_class_named_for_all_points_then_there_is_a_warning() -> None:
    matrix = np.zeros((7, 7), dtype=np.int64)
    matrix[:, 5] = MEDICAL
    matrix[4, 4], matrix[4, 5] = 11, 100  # 11 of 330 others are right
    found = one_class_warning(matrix, LESIONS, "The model of round 3", "test points")
    assert found is not None
    assert found.startswith(
        "The model of round 3 predicts class 'nv' for 99% of the test points (67% are of it), and "
        "3% of the points of other classes rightly:"
    )


def rounds(key: str, values: list[float | None]) -> list[dict[str, float | None]]:
    return [{"round": number, key: value} for number, value in enumerate(values, start=1)]


@pytest.mark.parametrize("key", ["loss", "update_norm"])
def test_given_one_round_without_training_then_it_is_named(key: str) -> None:
    assert set(training_warnings(rounds(key, [1.0, 0.0, 1.0]), "fedul")) == {key}
    assert "round 2:" in training_warnings(rounds(key, [1.0, 0.0, 1.0]), "fedul")[key]
    assert "all 3 rounds" in training_warnings(rounds(key, [0.0, 0.0, 0.0]), "fedul")[key]
    found = training_warnings(rounds(key, [1.0, 0.0, 0.0, 1.0]), "fedul")[key]
    assert "2 of 4 rounds (between 2 and 3)" in found


def test_given_no_confident_point_in_half_of_the_rounds_then_that_is_said() -> None:
    key = "confident_share"
    assert training_warnings(rounds(key, [0.0, 0.0, 0.3, 0.4, 0.5]), "fedul") == {}
    assert "2 of 4 rounds" in training_warnings(rounds(key, [0.0, 0.0, 0.3, 0.4]), "fedul")[key]
    # Rounds on labels alone have no such metric.
    assert training_warnings(rounds(key, [None, None, None, 0.4]), "fedul") == {}
    assert (
        "3 of 6 rounds"
        in training_warnings(rounds(key, [None, None, None, 0.0, 0.0, 0.0]), "fedul")[key]
    )


def test_evaluations_that_take_longer_than_training_are_said_with_a_remedy() -> None:
    def lines(evaluation: float, waiting: float) -> list[dict[str, float]]:
        seconds = {"seconds": 10.0 + waiting, "seconds_waiting": waiting}
        return [{**seconds, "seconds_evaluation": evaluation} for _ in range(4)]

    # 25 s beside 10 s of training: three rounds take longer than one evaluation.
    proposed = slow_evaluation(lines(25.0, 15.0))
    assert "evaluate-every = 3 " in proposed
    assert "waited 60 s" in proposed
    assert slow_evaluation(lines(9.0, 3.0)) == ""  # less than training
    assert slow_evaluation(lines(12.0, 2.0)) == ""  # 8 s in all
