"""A second head on any model: by hand, beside the first, and through a run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.models import build_model
from fedul_flwr.models.last_layer import TwoHeads, feature_layer
from tests.support.refusals import refuses
from tests.support.runs import last_model, train

INPUTS = torch.rand(4, 1, 12, 12, generator=torch.Generator().manual_seed(0))


def test_both_heads_by_hand() -> None:
    # One pixel x, features (x, 2x); the heads have weights (1, 1) and (10, −1).
    body, head = nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False)
    model = TwoHeads(nn.Sequential(nn.Flatten(), body, head), num_classes=1)
    with torch.no_grad():
        body.weight.copy_(torch.tensor([[1.0], [2.0]]))
        head.weight.fill_(1.0)
        model.second.weight.copy_(torch.tensor([[10.0, -1.0]]))
        model.second.bias.fill_(0.5)
    inputs = torch.tensor([3.0, -1.0]).reshape(2, 1, 1, 1)
    first, second = model.both(inputs)
    assert first.tolist() == [[9.0], [-3.0]]
    assert second.tolist() == [[24.5], [-7.5]]  # 10·3 − 6 + 0.5, −10 + 2 + 0.5
    assert model(inputs).equal(first)


@pytest.mark.parametrize("name", ["mlp", "cnn13-quarter", "torchvision:mobilenet_v3_small"])
def test_the_first_head_and_its_weights_are_the_models_without_a_second(name: str) -> None:
    plain = build_model(name, (12, 12, 1), 5, seed=3).eval()
    model = build_model(f"{name}+head", (12, 12, 1), 5, seed=3).eval()
    assert isinstance(model, TwoHeads)
    assert feature_layer(model) is feature_layer(model.model)
    assert model(INPUTS).equal(plain(INPUTS))
    own = {f"model.{key}": array for key, array in plain.state_dict().items()}
    state = model.state_dict()
    assert state.keys() - own.keys() == {"second.weight", "second.bias"}
    assert all(state[key].equal(own[key]) for key in own)


def test_what_has_no_linear_layer_gets_no_second_head() -> None:
    with refuses("model-unfit"):
        build_model("torchvision:squeezenet1_1+head", (32, 32, 3), 5)


def test_a_method_with_one_head_leaves_the_second_alone(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"num_rounds": 1, "local_epochs": 1, "l1": 1e-4, "weight_decay": 1e-3}
    plain = last_model(train(settings(model="mlp", **quick), 2))
    found = last_model(train(settings(model="mlp+head", **quick), 2))
    for name, array in plain.items():
        np.testing.assert_array_equal(found[f"model.{name}"], array)
    fresh = build_model("mlp+head", (8, 8, 1), 10).state_dict()
    np.testing.assert_array_equal(found["second.weight"], fresh["second.weight"])
