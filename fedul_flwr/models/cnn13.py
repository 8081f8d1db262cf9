"""The 13-layer convolutional network of Tarvainen & Valpola (2017), as XCLP and FedSiam use it."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.parts import require_size


class UnitLength(nn.Module):
    """Scales every row of ``(n, d)`` to an L2 norm of 1; a row of zeros does not change."""

    def forward(self, features: Tensor) -> Tensor:
        """Rows of ``features`` with unit length."""
        return functional.normalize(features, dim=1)


def cnn13(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Nine convolutions, 128 features of unit length and a linear layer, 3.1 M weights.

    Convolutions and the linear layer are weight-normalized; a convolution is followed by batch norm
    and LeakyReLU 0.1.
    """
    return _cnn13("cnn13", input_shape, num_classes, width=128, unit_length=True)


def cnn13_plain(input_shape: InputShape, num_classes: int) -> nn.Module:
    """The same without scaling features to unit length (FedSiam)."""
    return _cnn13("cnn13-plain", input_shape, num_classes, width=128, unit_length=False)


def cnn13_quarter(input_shape: InputShape, num_classes: int) -> nn.Module:
    """`cnn13` at a quarter of the width: 32 features, 0.2 M weights, for experiments on a CPU."""
    return _cnn13("cnn13-quarter", input_shape, num_classes, width=32, unit_length=True)


def _cnn13(
    name: str,
    input_shape: InputShape,
    num_classes: int,
    *,
    width: int,
    unit_length: bool,
) -> nn.Module:
    require_size(name, input_shape, 12)  # the convolution without padding needs 3 x 3 pixels
    return nn.Sequential(
        *_convolution(input_shape[2], width, 3, padding=1),
        *_convolution(width, width, 3, padding=1),
        *_convolution(width, width, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Dropout(0.5),
        *_convolution(width, 2 * width, 3, padding=1),
        *_convolution(2 * width, 2 * width, 3, padding=1),
        *_convolution(2 * width, 2 * width, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Dropout(0.5),
        *_convolution(2 * width, 4 * width, 3),
        *_convolution(4 * width, 2 * width, 1),
        *_convolution(2 * width, width, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        *([UnitLength()] if unit_length else []),
        weight_norm(nn.Linear(width, num_classes)),
    )


def _convolution(channels: int, filters: int, size: int, padding: int = 0) -> list[nn.Module]:
    return [
        weight_norm(nn.Conv2d(channels, filters, size, padding=padding)),
        nn.BatchNorm2d(filters),
        nn.LeakyReLU(0.1, inplace=True),
    ]
