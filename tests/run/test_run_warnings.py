"""Warnings about class shares and one-class models: when they come, when not, what they say."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.run.scores import (
    distance,
    is_far,
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


def test_given_samples_of_the_prior_then_none_is_far_and_of_another_even_few_points_are() -> None:
    rng = np.random.default_rng(0)
    prior = MEDICAL / MEDICAL.sum()
    for points in (30, 1_000):
        samples = rng.multinomial(points, prior, 50)
        assert sum(is_far(sample, prior) for sample in samples) <= 1  # one in a thousand expected
        assert sum(is_far(sample, UNIFORM) for sample in samples) >= 48


def test_given_many_points_then_shares_that_differ_little_are_not_far() -> None:
    assert not is_far(counts(5_900, 4_100), np.array([0.5, 0.5]))  # 9 %, and no chance
    assert is_far(counts(6_100, 3_900), np.array([0.5, 0.5]))


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


def test_given_data_as_the_prior_or_no_data_then_there_is_no_warning() -> None:
    parts = {"test points": MEDICAL, "validation points": counts(0, 0, 0, 0, 0, 0, 0)}
    assert shares_warning(parts, MEDICAL / MEDICAL.sum(), LESIONS, "") is None


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


def test_given_a_frequent_class_and_a_model_that_knows_the_others_then_there_is_none() -> None:
    assert one_class_warning(np.diag([97, 2, 1]), LESIONS, "", "") is None
    half = np.array([[97, 0, 0], [1, 1, 0], [1, 0, 0]])
    assert one_class_warning(half, LESIONS, "", "") is None  # one of three others is right
    assert one_class_warning(np.array([[97, 0], [3, 0]]), LESIONS, "", "") is not None
    assert one_class_warning(np.array([[94, 6], [50, 50]]), LESIONS, "", "") is None


def rounds(key: str, values: list[float | None]) -> list[dict[str, float | None]]:
    return [{"round": number, key: value} for number, value in enumerate(values, start=1)]


@pytest.mark.parametrize("key", ["loss", "update_norm"])
def test_given_one_round_without_training_then_it_is_named(key: str) -> None:
    assert set(training_warnings(rounds(key, [1.0, 0.0, 1.0]))) == {key}
    assert "round 2:" in training_warnings(rounds(key, [1.0, 0.0, 1.0]))[key]
    assert "all 3 rounds" in training_warnings(rounds(key, [0.0, 0.0, 0.0]))[key]
    found = training_warnings(rounds(key, [1.0, 0.0, 0.0, 1.0]))[key]
    assert "2 of 4 rounds (between 2 and 3)" in found


def test_given_no_confident_point_in_half_of_the_rounds_then_that_is_said() -> None:
    key = "confident_share"
    assert training_warnings(rounds(key, [0.0, 0.0, 0.3, 0.4, 0.5])) == {}
    assert "2 of 4 rounds" in training_warnings(rounds(key, [0.0, 0.0, 0.3, 0.4]))[key]
    # Rounds on labels alone have no such metric.
    assert training_warnings(rounds(key, [None, None, None, 0.4])) == {}
    assert "3 of 6 rounds" in training_warnings(rounds(key, [None, None, None, 0.0, 0.0, 0.0]))[key]


def test_of_a_method_of_ones_own_it_is_not_said_that_no_point_reached_the_threshold() -> None:
    zero = rounds("confident_share", [0.0, 0.0])
    assert "does not count them" in training_warnings(zero, built_in=False)["confident_share"]
    assert "does not count them" not in training_warnings(zero)["confident_share"]


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
