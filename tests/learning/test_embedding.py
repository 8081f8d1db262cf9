"""What a model makes of noise: the image, and probabilities as a model in use gives them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedul_flwr.learning.device import place
from fedul_flwr.learning.helpers import embed, noise_point
from fedul_flwr.learning.plan import CPU, LocalPlan


class Doubled(nn.Module):
    """Logits (x, 2x, 0) of one pixel x."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        x = inputs.flatten(1)
        return torch.cat([x, 2 * x, 0 * x], dim=1)


def test_an_embedding_by_hand() -> None:
    # exp(1), exp(2), exp(0) over 11.107338.
    found = embed(Doubled(), torch.ones(1, 1, 1, 1), LocalPlan())
    assert found.shape == (3,)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [0.244728, 0.665241, 0.090031], atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_it_is_of_the_model_in_use(precision: str) -> None:
    dtype = getattr(torch, precision)
    """Dropout and batch norm as in prediction, and neither model nor statistics change."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 4)
    model = place(nn.Sequential(*layers), CPU, precision).train()
    plan, noise = (
        replace(LocalPlan(), precision=precision),
        noise_point((4, 4, 2), np.random.default_rng(2)),
    )
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = embed(model, noise, plan)
    with torch.no_grad():
        expected = model.eval()(noise.to(dtype)).softmax(dim=1)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(embed(model.train(), noise, plan), found)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    model(noise.to(dtype)).sum().backward()  # it can still be trained
