"""The normalized graph against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from fedul_flwr.propagation.neighbors import (
    neighbors_by_cosine,
)
from fedul_flwr.propagation.solve import normalized_graph
from tests.propagation.conftest import clusters
from tests.support.refusals import refuses


def test_by_hand() -> None:
    # A hat: 0 chose 1 (.5), 1 chose 0 (.5) and 2 (.25), 3 is isolated. Cubes .125 and .015625.
    # W_01 = .25, W_12 = .015625; D = (.25, .265625, .015625).
    neighbors = sparse.csr_array(
        np.array([[0, 0.5, 0, 0], [0.5, 0, 0.25, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    )
    graph = normalized_graph(neighbors, 3).toarray()
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = 0.25 / np.sqrt(0.25 * 0.265625)
    expected[1, 2] = expected[2, 1] = 0.015625 / np.sqrt(0.015625 * 0.265625)
    np.testing.assert_allclose(graph, expected, rtol=1e-15)


@pytest.mark.parametrize("power", [1, 3, 0.5])
def test_equals_the_definition(power: float) -> None:
    neighbors = neighbors_by_cosine(clusters(300)[0], 10)
    graph = normalized_graph(neighbors, power).toarray()
    weights = neighbors.toarray() ** power
    weights += weights.T
    root = np.sqrt(weights.sum(axis=1))
    np.testing.assert_allclose(graph, weights / np.outer(root, root), rtol=1e-13)
    assert (graph == graph.T).all()
    assert not graph.diagonal().any()
    eigenvalues = np.linalg.eigvalsh(graph)
    assert eigenvalues[0] >= -1 - 1e-12
    assert eigenvalues[-1] == pytest.approx(1)


def test_a_diagonal_and_stored_zeros_do_not_count() -> None:
    plain = sparse.csr_array(np.array([[0, 0.5], [0.5, 0]]))
    odd = sparse.csr_array(([0.9, 0.5, 0.5, 0.0], ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2))
    assert (normalized_graph(odd) != normalized_graph(plain)).nnz == 0


def test_weights_that_underflow_are_no_edges() -> None:
    weak = sparse.csr_array(np.array([[0, 1e-3], [1e-3, 0]]))
    assert normalized_graph(weak, 200).nnz == 0
    assert np.isfinite(normalized_graph(weak, 100).data).all()


@pytest.mark.parametrize("power", [0, -1, np.nan, np.inf])
def test_refuses_powers(power: float) -> None:
    with refuses("argument-not-allowed"):
        normalized_graph(sparse.csr_array((3, 3)), power)


@pytest.mark.parametrize("similarity", [-0.5, np.nan])
def test_refuses_similarities(similarity: float) -> None:
    with refuses("array-wrong"):
        normalized_graph(sparse.csr_array(np.array([[0, similarity], [0, 0]])))
