"""FedUL on real data: few points and rounds, enough to see that it learns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.federated_split import set_aside
from fedul_flwr.data.partition import partition_points
from fedul_flwr.data.sources import load_source
from tests.support.runs import metrics, summary, train

pytestmark = pytest.mark.realdata


def test_mnist_without_labels(
    settings: Callable[..., RunConfig], real_data: Callable[[str], str]
) -> None:
    config = settings(
        dataset=real_data("mnist"),
        model="lenet",
        points_per_client=1000,
        num_rounds=3,
        batch_size=32,
        learning_rate=2e-3,
        augment="rotate",
        evaluate_every=3,
    )
    directory = train(config, 3)
    # Chance is 90 %. Measured with seeds 0 and 1: 8.9 and 8.7 %.
    assert summary(directory)["test_error"] < 15
    losses = [line["surrogate_loss"] for line in metrics(directory)]
    assert losses == sorted(losses, reverse=True)


def test_500_points_for_each_of_50_clients(
    settings: Callable[..., RunConfig], real_data: Callable[[str], str]
) -> None:
    """Table E.10's last column, on MNIST's own class counts."""
    place = real_data("mnist")
    config = settings(dataset=place, partition="majority", points_per_client=500)
    labels = np.asarray(load_source(place).train.labels)
    training = set_aside(labels, config).training
    assert len(training) == 48_000
    parts = partition_points(labels[training], {}, 10, 50, config)
    assert [len(part) for part in parts] == [500] * 50
    for client, part in enumerate(parts):
        counts = np.bincount(labels[training][part], minlength=10)
        assert set(np.argsort(counts)[-2:]) == {2 * client % 10, (2 * client + 1) % 10}
