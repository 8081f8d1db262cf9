"""Parts and checks that architectures share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import UserError


def require_size(name: str, input_shape: InputShape, least: int) -> None:
    """Refuse images smaller than ``least`` pixels on a side."""
    height, width, _ = input_shape
    if min(height, width) < least:
        raise UserError(
            f"Model {name!r} needs images of at least {least} x {least} pixels, "
            f"these have {height} x {width}; choose another model or set image-size.",
            "image-size",
        )


_TRUNCATED = 0.87962566
"""Standard deviation of a standard normal distribution truncated at two deviations."""


class UnitRange(nn.Module):
    """Maps inputs from [-1, 1] to [0, 1], for models of papers that divide pixels by 255."""

    def forward(self, inputs: Tensor) -> Tensor:
        """``(inputs + 1) / 2``."""
        return (inputs + 1) / 2


class Normalized(nn.Module):
    """Maps images from [-1, 1] to (x − mean) / deviation, where x is the image in [0, 1].

    A single channel becomes as many as there are means.

    Parameters
    ----------
    mean, deviation : ``(channels,)``.
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor, *, persistent: bool = False) -> None:
        super().__init__()
        scale, offset = 0.5 / deviation, (0.5 - mean) / deviation
        self.register_buffer("scale", scale[:, None, None].float(), persistent=persistent)
        self.register_buffer("offset", offset[:, None, None].float(), persistent=persistent)

    def forward(self, inputs: Tensor) -> Tensor:
        """Images ``(n, channels, h, w)`` of ``(n, 1 or channels, h, w)``."""
        return inputs * self.scale + self.offset


def scale_variance(model: nn.Module) -> nn.Module:
    """Redraw the weights of convolutions and linear layers by variance scaling."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            deviation = math.sqrt(1 / layer.weight[0].numel()) / _TRUNCATED
            nn.init.trunc_normal_(layer.weight, 0, deviation, -2 * deviation, 2 * deviation)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model


# The last linear layer of a model, whose inputs are features, and a second one.


def feature_layer(model: nn.Module) -> nn.Linear:
    """The last linear layer of ``model``, by the order in which its modules were added."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UserError(
            "The model has no linear layer, and features are the inputs of the last one: "
            "choose another model.",
            "model-unfit",
        )
    return layers[-1]


@contextmanager
def inputs_of(layer: nn.Module) -> Iterator[list[Tensor]]:
    """Context that collects the inputs of ``layer`` in a list, one per call."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        yield seen
    finally:
        hook.remove()


@contextmanager
def only_heads(model: nn.Module) -> Iterator[None]:
    """Context in which training changes the last linear layer only, and a second head if any."""
    heads = [feature_layer(model), getattr(model, "second", None)]
    weights = {
        weight for head in heads if isinstance(head, nn.Module) for weight in head.parameters()
    }
    body = [
        weight for weight in model.parameters() if weight.requires_grad and weight not in weights
    ]
    norms = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    training = [layer.training for layer in norms]
    for weight in body:
        weight.requires_grad_(False)
    for layer in norms:
        layer.eval()
    try:
        yield
    finally:
        for weight in body:
            weight.requires_grad_(True)
        for layer, was in zip(norms, training, strict=True):
            layer.train(was)


class Extended(nn.Module):
    """``model`` with further layers, named in ``added``; the names of its arrays get ``model.``.

    It behaves like ``model``. The layers are registered before the model, so that the last linear
    layer of both is the model's.
    """

    added: tuple[str, ...]
    model: nn.Module

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``(n, K)`` of the model."""
        logits: Tensor = self.model(inputs)
        return logits


class TwoHeads(Extended):
    """``model`` with a second head, linear in the inputs of its last linear layer.

    ``forward`` returns the logits of the first head.
    """

    added = ("second",)

    def __init__(self, model: nn.Module, num_classes: int) -> None:
        super().__init__()
        layer = feature_layer(model)
        self.second = nn.Linear(layer.in_features, num_classes)
        self.model = model

    def both(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(n, K)`` of the first and of the second head, in one pass."""
        with inputs_of(feature_layer(self.model)) as features:
            logits = self(inputs)
        return logits, self.second(features[-1])


class Projected(Extended):
    """``model`` with a linear layer each for its features and for the rows of its last layer."""

    added = ("of_features", "of_rows")

    def __init__(self, model: nn.Module, num_classes: int) -> None:
        del num_classes
        super().__init__()
        width = feature_layer(model).in_features
        self.of_features = nn.Linear(width, width)
        self.of_rows = nn.Linear(width, width, bias=False)
        self.model = model


EXTENSIONS: dict[str, type[TwoHeads | Projected]] = {"head": TwoHeads, "projections": Projected}
"""Classes of models with further layers, by :data:`~fedul_flwr.config.shared.MODEL_EXTENSIONS`."""


# Random features of images, a fixed layer behind which a head in closed form learns.

FILTERS, SIDE, GRID = 100, 7, 3
"""Random filters of so many pixels a side, whose answers are averaged over a grid of 3 x 3: 900
features. On MNIST and Fashion-MNIST a head on them errs less than one on as many features without
place, max(0, W x + b), by a twelfth to two thirds."""
LEAST = 1e-6
"""Added to means before their root, whose slope at 0 is infinite."""


class RandomFeatures(nn.Module):
    """Roots of mean answers max(0, w * x + b) of random filters in each cell of a grid.

    The root makes large answers count less, as in power-normalized Fisher vectors. Filters have
    mean 0 and length 1, so that they answer to edges and not to brightness; biases are uniform
    between -1 and 1.
    """

    filters: Tensor
    biases: Tensor

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        filters = torch.randn(FILTERS, channels, side, side)
        filters -= filters.mean(dim=(1, 2, 3), keepdim=True)
        lengths = filters.flatten(1).norm(dim=1).clamp(min=LEAST)  # 0 for images of one pixel
        filters /= lengths[:, None, None, None]
        self.register_buffer("filters", filters)
        self.register_buffer("biases", 2 * torch.rand(FILTERS) - 1)

    def forward(self, images: Tensor) -> Tensor:
        """``(n, FILTERS · GRID²)`` of images ``(n, channels, height, width)`` in [-1, 1]."""
        answers = functional.conv2d(images, self.filters, self.biases).relu_()
        pooled = functional.adaptive_avg_pool2d(answers, GRID).flatten(1)
        return (pooled + LEAST).sqrt()


def random_features(input_shape: InputShape, num_classes: int) -> nn.Module:
    """Random features of images, and a linear layer."""
    height, width, channels = input_shape
    side = min(SIDE, height, width)
    features = RandomFeatures(channels, side)
    return nn.Sequential(features, nn.Linear(FILTERS * GRID**2, num_classes))
