"""Settings of built-in models that have a size or dropout to choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class ModelOptions(NamedTuple):
    """Values of the settings `model-width`, `model-layers` and `model-dropout`."""

    width: int = 128
    layers: int = 2
    dropout: float = 0.0


def recorded_options(settings: Mapping[str, Any]) -> ModelOptions:
    """Options in flat settings, which may be older than the options."""
    given = {name: settings.get(f"model-{name}") for name in ModelOptions._fields}
    return ModelOptions(**{name: value for name, value in given.items() if value is not None})


MODEL_NAMES = (
    *("alexnet-like", "cnn2", "cnn4", "cnn6", "cnn6-quarter", "cnn13", "cnn13-plain"),
    *("cnn13-quarter", "cnn-small", "lenet", "linear", "mlp", "mlp-linear", "resnet9"),
    *("resnet9-quarter", "resnet18", "resnet18-fedul", "resnet18-small"),
)
"""Names of the built-in models, without loading PyTorch."""
PRETRAINED_MODELS = ("resnet18-fedul",)
"""Built-in models for which torchvision has weights, beside ``torchvision:NAME``."""
