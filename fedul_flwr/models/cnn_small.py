"""A small convolutional network for small images, fast on one CPU core."""

from __future__ import annotations

from torch import nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.linear import Linear
from fedul_flwr.models.sizes import require_size


def cnn_small(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Two 3 x 3 convolutions and two linear layers, no batch norm: 85 k weights at 8 x 8."""
    require_size("cnn-small", input_shape, 4)
    height, width, channels = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d((min(4, height // 2), min(4, width // 2))),
        nn.Flatten(),
        Linear(64 * min(4, height // 2) * min(4, width // 2), 64),
        nn.ReLU(inplace=True),
        Linear(64, num_classes),
    )
