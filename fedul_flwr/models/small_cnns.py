"""Small convolutional networks, which one CPU core trains in seconds."""

from __future__ import annotations

from torch import nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.linear import Linear
from fedul_flwr.models.parts import require_size


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


def lenet(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Two 5 x 5 convolutions of 6 and 16 filters and three linear layers of 120, 84 and K.

    LeNet (LeCun et al. 1998) with ReLU and max pooling.
    """
    require_size("lenet", input_shape, 12)
    height, width, channels = input_shape
    features = 16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        Linear(features, 120),
        nn.ReLU(inplace=True),
        Linear(120, 84),
        nn.ReLU(inplace=True),
        Linear(84, num_classes),
    )
