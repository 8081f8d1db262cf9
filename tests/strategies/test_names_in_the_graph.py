"""Names of classes as labeled points of the graph, after ZLaP; labels without any label."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fedul_flwr.data.run_files.label_files import NETWORK, XCLP
from fedul_flwr.propagation.solve import (
    nearest_names,
    normalized_graph,
    propagation_columns,
    with_names,
)
from tests.support.refusals import refuses
from tests.support.runs import summary, train
from tests.support.settings import Settings

NAMES: dict[str, Any] = {
    **{"method": "xclp-predict", "features": "tests.support.made_encoder:of_images"},
    **{"model": "linear", "start_from": "tests.support.made_encoder:of_names"},
    **{"labels.total": 0, "xclp.alpha": 0.9, "xclp-predict.features": "model"},
    **{"xclp-predict.nearest-names": 3, "xclp.secure": "plaintext"},
}


def test_scores_are_the_authors() -> None:
    """Two matrices of neighbors, side by side; cosines of names to a power; W + its transpose."""
    rng = np.random.default_rng(0)
    points, names, k, gamma, alpha = rng.random((30, 5)), rng.random((4, 5)), 3, 5.0, 0.3
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    texts = names / np.linalg.norm(names, axis=1, keepdims=True)
    graph = np.zeros((34, 34))
    for i, unit in enumerate(units):
        others = units @ unit
        others[i] = -1
        for j in np.argsort(-others)[:k]:
            graph[4 + i, 4 + j] = others[j]
        to_texts = texts @ unit
        for j in np.argsort(-to_texts)[:2]:
            graph[4 + i, j] = to_texts[j] ** gamma
    graph += graph.T
    root = np.sqrt(graph.sum(axis=1))
    scores = np.linalg.inv(np.eye(34) - alpha * graph / np.outer(root, root))[4:, :4]
    cosines = units @ units.T - 2 * np.eye(30)
    order = np.argsort(-cosines, axis=1)[:, :k]
    data = np.take_along_axis(cosines, order, axis=1).ravel()
    neighbors = sparse.csr_array((data, (np.repeat(np.arange(30), k), order.ravel())), (30, 30))
    nearest, weights = nearest_names(points, names, 2)
    ours = normalized_graph(with_names(neighbors, nearest, weights**gamma, 4), 1.0)
    columns = propagation_columns(ours, np.arange(30, 34), alpha)[:30]
    np.testing.assert_allclose(columns, scores, atol=1e-6)


def errors(directory: Path) -> dict[str, float]:
    """In percent, by the source of labels."""
    found: dict[str, float] = summary(directory)["errors"]
    return found


def test_without_a_label_the_graph_beats_names_alone(settings: Settings) -> None:
    found = errors(train(settings(**NAMES), 4))
    assert 14 < found[NETWORK] < 22
    assert found[XCLP] < found[NETWORK] - 5


def test_under_encryption_labels_are_those_of_plaintext(settings: Settings) -> None:
    plan = {**NAMES, "points_per_client": 60, "xclp.num-bits": 512}
    for more in ({}, {"labels.total": 40}):
        one, two = (
            errors(train(settings(**{**plan, **more, **secure}), 4))
            for secure in ({}, {"xclp.secure": "rlwe", "xclp.codes-seed": "run"})
        )
        assert one == two


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("xclp-predict.features", {"xclp-predict.features": "pixels", "start_from": ""}),
        ("xclp.codes-epsilon", {"xclp.codes-epsilon": 4.0, "xclp.secure": "rlwe"}),
        ("xclp-predict.leave-one-out", {"xclp-predict.leave-one-out": True}),
    ],
)
def test_what_does_not_go_with_names_is_refused(
    settings: Settings, key: str, more: dict[str, Any]
) -> None:
    with refuses("setting-needs-setting", setting=key):
        train(settings(**{**NAMES, **more}), 4)


def test_without_names_labels_are_needed(settings: Settings) -> None:
    with refuses("labels-missing"):
        train(settings(**{**NAMES, "xclp-predict.nearest-names": 0}), 4)
