"""A plain convolutional network, of the kind that federated benchmarks use for CIFAR-10."""

from __future__ import annotations

from torch import nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.linear import Linear
from fedul_flwr.models.sizes import require_size


def cnn4(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Four 3 x 3 convolutions and two linear layers, no batch norm: 890 k weights at 32 x 32 x 3.

    They have 32, 32, 64 and 64 filters and 512 units; these sizes are our choice. Convolutions are
    not padded: 32 pixels on a side become 14 after the first pooling and 5 after the second.
    """
    require_size("cnn4", input_shape, 16)
    height, width, channels = input_shape
    features = 64 * _left(height) * _left(width)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 3),
        nn.MaxPool2d(2),  # before ReLU, which then has a quarter to do: the outcome is the same
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3),
        nn.MaxPool2d(2),  # before ReLU, which then has a quarter to do: the outcome is the same
        nn.ReLU(inplace=True),
        nn.Flatten(),
        Linear(features, 512),
        nn.ReLU(inplace=True),
        Linear(512, num_classes),
    )


def _left(side: int) -> int:
    """Pixels on a side after two pairs of convolutions, each followed by pooling."""
    return ((side - 4) // 2 - 4) // 2
