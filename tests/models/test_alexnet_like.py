"""The small AlexNet: its layers in order, and what feeds its last one."""

from __future__ import annotations

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
