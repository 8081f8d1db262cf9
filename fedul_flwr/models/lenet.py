"""LeNet (LeCun et al. 1998), with ReLU and max pooling."""

from __future__ import annotations

from torch import nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.linear import Linear
from fedul_flwr.models.sizes import require_size


def lenet(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Two 5 x 5 convolutions of 6 and 16 filters and three linear layers of 120, 84 and K."""
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
