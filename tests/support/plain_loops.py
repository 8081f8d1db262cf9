"""Training on digits as a plain loop in float64, with which runs are compared."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.sources import load_source, source_directory
from fedul_flwr.data.split import Split, build_split
from fedul_flwr.learning.batches import to_input
from fedul_flwr.models import build_model
from tests.support.runs import last_model


def split_of(config: RunConfig, clients: int) -> Split:
    """What every client and the server of a run hold."""
    return build_split(source_directory("digits"), clients, config)


def fresh(config: RunConfig) -> nn.Module:
    """The model that a run begins with."""
    return build_model(config.model, load_source("digits").input_shape, 10, config.seed).double()


def loss_of(model: nn.Module, rows: Any) -> torch.Tensor:
    """Cross-entropy of rows of the training images with their labels."""
    train = load_source("digits").train
    inputs = to_input(torch.from_numpy(train.inputs[rows])).double()
    return functional.cross_entropy(model(inputs), torch.from_numpy(np.asarray(train.labels)[rows]))


def step(model: nn.Module, rows: Any, rate: float, weight: float = 1.0) -> None:
    """One step of gradient descent on ``weight`` times this loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer.zero_grad()
    (weight * loss_of(model, rows)).backward()
    optimizer.step()


def mean_state(models: list[nn.Module]) -> dict[str, torch.Tensor]:
    """Means of all weights."""
    states = [model.state_dict() for model in models]
    return {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}


def assert_ends_as(directory: Path, model: nn.Module) -> None:
    """A run ends with the weights of ``model``, but for rounding."""
    for name, array in last_model(directory).items():
        np.testing.assert_allclose(array, model.state_dict()[name].numpy(), rtol=1e-6, atol=1e-8)
