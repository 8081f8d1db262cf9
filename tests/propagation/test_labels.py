"""Labels and confidences by hand; class priors that are found and that are not there."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedul_flwr.data.class_labels import labels_from_scores
from fedul_flwr.propagation.solve import one_hot, reweigh_by_prior
from tests.propagation.conftest import Floats


def test_labels_and_confidence_by_hand() -> None:
    # (1/2, 1/4, 1/4): entropy 3/2 log 2, confidence 1 - 1.5 log 2 / log 3 = 0.0536054.
    scores = np.array([[1, 2, 1], [0, 0, 7], [5, 5, 5], [0, 0, 0], [0, 3, 3]])
    found = labels_from_scores(scores)
    assert found.labels.tolist() == [1, 2, 0, -1, 1]
    sides = 1 - np.log(2) / np.log(3)
    np.testing.assert_allclose(found.confidence, [0.0536054, 1, 0, 0, sides], atol=1e-7)
    assert found.labels.dtype == np.int64
    # (1/4, 3/4): entropy 0.5623351, over log 2 = 0.6931472.
    assert labels_from_scores([[1, 3]]).confidence == pytest.approx([0.1887219], abs=1e-7)


def test_given_labels_stay() -> None:
    found = labels_from_scores([[1, 2], [2, 1], [0, 0], [0, 0]], [0, -1, 1, -1])
    assert found.labels.tolist() == [0, 0, 1, -1]
    assert found.confidence[[0, 2, 3]].tolist() == [1, 1, 0]


@hypothesis_settings(deadline=None)
@hypothesis_given(
    scores=arrays(np.float64, (6, 4), elements=st.floats(0, 1e300)), power=st.integers(-8, 8)
)
def test_confidences_are_shares_and_free_of_scale(scores: Floats, power: int) -> None:
    scores[scores < 1e-290] = 0
    found = labels_from_scores(scores)
    assert ((found.confidence >= 0) & (found.confidence <= 1)).all()
    assert ((found.labels == -1) == ~scores.any(axis=1)).all()
    other = labels_from_scores(scores * 2.0**power)
    assert (found.labels == other.labels).all()
    np.testing.assert_allclose(found.confidence, other.confidence, atol=1e-12)


def even_scores(classes: np.ndarray, num_classes: int = 10, seed: int = 0) -> Floats:
    """Scores that favor the class a little, as propagated ones do."""
    rng = np.random.default_rng(seed)
    logits = 0.5 * rng.normal(size=(len(classes), num_classes))
    logits[np.arange(len(classes)), classes] += 0.9
    return np.exp(logits)


def accuracy(scores: Floats, classes: np.ndarray) -> float:
    return float((labels_from_scores(scores).labels == classes).mean())


def test_a_client_of_two_classes_gains() -> None:
    classes = np.random.default_rng(1).choice([3, 8], 250)
    scores = even_scores(classes)
    assert accuracy(reweigh_by_prior(scores), classes) > accuracy(scores, classes) + 0.05


def test_a_client_of_all_classes_keeps_its_scores() -> None:
    classes = np.random.default_rng(1).integers(0, 10, 250)
    scores = even_scores(classes)
    np.testing.assert_allclose(reweigh_by_prior(scores), scores, rtol=1e-12)


@pytest.mark.parametrize("sharpness", [0.5, 2.0, 6.0])
def test_reweighing_takes_the_power_of_the_scores_for_posteriors(sharpness: float) -> None:
    # z (K pi)^(1/s) = (z^s K pi)^(1/s), and pi is estimated from z^s alone.
    scores = even_scores(np.random.default_rng(1).choice([3, 8], 100))
    posteriors = reweigh_by_prior(scores**sharpness, sharpness=1.0)
    found = reweigh_by_prior(scores, sharpness=sharpness)
    np.testing.assert_allclose(found, posteriors ** (1 / sharpness), rtol=1e-9)


def test_a_clear_prior_is_believed_as_it_is() -> None:
    # 90 sure points of one class of ten, and one imagined point of each: pi = 0.91 and 0.01. It
    # spreads over exp(0.5003) = 1.65 classes, less than 4 of 10. The sharpness is 6.
    found = reweigh_by_prior(np.tile(np.eye(10)[7], (90, 1)))
    np.testing.assert_allclose(found[:, 7], 9.1 ** (1 / 6), rtol=1e-12)


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("labels-wrong", lambda: one_hot([0, 3], 3)),
    ("labels-wrong", lambda: one_hot([-2, 0], 3)),
    ("labels-type", lambda: one_hot([0.5], 3)),
    ("labels-type", lambda: one_hot([[0, 1]], 3)),
    ("argument-not-allowed", lambda: one_hot([-1], 0)),
    ("array-wrong", lambda: labels_from_scores([[-1.0, 2]])),
    ("array-wrong", lambda: labels_from_scores([[np.nan, 1]])),
    ("array-wrong", lambda: labels_from_scores([1.0, 2])),
    ("array-wrong", lambda: reweigh_by_prior(np.empty((2, 0)))),
    ("argument-not-allowed", lambda: reweigh_by_prior([[1, 2]], sharpness=0)),
    ("argument-not-allowed", lambda: reweigh_by_prior([[1, 2]], sharpness=np.inf)),
]
