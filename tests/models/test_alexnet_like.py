"""The small AlexNet: its layers in order, and what feeds its last one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedul_flwr.models import build_model
from fedul_flwr.models.last_layer import feature_layer


def test_the_layers_in_order() -> None:
    with torch.device("meta"):
        model = build_model("alexnet-like", (32, 32, 3), 10)
    block = ["Conv2d", "ReLU", "MaxPool2d"]
    kinds = [type(layer).__name__ for layer in model]
    linear = ["Linear", "ReLU"]
    assert kinds == ["UnitRange", *block * 3, "Flatten", *linear, *linear, "Linear"]
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d)]
    linear_layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    assert [layer.out_channels for layer in layers] == [64, 128, 256]
    assert [layer.kernel_size for layer in layers] == [(4, 4), (3, 3), (2, 2)]
    assert {layer.padding for layer in layers} == {(0, 0)}
    assert [layer.out_features for layer in linear_layers] == [2048, 2048, 10]
    assert feature_layer(model) is model[-1]


@pytest.mark.parametrize(
    ("height", "width", "places"),
    [
        (19, 19, 1),  # 16 -> 8, 6 -> 3, 2 -> 1
        (32, 32, 4),  # 29 -> 14, 12 -> 6, 5 -> 2
        (28, 40, 6),  # 25 -> 12, 10 -> 5, 4 -> 2; 37 -> 18, 16 -> 8, 7 -> 3
    ],
)
def test_places_that_are_left(height: int, width: int, places: int) -> None:
    with torch.device("meta"):
        model = build_model("alexnet-like", (height, width, 1), 10)
        assert model(torch.zeros(2, 1, height, width)).shape == (2, 10)
    assert model[11].in_features == 256 * places
