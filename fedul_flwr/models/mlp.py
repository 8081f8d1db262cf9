"""Models for vectors: a perceptron, a linear layer, and layers fast on CPUs."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fedul_flwr.config.shared import ModelOptions
from fedul_flwr.data.types import InputShape

_LARGE = 30_000
"""Number of weights from which a product takes longer than the call of oneDNN (10 µs)."""


class Linear(nn.Linear):
    """``nn.Linear`` with the same weights and, up to rounding, the same outputs and gradients.

    Torch multiplies float32 matrices by MKL, which uses neither AVX-512 nor all of AVX2 on
    processors that are not Intel's. oneDNN, which torch uses for convolutions, does: on an EPYC a
    product takes half of the time with AVX-512, and nine tenths with AVX2.
    """

    def forward(self, input: Tensor) -> Tensor:
        """``(n, out_features)`` of ``(n, in_features)``, or of more dimensions."""
        if self.training and _is_for_onednn(input, self.weight):
            output: Tensor = _Product.apply(input, self.weight, self.bias)
            return output
        return super().forward(input)


def _is_for_onednn(input: Tensor, weight: Tensor) -> bool:
    return (
        weight.numel() >= _LARGE
        and input.dim() == 2
        and input.dtype == weight.dtype == torch.float32
        and input.device.type == weight.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and onednn_is_faster()
    )


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than MKL on this machine's processor."""
    has_mkldnn = torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    info = Path("/proc/cpuinfo")
    return has_mkldnn and info.exists() and "AuthenticAMD" in info.read_text()


class _Product(torch.autograd.Function):
    """``input @ weight.T + bias`` and its gradients by oneDNN."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        return _multiply(input, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        of_input, of_weight, of_bias = ctx.needs_input_grad
        return (
            _multiply(gradient, weight.t()) if of_input else None,
            _multiply(gradient.t(), input.t()) if of_weight else None,
            gradient.sum(dim=0) if of_bias else None,
        )


def _multiply(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """``left @ right.T + bias``."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return product


def mlp(
    input_shape: InputShape, num_classes: int, options: ModelOptions | None = None
) -> nn.Module:
    """Hidden layers with ReLU, two of 128 units by default, with dropout after each if chosen."""
    options = options or ModelOptions()
    layers: list[nn.Module] = [nn.Flatten()]
    size = math.prod(input_shape)
    for _ in range(options.layers):
        layers += [Linear(size, options.width), nn.ReLU(inplace=True)]
        if options.dropout:
            layers.append(nn.Dropout(options.dropout))
        size = options.width
    return nn.Sequential(*layers, Linear(size, num_classes))


def linear(input_shape: InputShape, num_classes: int) -> nn.Module:
    """One linear layer: multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), Linear(math.prod(input_shape), num_classes))


def mlp_linear(input_shape: InputShape, num_classes: int) -> nn.Module:
    """A linear layer to 128 features, XCLP's embedding (appendix B.1), and one to the classes.

    It can represent no more than one linear layer. The paper does not give the width of the
    embedding; 128 is our choice.
    """
    return nn.Sequential(
        nn.Flatten(),
        Linear(math.prod(input_shape), 128),
        Linear(128, num_classes),
    )
