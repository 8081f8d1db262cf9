"""Measures of predictions: by hand, as scikit-learn has them, and where they are not defined."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics

from fedul_flwr.run import measures as m


def ints(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def test_given_points_without_a_prediction_then_they_have_a_column_and_count_as_wrong() -> None:
    matrix = m.confusion(ints(0, 0, 1, 1), ints(0, -1, -1, 0), 2)
    np.testing.assert_array_equal(matrix, [[1, 0, 1], [1, 0, 1]])
    np.testing.assert_allclose(m.recalls(matrix), [50, 0])
    assert m.per_class(matrix)["precision"] == [50, None]  # one of two called 0; none called 1


def test_given_a_class_without_points_then_its_recall_is_undefined_and_in_no_mean() -> None:
    matrix = m.confusion(ints(0, 0, 2, 2), ints(0, 0, 2, 1), 4)
    found = m.per_class(matrix)
    assert found["recall"] == [100, None, 50, None]
    assert found["precision"] == [100, 0, 100, None]
    assert found["balanced_accuracy"] == 75
    assert m.balanced_accuracy(np.zeros((3, 3), dtype=np.int64)) is None


def test_given_class_priors_then_the_error_is_the_weighted_mean_of_classes() -> None:
    # Of 90 points of class 0 a tenth is wrong, of 10 of class 1 eight tenths.
    matrix = np.array([[81, 9, 0], [8, 2, 0], [0, 0, 0]])
    assert m.prior_error(matrix, np.array([0.9, 0.1, 0.0])) == pytest.approx(0.9 * 10 + 0.1 * 80)
    assert m.prior_error(matrix, np.array([0.5, 0.25, 0.25])) == pytest.approx(
        (0.5 * 10 + 0.25 * 80) / 0.75  # class 2 has no points
    )
    uniform = np.full(3, 1 / 3)
    balanced = m.balanced_accuracy(matrix)
    assert balanced is not None
    assert m.prior_error(matrix, uniform) == pytest.approx(100 - balanced)
    assert m.prior_error(np.zeros((3, 3), dtype=np.int64), uniform) is None


def test_given_three_classes_then_auc_is_the_mean_of_each_against_the_rest() -> None:
    probabilities = np.array([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4], [0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    # Class 0 (0.6, 0.5) against 0.7, 0.1: 2 of 4 pairs. Class 1 (0.2) against 0.3, 0.1 and an equal
    # 0.2: 1.5 of 3. Class 2 (0.7) against three smaller ones: 3 of 3.
    assert m.auc(probabilities, ints(0, 0, 1, 2)) == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)


def test_given_a_class_that_does_not_occur_then_auc_leaves_it_out() -> None:
    probabilities = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.7, 0.1]])
    assert m.auc(probabilities, ints(0, 0, 1)) == pytest.approx(1.0)  # of 0 and 1
    assert m.auc(probabilities, ints(1, 1, 1)) is None  # there is no rest


def test_given_four_points_then_ece_is_that_by_hand() -> None:
    # 15 bins: 0.95 and 0.97 lie in (14/15, 1], one of them right: |0.5 - 0.96| = 0.46.
    # 0.62 lies in (9/15, 10/15], right: 0.38. 0.51 in (7/15, 8/15], wrong: 0.51.
    bins = m.reliability(np.array([0.95, 0.97, 0.62, 0.51]), np.array([True, False, True, False]))
    assert bins["points"][[14, 9, 7]].tolist() == [2, 1, 1]
    assert bins["points"].sum() == 4
    assert bins["accuracy"][[14, 9, 7]].tolist() == [50, 100, 0]
    np.testing.assert_allclose(bins["confidence"][[14, 9, 7]], [96, 62, 51])
    expected = 100 * (2 * 0.46 + 0.38 + 0.51) / 4
    assert m.calibration_error(bins) == pytest.approx(expected)


@pytest.mark.parametrize(("num_classes", "points"), [(2, 50), (10, 400)])
def test_given_random_predictions_then_as_in_scikit_learn(num_classes: int, points: int) -> None:
    rng = np.random.default_rng(num_classes)
    labels = np.concatenate([np.arange(num_classes), rng.integers(0, num_classes, points)])
    probabilities = rng.dirichlet(np.ones(num_classes), len(labels))
    probabilities[np.arange(len(labels)), labels] += rng.uniform(0, 0.5, len(labels))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    guess = probabilities.argmax(axis=1)
    found = m.measures(probabilities, labels)
    np.testing.assert_array_equal(found["confusion"], metrics.confusion_matrix(labels, guess))
    scores = {"average": None, "labels": np.arange(num_classes), "zero_division": np.nan}
    recall = 100 * np.asarray(metrics.recall_score(labels, guess, **scores))
    precision = 100 * np.asarray(metrics.precision_score(labels, guess, **scores))
    np.testing.assert_allclose(np.array(found["recall"], dtype=float), recall)
    np.testing.assert_allclose(np.array(found["precision"], dtype=float), precision)
    assert found["error"] == pytest.approx(100 * (1 - metrics.accuracy_score(labels, guess)))
    balanced = 100 * metrics.balanced_accuracy_score(labels, guess)
    assert found["balanced_accuracy"] == pytest.approx(balanced)
    if num_classes == 2:
        assert found["auc"] == pytest.approx(metrics.roc_auc_score(labels, probabilities[:, 1]))
    else:
        ovr = metrics.roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
        assert found["auc"] == pytest.approx(ovr)
    assert found["nll"] == pytest.approx(metrics.log_loss(labels, probabilities))
    one_hot = np.eye(num_classes)[labels]
    assert found["brier"] == pytest.approx(((probabilities - one_hot) ** 2).sum(axis=1).mean())
