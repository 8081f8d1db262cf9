"""FedUL on real data: few points and rounds, enough to see that it learns."""

from collections.abc import Callable

import pytest

from tests.support.runs import metrics, summary, train
from tests.support.settings import Settings

pytestmark = pytest.mark.realdata


def test_mnist_learns(settings: Settings, real_data: Callable[[str], str]) -> None:
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
