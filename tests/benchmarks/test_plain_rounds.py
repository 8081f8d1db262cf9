"""The loop without Flower that rounds are compared with does the same as a round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.clients import prepared_clients
from benchmarks.plain_rounds import PlainRounds
from fedul_flwr.config.run_config import RunConfig
from tests.support.runs import last_model, train


def test_a_plain_round_of_our_clients_is_a_round(settings: Callable[..., RunConfig]) -> None:
    config = settings(
        method="supervised", model="mlp", num_rounds=2, local_epochs=1, points_per_client=50
    )
    with PlainRounds("ours", config, num_clients=2, processes=1, threads=1) as plain:
        assert len(plain.seconds(2)) == 2
        found = [array.copy() for array in plain.weights]
    expected = last_model(train(config, 2))
    names = prepared_clients(config, 2)[0].array_names()
    for name, array in zip(names, found, strict=True):
        np.testing.assert_allclose(array, expected[name], atol=1e-6)
