"""Label propagation as a whole, and what it stands on."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import entr

from fedul_flwr.data.class_labels import labels_from_scores
from fedul_flwr.propagation.central import label_propagation
from fedul_flwr.propagation.codes import neighbors_by_cosine
from fedul_flwr.propagation.solve import normalized_graph, one_hot, propagate, reweigh_by_prior
from tests.propagation.conftest import SEED, Floats, clusters
from tests.support.refusals import refuses

Digits = tuple[Floats, np.ndarray, np.ndarray]


def test_codes_agree_with_exact_cosines_on_digits(digits: Digits) -> None:
    features, classes, labels = digits
    unlabeled = labels == -1
    exact = label_propagation(features, labels, similarity="cosine")
    for seed in (bytes(32), SEED):
        found = label_propagation(features, labels, seed=seed)
        assert (found.labels == exact.labels)[unlabeled].mean() >= 0.98
        assert (found.labels == classes)[unlabeled].mean() > 0.9


@pytest.mark.parametrize(("num_classes", "class_scaling"), [(5, True), (7, False)])
def test_is_what_its_parts_are(num_classes: int, class_scaling: bool) -> None:
    # From features to labels with nothing of the package: dense matrices and the formulas.
    features, classes = clusters(300)
    labels = np.where(np.arange(300) % 15 == 0, classes, -1)
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines = units @ units.T
    np.fill_diagonal(cosines, 0)
    kth = np.sort(cosines, axis=1)[:, -10, None]
    chosen = np.where(cosines >= np.maximum(kth, 1e-12), cosines, 0) ** 3
    weights = chosen + chosen.T
    root = np.sqrt(weights.sum(axis=1))
    given = np.eye(num_classes)[classes] * (labels != -1)[:, None]
    inverse = np.linalg.inv(np.eye(300) - 0.99 * weights / np.outer(root, root))
    options: dict[str, Any] = {}  # by default
    if not class_scaling:
        options = {"class_scaling": False, "num_classes": num_classes}
    scores = inverse @ (given / given.sum(axis=0) if class_scaling else given)
    found = label_propagation(features, labels, similarity="cosine", **options)
    expected = np.where(labels != -1, labels, scores.argmax(axis=1))
    np.testing.assert_array_equal(found.labels, expected)
    doubt = entr(scores / scores.sum(axis=1, keepdims=True)).sum(axis=1) / np.log(num_classes)
    np.testing.assert_allclose(found.confidence, np.where(labels != -1, 1, 1 - doubt), atol=1e-5)


def test_reweighing_is_of_unlabeled_points_alone() -> None:
    # Labels of all classes alike, but the others are of two classes.
    features, classes = clusters(400)
    rows = np.flatnonzero((classes < 2) | (np.arange(400) % 8 == 0))
    features, labels = features[rows], np.where(rows % 8 == 0, classes[rows], -1)
    plain = label_propagation(features, labels, similarity="cosine")
    found = label_propagation(features, labels, similarity="cosine", reweigh=True)
    graph = normalized_graph(neighbors_by_cosine(features, 10))
    scores = propagate(graph, one_hot(labels, 5))[labels == -1]
    expected = labels_from_scores(reweigh_by_prior(scores))
    np.testing.assert_array_equal(found.labels[labels == -1], expected.labels)
    np.testing.assert_allclose(found.confidence[labels == -1], expected.confidence)
    assert np.abs(found.confidence - plain.confidence).max() > 0.01


@pytest.mark.parametrize("similarity", ["codes", "cosine"])
def test_no_labels_one_class_isolated_points_and_many_neighbors(similarity: str) -> None:
    features = clusters(60)[0]
    features[:3] = 0

    def run(labels: np.ndarray, **options: object):  # type: ignore[no-untyped-def]
        options.setdefault("num_bits", 512)
        return label_propagation(features, labels, similarity=similarity, **options)  # type: ignore[arg-type]

    none = run(np.full(60, -1))
    assert (none.labels == -1).all()
    assert not none.confidence.any()
    labels = np.full(60, -1)
    labels[[0, 20, 40]] = 0
    one = run(labels)
    assert one.labels[:3].tolist() == [0, -1, -1]
    assert set(one.labels) == {0, -1}
    assert (one.confidence == (one.labels == 0)).all()
    all_neighbors = run(labels, k=1000)
    assert (all_neighbors.labels == run(labels, k=59).labels).all()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"features": np.full((4, 2), np.nan)}, "array-wrong"),
        ({"labels": [0, 1, -1]}, "points-and-labels-differ"),
        ({"similarity": "euclidean"}, "argument-not-allowed"),
        ({"seed": b""}, "argument-not-allowed"),
    ],
)
def test_refusals(change: dict[str, object], code: str) -> None:
    arguments = {"features": np.eye(4)[:, :2] + 1, "labels": [0, 1, -1, -1], **change}
    call: Callable[..., object] = label_propagation
    with refuses(code):
        call(**arguments)


def test_stands_on_numpy_scipy_and_numba_alone() -> None:
    code = (
        "import sys, fedul_flwr.propagation.central as central\n"
        "assert 'numba' not in sys.modules\n"
        "central.label_propagation([[1.0, 2.0], [2.0, 1.0]], [0, -1], num_bits=64)\n"
        "found = {'torch', 'flwr', 'ray', 'sklearn', 'pandas'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
