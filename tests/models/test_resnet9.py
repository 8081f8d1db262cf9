"""ResNet-9: its layers in order, its skips, what feeds its last layer, and a pass by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedul_flwr.models import build_model
from fedul_flwr.models.last_layer import feature_layer, inputs_of


def inputs(height: int, width: int) -> torch.Tensor:
    return torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_a_pass_of_the_papers_table_step_by_step() -> None:
    model = build_model("resnet9-quarter", (32, 32, 3), 10, seed=1).eval()
    weights = list(model.parameters())

    def conv(values: torch.Tensor, layer: int) -> torch.Tensor:
        return functional.conv2d(values, weights[layer - 1], padding=1).relu()

    with torch.no_grad():
        values = conv(conv((inputs(32, 32) + 1) / 2, 1), 2)
        values = functional.max_pool2d(values, 2)
        values = functional.max_pool2d(conv(values + conv(conv(values, 3), 4), 5), 2)
        values = functional.max_pool2d(conv(values, 6), 2)
        values = (values + conv(conv(values, 7), 8)).amax(dim=(2, 3))
        torch.testing.assert_close(model(inputs(32, 32)), values @ weights[8].T)


@pytest.mark.parametrize(
    ("height", "width", "places"),
    [
        (8, 8, 1),
        (28, 28, 1),  # 3 x 3 are left, which one pooling takes
        (32, 32, 1),
        (63, 63, 1),  # 7 x 7 are left, of which the pooling takes 4 x 4
        (64, 32, 2),
        (16, 96, 3),  # 2 x 12
    ],
)
def test_features_are_what_the_last_pooling_leaves(height: int, width: int, places: int) -> None:
    model = build_model("resnet9-quarter", (height, width, 3), 5).eval()
    with inputs_of(feature_layer(model)) as seen, torch.no_grad():
        model(inputs(height, width))
    assert seen[0].shape == (2, 128 * places)
    assert (seen[0] >= 0).all()
    assert (seen[0] > 0).any()
