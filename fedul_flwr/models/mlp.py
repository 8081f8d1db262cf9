"""A multilayer perceptron on raw pixels."""

from __future__ import annotations

from torch import nn

from fedul_flwr.data.types import InputShape


def mlp(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Two hidden layers of 128 units."""
    height, width, channels = input_shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(height * width * channels, 128),
        nn.ReLU(inplace=True),
        nn.Linear(128, 128),
        nn.ReLU(inplace=True),
        nn.Linear(128, num_classes),
    )
