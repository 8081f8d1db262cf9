"""ResNet-9 as in FedMatch, ResNet-18 with its own stem or others, and a wide ResNet."""

from __future__ import annotations

import difflib

import torch
from torch import Tensor, nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import UserError, require
from fedul_flwr.models.parts import Normalized, UnitRange, require_size, scale_variance

# Any classification model of torchvision, with a conversion of our inputs to its inputs.

PREFIX = "torchvision:"
_RETURN_MORE = ("googlenet", "inception_v3")
"""Models that return auxiliary logits in training, in addition to the logits."""


class TorchvisionModel(nn.Module):
    """torchvision's model ``name``, untrained, for float images in [-1, 1] with 1 or 3 channels."""

    def __init__(self, name: str, input_shape: InputShape, num_classes: int) -> None:
        super().__init__()
        _check_name(name)
        from torchvision import models  # a second, needed only for these models

        self.name = name
        self.net: nn.Module = models.get_model(name, weights=None, num_classes=num_classes)
        preset = models.get_model_weights(name).DEFAULT.transforms()
        self.normalized = Normalized(torch.tensor(preset.mean), torch.tensor(preset.std))
        # The size of the images is checked by applying the model to a black one.
        height, width, channels = input_shape
        what = f"images of {height} x {width} pixels with {channels} channels"
        self.eval()
        try:
            with torch.no_grad():
                self(torch.zeros(1, channels, height, width))
        except (RuntimeError, ValueError, AssertionError) as err:
            reason = (str(err).strip() or type(err).__name__).splitlines()[0].rstrip(".!")
            raise UserError(
                f"Model '{PREFIX}{self.name}' does not take {what} ({reason}); choose another "
                "model or set image-size, which is 224 for most of torchvision's models.",
                "model-unfit",
            ) from None
        self.train()

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``(n, K)`` of ``(n, 1 or 3, h, w)`` in [-1, 1]."""
        logits: Tensor = self.net(self.normalized(inputs))
        return logits


def pretrained_arrays(
    name: str, what: str = "Setting start-from = 'torchvision'"
) -> dict[str, Tensor]:
    """torchvision's default weights and buffers for model ``name``, by names in its ``net``."""
    _check_name(name)
    from torchvision import models

    try:
        model: nn.Module = models.get_model(name, weights="DEFAULT")
    except (OSError, RuntimeError) as err:  # no network; a damaged download
        raise UserError(
            f"{what}: cannot load weights of {name!r} ({err}).", "model-file-wrong"
        ) from err
    return model.state_dict()


def require_torchvision(what: str, **values: object) -> None:
    """Refuse a model that is torchvision's if that is not installed."""
    require("torchvision", what, "torchvision", **values)


def _check_name(name: str) -> None:
    require_torchvision(f"Model {PREFIX + name!r}", setting="model")
    from torchvision import models

    names = [model for model in models.list_models(module=models) if model not in _RETURN_MORE]
    if name in names:
        return
    setting = f"Setting model = {PREFIX + name!r}"
    if name in _RETURN_MORE:
        raise UserError(
            f"{setting}: this model has auxiliary outputs, choose one without.", "model-unfit"
        )
    close = [repr(model) for model in difflib.get_close_matches(name, names)]
    hint = f"did you mean {' or '.join(close)}?" if close else "'resnet18' is one."
    raise UserError(
        f"{setting}: must be one of torchvision's classification models; {hint}", "unknown-name"
    )


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
    positions = (left[0] // last[0]) * (left[1] // last[1])
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
            nn.Linear(8 * width * positions, num_classes, bias=False),
        )
    )


def _convolution(channels: int, filters: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.ReLU(inplace=True)]


_MEAN, _DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Of the channels, for CIFAR-10 in the FedUL authors' code; the paper gives none for hospitals."""


def resnet18(input_shape: InputShape, num_classes: int) -> nn.Module:
    """torchvision's ResNet-18 (7 x 7 stem, stride 4 in all before the first block)."""
    require_torchvision("A ResNet-18", setting="model")
    import torchvision  # a second, needed only for this model

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
    model.normalized = Normalized(torch.tensor(_MEAN), torch.tensor(_DEVIATION))
    return model


class WideBlock(nn.Module):
    """Batch norm, ReLU and a 3 x 3 convolution, twice, beside a shortcut.

    Where the number of channels changes, the shortcut is a 1 x 1 convolution of the activated
    input; else it is the input as it is.
    """

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.first = nn.BatchNorm2d(channels)
        self.shrink = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        self.second = nn.BatchNorm2d(filters)
        self.keep = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        changes = channels != filters
        self.short = nn.Conv2d(channels, filters, 1, stride, bias=False) if changes else None

    def forward(self, inputs: Tensor) -> Tensor:
        """``(n, filters, h/stride, w/stride)``."""
        active = self.first(inputs).relu()
        outputs: Tensor = self.keep(self.second(self.shrink(active)).relu())
        return outputs + (inputs if self.short is None else self.short(active))


def wrn28_2(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Wide ResNet of 28 layers and twice the width (Zagoruyko & Komodakis 2016), 1.5 M weights.

    It is the network of FixMatch, SemiFL and (FL)²: 16 filters, then three groups of four blocks of
    32, 64 and 128, of which the last two halve the sides.
    """
    layers: list[nn.Module] = [nn.Conv2d(input_shape[2], 16, 3, padding=1, bias=False)]
    channels = 16
    for filters, stride in ((32, 1), (64, 2), (128, 2)):
        layers.append(WideBlock(channels, filters, stride))
        layers += [WideBlock(filters, filters, 1) for _ in range(3)]
        channels = filters
    last = nn.Linear(channels, num_classes)
    nn.init.zeros_(last.bias)
    for layer in layers:
        for part in layer.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    pooled = (nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, *pooled, last)
