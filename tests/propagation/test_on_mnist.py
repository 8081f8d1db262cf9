"""On MNIST pixels across clients: the form of the code, and class priors of each client."""

from collections.abc import Callable

import numpy as np
import pytest

from fedul_flwr.data.class_labels import labels_from_scores
from fedul_flwr.data.sources import load_source
from fedul_flwr.propagation.codes import encode, neighbors_by_code
from fedul_flwr.propagation.solve import (
    NUM_NEIGHBORS,
    normalized_graph,
    one_hot,
    propagate,
    reweigh_by_prior,
)
from tests.propagation.conftest import SEED, Floats

pytestmark = pytest.mark.realdata

NUM_CLIENTS, POINTS = 8, 250


def accuracies(images: Floats, classes: np.ndarray, num_classes: int) -> list[float]:
    """Unlabeled points rightly labeled: the paper's text, the code's form, and re-weighed."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(classes))
    clients = []
    for client in range(NUM_CLIENTS):
        own = np.arange(client * num_classes, (client + 1) * num_classes) % 10
        mine = order[np.isin(classes[order], own)][:POINTS]
        clients.append(mine)
        order = np.setdiff1d(order, mine)
        rng.shuffle(order)
    points = np.concatenate(clients)
    features, truth = images[points], classes[points]
    labels = np.full(len(points), -1)
    chosen = rng.choice(len(points), len(points) // 20, replace=False)
    labels[chosen] = truth[chosen]
    unlabeled = labels == -1
    given = one_hot(labels, 10)
    neighbors = neighbors_by_code(encode(features, SEED, 2048), NUM_NEIGHBORS)
    text = propagate(normalized_graph(neighbors, power=1), given, class_scaling=False)
    scores = propagate(normalized_graph(neighbors), given)
    own_priors = scores.copy()
    for client in range(NUM_CLIENTS):
        mine = np.flatnonzero(unlabeled & (np.arange(len(points)) // POINTS == client))
        own_priors[mine] = reweigh_by_prior(scores[mine])
    return [
        float((labels_from_scores(found).labels == truth)[unlabeled].mean())
        for found in (text, scores, own_priors)
    ]


def test_clients_of_few_classes_gain_and_no_other_loses(real_data: Callable[[str], str]) -> None:
    test = load_source(real_data("mnist")).test
    images = test.inputs[:5000].reshape(5000, -1) / 255 - 0.13
    classes = test.labels[:5000]
    for num_classes, gain in ((10, -0.005), (5, 0.0), (2, 0.05)):
        text, scores, own_priors = accuracies(images, classes, num_classes)
        assert scores > text
        assert own_priors >= scores + gain
