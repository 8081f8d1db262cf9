"""Parts and checks that architectures share."""

from __future__ import annotations

import math

from torch import Tensor, nn

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
    persistent : whether both count as state of a model; usually they are no weights.
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
    """Redraw the weights of convolutions and linear layers by variance scaling.

    Like TensorFlow's ``VarianceScaling`` by default: from a normal distribution truncated at two
    deviations, with variance 1 / fan-in after truncation. Biases become 0. Random numbers come from
    torch's own generator.

    Returns
    -------
    ``model``, changed in place.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            deviation = math.sqrt(1 / layer.weight[0].numel()) / _TRUNCATED
            nn.init.trunc_normal_(layer.weight, 0, deviation, -2 * deviation, 2 * deviation)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model
