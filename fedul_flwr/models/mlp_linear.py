"""Two linear layers without an activation in between: XCLP's linear embedding (appendix B.1)."""

from __future__ import annotations

import math

from torch import nn

from fedul_flwr.data.types import InputShape
from fedul_flwr.models.linear import Linear


def mlp_linear(input_shape: InputShape, num_classes: int) -> nn.Module:
    """A linear layer to 128 features, the embedding, and one to the classes.

    It can represent no more than one linear layer. The paper does not give the width of the
    embedding; 128 is our choice.
    """
    return nn.Sequential(
        nn.Flatten(),
        Linear(math.prod(input_shape), 128),
        Linear(128, num_classes),
    )
