"""Two linear layers without anything between them: XCLP's linear embedding (appendix B.1)."""

from __future__ import annotations

from torch import nn


def mlp_linear(image_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """A linear layer to 128 features, the embedding, and one to the classes.

    It tells no more classes apart than one linear layer would. The paper does not say how wide the
    embedding is; 128 is ours.
    """
    height, width, channels = image_shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(height * width * channels, 128),
        nn.Linear(128, num_classes),
    )
