"""Inputs in [0, 1], and weights drawn by variance scaling."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fedul_flwr.models.parts import UnitRange, scale_variance


def test_inputs_become_pixels_divided_by_255() -> None:
    inputs = torch.tensor([-1.0, 0, 0.5, 1])
    assert UnitRange()(inputs).tolist() == [0, 0.5, 0.75, 1]
    assert inputs.tolist() == [-1, 0, 0.5, 1]


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [(nn.Conv2d(3, 500, 5), 75), (nn.Linear(40, 900), 40), (nn.Linear(40, 900, bias=False), 40)],
)
def test_weights_have_variance_one_over_fan_in(layer: nn.Module, fan_in: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Sequential(layer))
    assert scale_variance(model) is model
    weights = layer.weight.detach().flatten().double()  # 36,000 and more of them
    # Relative error of the mean square of n draws: below sqrt(2/n) = .75 %; of the mean 1/sqrt(n).
    assert float(weights.square().mean()) * fan_in == pytest.approx(1, abs=0.035)
    assert abs(float(weights.mean())) * math.sqrt(fan_in) < 5 / math.sqrt(len(weights))
    # Cut off at two deviations, which is 2 / .8796 = 2.2737 of those that are left.
    largest = float(weights.abs().max()) * math.sqrt(fan_in)
    assert 2.26 < largest <= 2.27372
    assert layer.bias is None or not layer.bias.any()
