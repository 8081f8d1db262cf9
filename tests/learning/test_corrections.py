"""FedNova's normaliser by hand and by what it is for; SCAFFOLD's gradient at the global model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.batches import point_batches
from fedul_flwr.learning.local import local_normalizer, mean_gradient, on_logits, train_local
from fedul_flwr.learning.plan import LocalPlan

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 6, 6, 1), dtype=np.uint8)
POINTS, TARGETS = np.arange(40), RNG.integers(0, 3, 40)
SGD = LocalPlan(optimizer="sgd", learning_rate=0.1, batch_size=8, precision="float64")


def test_the_normalizer_by_hand() -> None:
    # Momentum .5: velocities 1, 1.5, 1.75; their sum is 4.25.
    assert local_normalizer(3, replace(SGD, momentum=0.5)) == 4.25
    # mu = 1, eta = .1: the first step leads 1 away, the second 1 − .1·1 = .9 further.
    assert local_normalizer(2, replace(SGD, proximal_mu=1.0)) == pytest.approx(1.9)
    # In closed form (1 − (1 − eta·mu)^n) / (eta·mu).
    found = local_normalizer(20, replace(SGD, proximal_mu=1.0))
    assert found == pytest.approx((1 - 0.9**20) / 0.1)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.8}, {"momentum": 0.5, "proximal_mu": 0.7}])
def test_it_turns_a_way_back_into_its_gradient(options: dict[str, float]) -> None:
    """Of a loss linear in the weights, (x − y)/(eta·a) is the gradient, however one went."""
    plan = replace(SGD, **options, local_epochs=3, batch_size=0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 1)).double()
    before = model[1].weight.detach().clone()
    result = train_local(
        model,
        point_batches(IMAGES, POINTS, TARGETS, plan),
        on_logits(lambda logits, _: logits.mean()),
        plan,
        np.random.default_rng(0),
    )
    way = (before - model[1].weight.detach()) / (
        plan.learning_rate * local_normalizer(result.steps, plan)
    )
    mean_input = (IMAGES / 127.5 - 1).mean(axis=0).reshape(1, 36)
    np.testing.assert_allclose(way.numpy(), mean_input, atol=1e-6)  # inputs are float32


def conv_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
    ).double()


def test_the_mean_gradient_is_autograds_and_leaves_the_model_alone() -> None:
    model = conv_net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plan = replace(SGD, l1=0.3, batch_size=0)
    found = mean_gradient(
        model,
        point_batches(IMAGES, POINTS, TARGETS, plan),
        on_logits(functional.cross_entropy),
        plan,
        np.random.default_rng(0),
    )
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    inputs = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).double() / 127.5 - 1
    l1 = sum(weight.abs().sum() for weight in model.parameters())
    loss = functional.cross_entropy(model.train()(inputs), torch.from_numpy(TARGETS)) + 0.3 * l1
    for mine, other in zip(found, torch.autograd.grad(loss, list(model.parameters())), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-7)


def test_the_mean_is_over_batches_and_a_weight_without_part_has_gradient_zero() -> None:
    # Without batch norm the mean over five equal batches is the gradient over all points.
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).double()
    model.register_parameter("unused", nn.Parameter(torch.ones(2, dtype=torch.float64)))

    def gradient(batch_size: int) -> list[Tensor]:
        plan = replace(SGD, batch_size=batch_size)
        batches = point_batches(IMAGES, POINTS, TARGETS, plan)
        rng = np.random.default_rng(0)
        return mean_gradient(model, batches, on_logits(functional.cross_entropy), plan, rng)

    for found, whole in zip(gradient(8), gradient(0), strict=True):
        np.testing.assert_allclose(found, whole, rtol=0, atol=1e-12)
    names = [name for name, _ in model.named_parameters()]
    assert gradient(8)[names.index("unused")].tolist() == [0, 0]
