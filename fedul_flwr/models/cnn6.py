"""The six-layer convolutional network of the FedUL paper's MNIST benchmark (table D.2)."""

from __future__ import annotations

from torch import nn

from fedul_flwr.models.sizes import require_size


def cnn6(image_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """Three 5 x 5 convolutions and three linear layers, batch-normalised, 14 M weights at 28 x 28.

    The paper feeds grey images as three equal channels; the first layer here takes the channels
    the images have.
    """
    require_size("cnn6", image_shape, 4)
    height, width, channels = image_shape
    features = 128 * (height // 4) * (width // 4)
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5, padding=2),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5, padding=2),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 5, padding=2),
        nn.BatchNorm2d(128),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(features, 2048),
        nn.BatchNorm1d(2048),
        nn.ReLU(inplace=True),
        nn.Linear(2048, 512),
        nn.BatchNorm1d(512),
        nn.ReLU(inplace=True),
        nn.Linear(512, num_classes),
    )
