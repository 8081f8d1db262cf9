"""What the server can find out from H alone, or from H and a little more: figures of privacy.md.

H is that of 1,000 digits and codes of 4,096 bits. How it was computed makes no difference.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import SpectralClustering

from fedul_flwr.arrays import Ints
from fedul_flwr.data.sources import load_source
from fedul_flwr.learning.local import pixel_features
from fedul_flwr.propagation.codes import cosine_from_hamming, encode, hamming
from tests.propagation.conftest import Floats

POINTS, CLASSES, BITS = 1000, 10, 4096
SEEDS = range(3)


@pytest.fixture(scope="module", params=SEEDS)
def seen(request: pytest.FixtureRequest) -> tuple[Ints, Floats, NDArray[Any]]:
    """H, and what it was made of: features, and classes."""
    rng = np.random.default_rng(request.param)
    train = load_source("digits").train
    points = rng.permutation(len(train.labels))[:POINTS]
    features = pixel_features(train.inputs, points).astype(np.float64)
    codes = encode(features, rng.bytes(32), BITS)
    return hamming(codes, codes), features, train.labels[points]


def accuracy_up_to_names(clusters: Ints, classes: Ints) -> float:
    """Share of points in the class that their cluster stands for, at best."""
    counts = np.zeros((CLASSES, CLASSES))
    np.add.at(counts, (clusters, classes), 1)
    return float(counts[linear_sum_assignment(-counts)].sum() / len(classes))


def test_clusters_of_distances_alone_are_mostly_the_classes(seen: Any) -> None:
    distances, _, classes = seen
    similar = np.maximum(cosine_from_hamming(distances, BITS), 0) ** 3
    np.fill_diagonal(similar, 0)
    # The server's own graph: the ten nearest of each point.
    far = np.sort(similar, axis=1)[:, -10]
    graph = np.where(similar >= far[:, np.newaxis], similar, 0)
    spectral = SpectralClustering(CLASSES, affinity="precomputed", random_state=0)
    found = accuracy_up_to_names(spectral.fit_predict(np.maximum(graph, graph.T)), classes)
    assert found == pytest.approx(0.8, abs=0.05)
    # Distances that tell nothing: one cluster would be right for a tenth.
    order = np.random.default_rng(0).permutation(POINTS)
    assert accuracy_up_to_names(order % CLASSES, classes) < 0.2


def named(distances: Ints, classes: Ints, known: Iterable[int]) -> float:
    """Share of the others that get the right class from the nearest of the known."""
    known = np.array(list(known))
    others = np.setdiff1d(np.arange(POINTS), known)
    nearest = known[distances[np.ix_(others, known)].argmin(axis=1)]
    return float((classes[nearest] == classes[others]).mean())


def test_one_known_label_of_each_class_names_most_of_the_others(seen: Any) -> None:
    distances, _, classes = seen
    rng = np.random.default_rng(1)
    tries = [
        [rng.choice(np.flatnonzero(classes == each)) for each in range(CLASSES)] for _ in range(20)
    ]
    found = [named(distances, classes, known) for known in tries]
    assert np.mean(found) == pytest.approx(0.63, abs=0.04)
    assert max(found) > 0.7


def rebuilt(
    distances: Ints, vectors: Floats, known: Ints, others: Ints, bits: int = BITS
) -> Floats:
    """Directions ``(others, d)`` by trilateration from those of ``known`` points.

    cos(pi h / L) estimates the product with a known direction. Its standard deviation is at most
    pi / sqrt(4 L); a direction's coordinates have the mean square 1 / d. So this ridge regression
    has the least mean square error.
    """
    d = vectors.shape[1]
    products = cosine_from_hamming(distances[np.ix_(known, others)], bits)
    weight = d * np.pi**2 / (4 * bits)
    normal = vectors[known].T @ vectors[known] + weight * np.eye(d)
    found = np.linalg.solve(normal, vectors[known].T @ products).T
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


@pytest.mark.parametrize(("share", "mean", "lowest"), [(0.5, 0.95, 0.8), (1, 0.97, 0.9)])
def test_as_many_known_vectors_as_there_are_features_give_all_others(
    seen: Any, share: float, mean: float, lowest: float
) -> None:
    distances, features, _ = seen
    vectors = features / np.linalg.norm(features, axis=1, keepdims=True)
    order = np.random.default_rng(2).permutation(POINTS)
    size = int(share * features.shape[1])
    assert features.shape[1] == 64
    known, others = order[:size], order[size:]
    cosines = (rebuilt(distances, vectors, known, others) * vectors[others]).sum(axis=1)
    assert cosines.mean() > mean
    assert cosines.min() > lowest
    # Without H, the mean direction of the known ones is a guess at all others.
    guess = vectors[known].mean(axis=0)
    assert (vectors[others] @ guess / np.linalg.norm(guess)).mean() < 0.78


@pytest.mark.parametrize(("rounds", "mean"), [(1, 0.979), (10, 0.994)])
def test_new_seeds_for_the_same_features_tell_directions_better(rounds: int, mean: float) -> None:
    """Why a run has one seed: distances of ten are as those of codes ten times as long."""
    rng = np.random.default_rng(0)
    train = load_source("digits").train
    points = rng.permutation(len(train.labels))[:300]
    features = pixel_features(train.inputs, points).astype(np.float64)
    vectors = features / np.linalg.norm(features, axis=1, keepdims=True)
    seeds = [rng.bytes(32) for _ in range(rounds)]
    codes = np.concatenate([encode(features, seed, BITS) for seed in seeds], axis=1)
    order = np.random.default_rng(2).permutation(len(points))
    known, others = order[:64], order[64:]
    found = rebuilt(hamming(codes, codes), vectors, known, others, rounds * BITS)
    cosines = (found * vectors[others]).sum(axis=1)
    assert cosines.mean() == pytest.approx(mean, abs=0.003)
