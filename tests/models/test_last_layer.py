"""The last linear layer: a second head on any model, and training of the heads alone."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning.batches import point_batches
from fedul_flwr.learning.local import dump_arrays, train_local
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Task, on_logits
from fedul_flwr.models import build_model
from fedul_flwr.models.parts import TwoHeads, feature_layer, only_heads
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


@pytest.mark.parametrize("method", ["proxyfl", "closed-form-labels"])
def test_a_last_layer_with_weight_normalization_is_refused_where_it_would_be_set(
    settings: Callable[..., RunConfig], method: str
) -> None:
    quick = {"num_rounds": 2, "image_size": 12, "model": "cnn13-quarter", "labels.total": 40}
    with refuses("model-unfit", setting="model"):
        train(settings(method=method, **quick), 3)


def test_projections_stand_before_the_model_whose_weights_stay() -> None:
    plain, model = (build_model(name, (4,), 3, seed=3) for name in ("mlp", "mlp+projections"))
    assert feature_layer(model) is feature_layer(model.model)
    points = torch.rand(2, 4)
    assert model(points).equal(plain(points))
    added = {"of_features.weight", "of_features.bias", "of_rows.weight"}
    assert added == {key for key in model.state_dict() if not key.startswith("model.")}


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


# Training of the heads alone

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 8, 8, 1), dtype=np.uint8)
LABELS = RNG.integers(0, 3, 12)


def changed(model: nn.Module, plan: LocalPlan) -> set[str]:
    """Names of the arrays that a round of training changes."""
    before = {name: array.copy() for name, array in dump_arrays(model).items()}
    batches = point_batches(IMAGES, np.arange(12), LABELS, plan)
    task = Task(batches, on_logits(functional.cross_entropy))
    train_local(model, task, plan, np.random.default_rng(1))
    return {name for name, array in dump_arrays(model).items() if (array != before[name]).any()}


def plan(heads_only: bool) -> LocalPlan:
    return LocalPlan(batch_size=4, learning_rate=0.1, l1=0.1, heads_only=heads_only)


def test_given_heads_only_then_no_other_weight_and_no_statistic_changes() -> None:
    model = build_model("cnn6-quarter", (8, 8, 1), 3)
    assert any("running_mean" in name for name in model.state_dict())
    last = next(name for name, m in model.named_modules() if m is feature_layer(model))
    assert changed(model, plan(heads_only=True)) == {f"{last}.weight", f"{last}.bias"}


def test_given_heads_only_before_then_all_layers_are_trained_again() -> None:
    model = build_model("cnn6-quarter", (8, 8, 1), 3)
    changed(model, plan(heads_only=True))
    # But for batch norm's count of batches, whose change is not the weights' business, every array.
    assert changed(model, plan(heads_only=False)) == set(model.state_dict())


def test_given_two_heads_then_both_are_trained_alone() -> None:
    model = build_model("mlp+head", (8, 8, 1), 3)
    with only_heads(model):
        trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {"second.weight", "second.bias", "model.5.weight", "model.5.bias"}
    assert all(weight.requires_grad for weight in model.parameters())
