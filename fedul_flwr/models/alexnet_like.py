"""The small AlexNet of Serra et al. (2018), as in FedMatch (appendix B.4)."""

from __future__ import annotations

from torch import nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.mlp import Linear
from fedul_flwr.models.parts import UnitRange, require_size, scale_variance


def alexnet_like(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Convolutions of 4 x 4, 3 x 3 and 2 x 2, and three linear layers, 6.5 M weights at 32 x 32.

    Weights are drawn by variance scaling, as for `resnet9`. Layers have biases, initially 0, and no
    dropout; the paper mentions neither.
    """
    require_size("alexnet-like", input_shape, 19)
    height, width, channels = input_shape
    features = 256 * _left(height) * _left(width)
    return scale_variance(
        nn.Sequential(
            UnitRange(),
            *_convolution(channels, 64, 4),
            *_convolution(64, 128, 3),
            *_convolution(128, 256, 2),
            nn.Flatten(),
            Linear(features, 2048),
            nn.ReLU(inplace=True),
            Linear(2048, 2048),
            nn.ReLU(inplace=True),
            Linear(2048, num_classes),
        )
    )


def _convolution(channels: int, filters: int, size: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, filters, size), nn.ReLU(inplace=True), nn.MaxPool2d(2)]


def _left(side: int) -> int:
    """Pixels on a side after the convolutions, which are not padded, and the poolings."""
    for size in (4, 3, 2):
        side = (side - size + 1) // 2
    return side
