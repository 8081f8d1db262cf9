"""Small convolutional networks, and those of the papers."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.mlp import Linear
from fedul_flwr.models.parts import UnitRange, require_size, scale_variance


def _relu(layer: nn.Module) -> tuple[nn.Module, nn.Module]:
    return layer, nn.ReLU(inplace=True)


def alexnet_like(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Convolutions of 4 x 4, 3 x 3 and 2 x 2, and three linear layers, 6.5 M weights at 32 x 32.

    Weights are drawn by variance scaling, as for `resnet9`. Layers have biases, initially 0, and no
    dropout; the paper mentions neither.
    """
    require_size("alexnet-like", input_shape, 19)
    height, width, channels = input_shape
    features = 256 * _left(height, 4, 3, 2) * _left(width, 4, 3, 2)
    return scale_variance(
        nn.Sequential(
            UnitRange(),
            *_alexnet_convolution(channels, 64, 4),
            *_alexnet_convolution(64, 128, 3),
            *_alexnet_convolution(128, 256, 2),
            nn.Flatten(),
            *_relu(Linear(features, 2048)),
            *_relu(Linear(2048, 2048)),
            Linear(2048, num_classes),
        )
    )


def _alexnet_convolution(channels: int, filters: int, size: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, filters, size), nn.ReLU(inplace=True), nn.MaxPool2d(2)]


def _left(side: int, *sizes: int) -> int:
    """Pixels on a side after convolutions of these sizes, not padded, each followed by pooling."""
    for size in sizes:
        side = (side - size + 1) // 2
    return side


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
        *_relu(nn.BatchNorm2d(2 * width)),
        nn.Flatten(),
        Linear(features, 32 * width),
        *_relu(nn.BatchNorm1d(32 * width)),
        Linear(32 * width, 8 * width),
        *_relu(nn.BatchNorm1d(8 * width)),
        Linear(8 * width, num_classes),
    )


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


def cnn_small(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Two 3 x 3 convolutions and two linear layers, no batch norm: 85 k weights at 8 x 8."""
    require_size("cnn-small", input_shape, 4)
    height, width, channels = input_shape
    return nn.Sequential(
        *_relu(nn.Conv2d(channels, 32, 3, padding=1)),
        *_relu(nn.Conv2d(32, 64, 3, padding=1)),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d((min(4, height // 2), min(4, width // 2))),
        nn.Flatten(),
        *_relu(Linear(64 * min(4, height // 2) * min(4, width // 2), 64)),
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
        *_relu(nn.BatchNorm2d(8)),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.MaxPool2d(2),
        *_relu(nn.BatchNorm2d(16)),
        nn.Flatten(),
        Linear(16 * (height // 4) * (width // 4), 64),
        *_relu(nn.BatchNorm1d(64)),
        Linear(64, num_classes),
    )


def cnn4(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Four 3 x 3 convolutions and two linear layers, no batch norm: 890 k weights at 32 x 32 x 3.

    They have 32, 32, 64 and 64 filters and 512 units; these sizes are our choice. Convolutions are
    not padded: 32 pixels on a side become 14 after the first pooling and 5 after the second.
    """
    require_size("cnn4", input_shape, 16)
    height, width, channels = input_shape
    # Two convolutions of 3 x 3 have the size of one of 5 x 5.
    features = 64 * _left(height, 5, 5) * _left(width, 5, 5)
    return nn.Sequential(
        *_relu(nn.Conv2d(channels, 32, 3)),
        nn.Conv2d(32, 32, 3),
        nn.MaxPool2d(2),  # before ReLU, which then has a quarter to do: the outcome is the same
        nn.ReLU(inplace=True),
        *_relu(nn.Conv2d(32, 64, 3)),
        nn.Conv2d(64, 64, 3),
        nn.MaxPool2d(2),  # before ReLU, which then has a quarter to do: the outcome is the same
        nn.ReLU(inplace=True),
        nn.Flatten(),
        *_relu(Linear(features, 512)),
        Linear(512, num_classes),
    )


def lenet(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Two 5 x 5 convolutions of 6 and 16 filters and three linear layers of 120, 84 and K.

    LeNet (LeCun et al. 1998) with ReLU and max pooling.
    """
    require_size("lenet", input_shape, 12)
    height, width, channels = input_shape
    features = 16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
    return nn.Sequential(
        *_relu(nn.Conv2d(channels, 6, 5, padding=2)),
        nn.MaxPool2d(2),
        *_relu(nn.Conv2d(6, 16, 5)),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *_relu(Linear(features, 120)),
        *_relu(Linear(120, 84)),
        Linear(84, num_classes),
    )
