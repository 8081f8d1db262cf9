"""The six-layer convolutional network of the FedUL paper's MNIST benchmark (table D.2)."""

from __future__ import annotations

from torch import nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.linear import Linear
from fedul_flwr.models.parts import require_size


def cnn6(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Three 5 x 5 convolutions and three linear layers, batch-normalized, 14 M weights at 28 x 28.

    The paper converts gray images to three equal channels; here the first layer has the images'
    number of channels.
    """
    return _cnn6("cnn6", input_shape, num_classes, width=64)


def cnn6_quarter(input_shape: InputShape, num_classes: int) -> nn.Module:
    """The same at a quarter of the width, 0.9 M weights at 28 x 28: quick experiments on a CPU."""
    return _cnn6("cnn6-quarter", input_shape, num_classes, width=16)


def _cnn6(name: str, input_shape: InputShape, num_classes: int, *, width: int) -> nn.Module:
    require_size(name, input_shape, 4)
    height, pixels_wide, channels = input_shape
    features = 2 * width * (height // 4) * (pixels_wide // 4)
    return nn.Sequential(
        nn.Conv2d(channels, width, 5, padding=2),
        nn.BatchNorm2d(width),
        nn.MaxPool2d(2),  # before ReLU, which then has a quarter to do: the outcome is the same
        nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 5, padding=2),
        nn.BatchNorm2d(width),
        nn.MaxPool2d(2),  # before ReLU, which then has a quarter to do: the outcome is the same
        nn.ReLU(inplace=True),
        nn.Conv2d(width, 2 * width, 5, padding=2),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        Linear(features, 32 * width),
        nn.BatchNorm1d(32 * width),
        nn.ReLU(inplace=True),
        Linear(32 * width, 8 * width),
        nn.BatchNorm1d(8 * width),
        nn.ReLU(inplace=True),
        Linear(8 * width, num_classes),
    )
