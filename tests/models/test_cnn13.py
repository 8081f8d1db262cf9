"""The 13-layer network: its layers in order, what feeds its last one, and weight normalization."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedul_flwr.models import build_model
from fedul_flwr.models.last_layer import feature_layer, inputs_of

INPUTS = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1


def features(name: str) -> Tensor:
    model = build_model(name, (16, 16, 3), 5).eval()
    with inputs_of(feature_layer(model)) as seen, torch.no_grad():
        model(INPUTS)
    return seen[0]


@pytest.mark.parametrize(("name", "width"), [("cnn13", 128), ("cnn13-quarter", 32)])
def test_features_have_unit_length(name: str, width: int) -> None:
    found = features(name)
    assert found.shape == (4, width)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(4))


def test_plain_features_are_the_same_before_they_are_scaled() -> None:
    plain, scaled = features("cnn13-plain"), features("cnn13")
    assert not torch.allclose(plain.norm(dim=1), torch.ones(4), atol=0.01)
    torch.testing.assert_close(plain / plain.norm(dim=1, keepdim=True), scaled)


def test_the_layers_in_order() -> None:
    model = build_model("cnn13", (32, 32, 3), 10)
    block = ["Conv2d", "BatchNorm2d", "LeakyReLU"]
    pool, end = ["MaxPool2d", "Dropout"], ["AdaptiveAvgPool2d", "Flatten", "UnitLength", "Linear"]
    kinds = [type(layer).__name__.removeprefix("Parametrized") for layer in model.children()]
    assert kinds == [*block * 3, *pool, *block * 3, *pool, *block * 3, *end]
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == [128] * 3 + [256] * 3 + [512, 256, 128]
    assert [layer.kernel_size[0] for layer in layers] == [3] * 7 + [1, 1]
    assert [layer.padding for layer in layers] == [(1, 1)] * 6 + [(0, 0)] * 3
    slopes = {layer.negative_slope for layer in model.modules() if isinstance(layer, nn.LeakyReLU)}
    dropped = {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)}
    assert (slopes, dropped) == ({0.1}, {0.5})


def test_length_and_direction_of_weights_are_learned_apart() -> None:
    model: Any = build_model("cnn13-quarter", (12, 12, 1), 5)
    for layer in (model[0], model[-1]):
        length, direction = layer.parametrizations.weight.parameters()
        assert length.numel() == len(direction)
        rows = direction.flatten(1)
        expected = length.flatten()[:, None] * rows / rows.norm(dim=1, keepdim=True)
        torch.testing.assert_close(layer.weight.flatten(1), expected)
