"""A multilayer perceptron on raw pixels."""

from __future__ import annotations

from torch import nn


def mlp(image_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """Two hidden layers of 128 units."""
    height, width, channels = image_shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(height * width * channels, 128),
        nn.ReLU(inplace=True),
        nn.Linear(128, 128),
        nn.ReLU(inplace=True),
        nn.Linear(128, num_classes),
    )
