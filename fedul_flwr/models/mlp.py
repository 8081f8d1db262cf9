"""Models for vectors and flattened images: a multilayer perceptron and a linear layer."""

from __future__ import annotations

import math

from torch import nn

from fedul_flwr.config.training_settings import ModelOptions
from fedul_flwr.data.types import InputShape
from fedul_flwr.models.linear import Linear


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
