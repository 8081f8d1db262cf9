"""ResNet-18 (He et al. 2016) from torchvision, with its own stem or others for small images."""

from __future__ import annotations

import torch
from torch import nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.parts import Normalized
from fedul_flwr.models.torchvision_model import TorchvisionModel

_MEAN, _DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Of the channels, for CIFAR-10 in the FedUL authors' code; the paper gives none for hospitals."""


def resnet18(input_shape: InputShape, num_classes: int) -> nn.Module:
    """torchvision's ResNet-18 (7 x 7 stem, stride 4 in all before the first block)."""
    import torchvision  # 160 MB and a second, needed only for this model

    channels = input_shape[2]
    model: nn.Module = torchvision.models.resnet18(weights=None, num_classes=num_classes)
    if channels != 3:
        model.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    return model


def resnet18_small(input_shape: InputShape, num_classes: int) -> nn.Module:
    """ResNet-18 with a 3 x 3 stem of stride 1 and no first pooling, for images of about 32 x 32."""
    model = resnet18(input_shape, num_classes)
    model.conv1 = nn.Conv2d(input_shape[2], 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def resnet18_fedul(input_shape: InputShape, num_classes: int) -> nn.Module:
    """ResNet-18 of the FedUL paper (table D.3): torchvision's without the first pooling.

    Gray images get three equal channels. Channels are normalized by the constants of the authors'
    code. The weights can be torchvision's pretrained ones, as the paper's.
    """
    model = TorchvisionModel("resnet18", input_shape, num_classes)
    model.net.maxpool = nn.Identity()
    model.normalised = Normalized(torch.tensor(_MEAN), torch.tensor(_DEVIATION))
    return model
