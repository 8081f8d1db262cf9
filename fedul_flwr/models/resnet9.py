"""ResNet-9 as in FedMatch (Jeong et al. 2021, table 3), without batch norm and biases."""

from __future__ import annotations

from torch import Tensor, nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.parts import UnitRange, scale_variance
from fedul_flwr.models.sizes import require_size


class Skip(nn.Module):
    """A sequence of layers whose input is added to its output."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """``inputs + layers(inputs)``."""
        result: Tensor = inputs + self.layers(inputs)
        return result


def resnet9(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Eight 3 x 3 convolutions, two skips and a linear layer, 6.6 M weights at 32 x 32.

    Weights are drawn by variance scaling. The paper has 32 x 32 images, for which the last
    pooling covers all remaining 4 x 4 pixels. For smaller images, down to 8 x 8, it covers fewer
    pixels; for larger ones several pixels remain.
    """
    return _resnet9("resnet9", input_shape, num_classes, width=64)


def resnet9_quarter(input_shape: InputShape, num_classes: int) -> nn.Module:
    """The same at a quarter of the width, 0.4 M weights at 32 x 32: quick experiments on a CPU."""
    return _resnet9("resnet9-quarter", input_shape, num_classes, width=16)


def _resnet9(name: str, input_shape: InputShape, num_classes: int, *, width: int) -> nn.Module:
    require_size(name, input_shape, 8)
    left = (input_shape[0] // 8, input_shape[1] // 8)  # after three poolings by 2
    last = (min(left[0], 4), min(left[1], 4))
    places = (left[0] // last[0]) * (left[1] // last[1])
    return scale_variance(
        nn.Sequential(
            UnitRange(),
            *_convolution(input_shape[2], width),
            *_convolution(width, 2 * width),
            nn.MaxPool2d(2),
            Skip(*_convolution(2 * width, 2 * width), *_convolution(2 * width, 2 * width)),
            *_convolution(2 * width, 4 * width),
            nn.MaxPool2d(2),
            *_convolution(4 * width, 8 * width),
            nn.MaxPool2d(2),
            Skip(*_convolution(8 * width, 8 * width), *_convolution(8 * width, 8 * width)),
            nn.MaxPool2d(last),
            nn.Flatten(),
            nn.Linear(8 * width * places, num_classes, bias=False),
        )
    )


def _convolution(channels: int, filters: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.ReLU(inplace=True)]
