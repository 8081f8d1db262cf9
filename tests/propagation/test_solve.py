"""Conjugate gradients against the dense inverse, scikit-learn and algebra."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from fedul_flwr.propagation import solve as module
from fedul_flwr.propagation.solve import (
    normalized_graph,
    one_hot,
    propagate,
    propagation_columns,
)
from tests.propagation.conftest import Floats, cluster_graph, clusters, dense_inverse
from tests.support.refusals import refuses


def some_labels(num_points: int, every: int = 10) -> Floats:
    """Y of the classes of :func:`clusters` at every tenth point."""
    classes = clusters(num_points)[1]
    return one_hot(np.where(np.arange(num_points) % every == 0, classes, -1), 5)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.99, 0.999])
@pytest.mark.parametrize("power", [1, 3])
def test_equals_the_dense_inverse(alpha: float, power: float) -> None:
    graph = cluster_graph(500, power=power)
    inverse, given = dense_inverse(graph, alpha), some_labels(500)
    plain = propagate(graph, given, alpha, class_scaling=False)
    np.testing.assert_allclose(plain, inverse @ given, rtol=0, atol=1e-6)
    points = np.array([3, 499, 0, 42])
    np.testing.assert_allclose(
        propagation_columns(graph, points, alpha), inverse[:, points], 0, 1e-6
    )
    scaled = propagate(graph, given, alpha)
    np.testing.assert_allclose(scaled, inverse @ (given / given.sum(axis=0)), rtol=0, atol=1e-6)


def test_what_the_tolerance_leaves_below_zero_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = module._refined
    monkeypatch.setattr(module, "_refined", lambda *given: solve(*given) - 1e-9)
    graph = cluster_graph(60)
    given = np.zeros((60, 2))
    given[3] = 0.5, -0.5  # with labels below zero, results below zero have to stay
    found = propagate(graph, given, 0.0, class_scaling=False)
    assert np.delete(found[:, 0], 3).tolist() == [0] * 59
    assert (found[:, 1] < 0).all()


def test_a_column_meets_the_stated_tolerance() -> None:
    graph = cluster_graph(400)
    given = np.random.default_rng(0).normal(size=(400, 7)) * 10.0 ** np.arange(-300, 301, 100)
    for tolerance in (1e-2, 1e-8, 1e-12):
        found = propagate(graph, given, class_scaling=False, tolerance=tolerance)
        missing = given - (found - 0.99 * (graph @ found))
        largest = abs(given).max(axis=0)
        ratios = np.linalg.norm(missing / largest, axis=0)
        ratios /= np.linalg.norm(given / largest, axis=0)
        assert (ratios <= 1.01 * tolerance).all()


def two_components() -> sparse.csr_array:
    """Points 0 to 59 and 60 to 99 are strangers, 100 and 101 isolated."""
    parts = [cluster_graph(60), cluster_graph(40, seed=1), sparse.csr_array((2, 2))]
    return sparse.csr_array(sparse.block_diag(parts))


def test_where_no_label_reaches_is_exactly_zero() -> None:
    graph = two_components()
    given = np.zeros((102, 3))
    given[0, 0] = given[7, 1] = 1
    found = propagate(graph, given)
    reached = sparse.csgraph.connected_components(graph)[1] == 0
    assert reached[:60].any()
    assert not found[~reached].any()
    assert (found[reached, 0] > 0).all()
    assert not found[:, 2].any()


def test_results_do_not_depend_on_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, points = cluster_graph(300), np.arange(200)
    found = propagation_columns(graph, points)
    for cores in (1, 3):
        monkeypatch.setattr(module, "usable_cpus", lambda cores=cores: cores)
        assert (propagation_columns(graph, points) == found).all()


def test_alpha_close_to_1_is_solved_or_refused() -> None:
    graph, given = cluster_graph(200), some_labels(200)
    found = propagate(graph, given, 0.9999)
    np.testing.assert_allclose(
        found, dense_inverse(graph, 0.9999) @ (given / given.sum(axis=0)), 1e-6
    )
    with refuses("no-convergence"):
        propagate(graph, given, 0.99, tolerance=1e-17)
    with refuses("no-convergence"):
        propagate(graph, given, 1 - 1e-12)


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


GRAPH, PAIR, NONE = cluster_graph(50), sparse.csr_array((2, 2)), np.zeros((50, 2))
REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("array-wrong", lambda: propagate(GRAPH, np.zeros((49, 2)))),
    ("array-wrong", lambda: propagate(GRAPH, np.zeros(50))),
    ("array-wrong", lambda: propagate(GRAPH, np.full((50, 2), np.nan))),
    ("array-wrong", lambda: propagate(sparse.csr_array((3, 4)), np.zeros((3, 1)))),
    ("array-wrong", lambda: propagate(sparse.csr_array([[0, np.nan], [0, 0]]), np.ones((2, 1)))),
    ("argument-not-allowed", lambda: propagate(GRAPH, NONE, alpha=-0.1)),
    ("argument-not-allowed", lambda: propagate(GRAPH, NONE, alpha=1.0)),
    ("argument-not-allowed", lambda: propagate(GRAPH, NONE, tolerance=0.0)),
    ("labels-wrong", lambda: propagation_columns(GRAPH, [50])),
    ("labels-wrong", lambda: propagation_columns(GRAPH, [-1])),
    ("labels-type", lambda: propagation_columns(GRAPH, [0.5])),  # type: ignore[list-item]
    ("labels-type", lambda: propagation_columns(GRAPH, [True])),
    ("labels-type", lambda: propagation_columns(GRAPH, 3)),  # type: ignore[arg-type]
    ("argument-not-allowed", lambda: normalized_graph(PAIR, 0)),
    ("argument-not-allowed", lambda: normalized_graph(PAIR, np.inf)),
    ("array-wrong", lambda: normalized_graph(sparse.csr_array([[0, -0.5], [0, 0]]))),
    ("array-wrong", lambda: normalized_graph(sparse.csr_array([[0, np.nan], [0, 0]]))),
]
