"""Training of the last linear layer alone."""

from __future__ import annotations

import numpy as np
from torch import nn
from torch.nn import functional

from fedul_flwr.learning.batches import point_batches
from fedul_flwr.learning.local import dump_arrays, on_logits, train_local
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.models import build_model
from fedul_flwr.models.last_layer import feature_layer, only_heads

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 8, 8, 1), dtype=np.uint8)
LABELS = RNG.integers(0, 3, 12)


def changed(model: nn.Module, plan: LocalPlan) -> set[str]:
    """Names of the arrays that a round of training changes."""
    before = {name: array.copy() for name, array in dump_arrays(model).items()}
    batches = point_batches(IMAGES, np.arange(12), LABELS, plan)
    train_local(model, batches, on_logits(functional.cross_entropy), plan, np.random.default_rng(1))
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
