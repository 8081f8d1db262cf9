"""Points, graphs and labels that several tests use."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits

from fedul_flwr.propagation.codes import neighbors_by_cosine
from fedul_flwr.propagation.solve import normalized_graph

SEED = bytes(range(32))

Floats = NDArray[np.float64]


def clusters(num_points: int, num_clusters: int = 5, seed: int = 0) -> tuple[Floats, Floats]:
    """Gaussian clusters in 20 dimensions, and the cluster of each point."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(num_clusters, 20))
    classes = rng.integers(0, num_clusters, num_points)
    return centers[classes] + 0.7 * rng.normal(size=(num_points, 20)), classes


def cluster_graph(num_points: int, seed: int = 0, power: float = 3) -> sparse.csr_array:
    return normalized_graph(neighbors_by_cosine(clusters(num_points, seed=seed)[0], 10), power)


def dense_inverse(graph: sparse.csr_array, alpha: float = 0.99) -> Floats:
    """S = (I - alpha W)^-1 by LAPACK."""
    return np.linalg.inv(np.eye(graph.shape[0]) - alpha * graph.toarray())


@pytest.fixture(scope="session")
def digits() -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Centered features, classes, and labels of every twentieth point."""
    data = load_digits()
    classes = data.target.astype(np.int64)
    labels = np.where(np.arange(len(classes)) % 20 == 0, classes, -1)
    return data.data - 8.0, classes, labels
