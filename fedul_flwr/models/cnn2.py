"""The smallest batch-normalized convolutional network: digits and the like in seconds."""

from __future__ import annotations

from torch import nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.linear import Linear
from fedul_flwr.models.sizes import require_size


def cnn2(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Two 3 x 3 convolutions of 8 and 16 filters, 64 units: 52 k weights at 28 x 28.

    Batch norm follows every layer but the last. These sizes are our choice.
    """
    require_size("cnn2", input_shape, 4)
    height, width, channels = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.MaxPool2d(2),  # before batch norm and ReLU, which then have a quarter to do
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        Linear(16 * (height // 4) * (width // 4), 64),
        nn.BatchNorm1d(64),
        nn.ReLU(inplace=True),
        Linear(64, num_classes),
    )
