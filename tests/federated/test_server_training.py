"""The server's training on its own labels: its plan, its model, and plain steps by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import LabeledPoints
from fedul_flwr.federated.messages import to_record
from fedul_flwr.federated.nodes import DataShape
from fedul_flwr.federated.server_training import ServerTrainer
from fedul_flwr.learning.batches import to_input
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model

Settings = Callable[..., RunConfig]
SGD: dict[str, Any] = {
    **{"method": "server-only", "model": "linear", "optimizer": "sgd", "momentum": 0.0},
    **{"learning_rate": 0.5, "batch_size": 0, "precision": "float64"},
}
SHAPE = (4, 4, 1)
INPUTS = np.random.default_rng(0).integers(0, 256, (6, *SHAPE), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def trainer(config: RunConfig) -> ServerTrainer:
    data = LabeledPoints(INPUTS, np.arange(6), LABELS)
    return ServerTrainer(config, DataShape(SHAPE, ("a", "b", "c")), data)


def fresh(config: RunConfig) -> nn.Module:
    return build_model(config.model, SHAPE, 3, 7, config.model_options)


def test_given_frozen_rounds_then_the_server_trains_heads_alone_in_them(
    settings: Settings,
) -> None:
    frozen = {**SGD, "frozen_rounds": 2, "start_from": "a-model"}
    plans = [trainer(settings(**frozen)).plan(number) for number in (1, 2, 3)]
    assert [plan.heads_only for plan in plans] == [True, True, False]


@pytest.mark.parametrize("factor", [None, 0.5])
def test_given_epochs_of_one_batch_then_they_are_steps_of_gradient_descent(
    settings: Settings, factor: float | None
) -> None:
    config = settings(**SGD, **{"server.epochs": 2})
    model = fresh(config)
    given = to_record(dump_arrays(model))
    found, loss = trainer(config).train(given, 1, *([] if factor is None else [factor]))
    model.double()
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5 * (factor or 1.0))
    for _ in range(2):
        optimizer.zero_grad()
        logits = model(to_input(torch.from_numpy(INPUTS)).double())
        step = functional.cross_entropy(logits, torch.from_numpy(LABELS))
        step.backward()
        losses.append(step.item())
        optimizer.step()
    assert loss == pytest.approx(np.mean(losses), rel=1e-6)
    for name, array in model.state_dict().items():
        np.testing.assert_allclose(found[name].numpy(), array.numpy(), rtol=1e-5, atol=1e-7)
