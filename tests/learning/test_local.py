"""The local loop against steps by hand, autograd and a plain loop; weights in and out."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.batches import point_batches
from fedul_flwr.learning.local import (
    LocalResult,
    build_optimizer,
    dump_arrays,
    load_arrays,
    local_normalizer,
    mean_gradient,
    predict_logits,
    train_local,
)
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Loss, Task, on_logits
from tests.support.refusals import refuses

RNG = np.random.default_rng(0)
IMAGES: NDArray[np.uint8] = RNG.integers(0, 256, (60, 6, 6, 2), dtype=np.uint8)
POINTS = RNG.permutation(60)[:40]
TARGETS = RNG.integers(0, 3, 40)
WIDE = LocalPlan(optimizer="sgd", learning_rate=0.1, batch_size=8, precision="float64")


def network(*, batch_norm: bool = True, dropout: float = 0.0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4) if batch_norm else nn.Identity(),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(4 * 4 * 4, 3),
        )


def train(
    model: nn.Module, plan: LocalPlan, seed: int = 0, loss: Loss = functional.cross_entropy
) -> LocalResult:
    batches = point_batches(IMAGES, POINTS, TARGETS, plan)
    return train_local(model, Task(batches, on_logits(loss)), plan, np.random.default_rng(seed))


def state(model: nn.Module) -> dict[str, NDArray[Any]]:
    return {name: array.copy() for name, array in dump_arrays(model).items()}


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(state(one).values(), state(other).values(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def twin(model: nn.Module, plan: LocalPlan, seed: int) -> list[float]:
    """The loop as plainly as it can be written, penalties in the loss."""
    rng = np.random.default_rng(seed)
    model.double().train()
    weights = list(model.parameters())
    start = [weight.detach().clone() for weight in weights]
    optimizer: torch.optim.Optimizer
    if plan.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            weights, lr=plan.learning_rate, momentum=plan.momentum, weight_decay=plan.weight_decay
        )
    else:
        optimizer = torch.optim.Adam(
            weights, lr=plan.learning_rate, weight_decay=plan.weight_decay, foreach=False
        )
    rng.integers(2**63)  # the seed of dropout
    losses = []
    for _ in range(plan.local_epochs):
        for inputs, targets, _ in point_batches(IMAGES, POINTS, TARGETS, plan)(rng):
            value = functional.cross_entropy(model(inputs.double()), targets)
            losses.append(float(value.detach()))
            if plan.l1:
                value = value + plan.l1 * sum(weight.abs().sum() for weight in weights)
            if plan.proximal_mu:
                distance = sum(((w - s) ** 2).sum() for w, s in zip(weights, start, strict=True))
                value = value + plan.proximal_mu / 2 * distance
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    return losses


def test_given_steps_of_whole_epochs_then_those_epochs() -> None:
    # 40 points in batches of 8 are 5 steps an epoch.
    epochs, steps = network(), network()
    one = train(epochs, replace(WIDE, local_epochs=3))
    assert train(steps, replace(WIDE, local_steps=15)) == one == LocalResult(one.loss, 15)
    assert same(epochs, steps)


@pytest.mark.parametrize("steps", [1, 4, 7])
def test_given_a_number_of_steps_then_so_many_with_the_same_batches(steps: int) -> None:
    seen: list[NDArray[Any]] = []
    batches = point_batches(IMAGES, POINTS, TARGETS, replace(WIDE, local_steps=steps))
    for batch in batches.of_round(replace(WIDE, local_steps=steps), np.random.default_rng(3)):
        seen.append(batch.inputs.numpy())
    whole = batches.of_round(replace(WIDE, local_epochs=2), np.random.default_rng(3))
    expected = [batch.inputs.numpy() for batch in whole][:steps]
    assert len(seen) == steps
    assert all(np.array_equal(a, b) for a, b in zip(seen, expected, strict=True))


PLANS = {
    "plain": {},
    "momentum": {"momentum": 0.9, "local_epochs": 2},
    "weight decay": {"weight_decay": 0.1},
    "l1": {"l1": 0.05},
    "proximal": {"proximal_mu": 0.5, "local_epochs": 2},
    "all": {"l1": 0.01, "proximal_mu": 0.5, "momentum": 0.5, "weight_decay": 0.01},
    "adam": {"optimizer": "adam", "learning_rate": 1e-3, "weight_decay": 0.01, "local_epochs": 2},
    "one batch": {"batch_size": 0, "local_epochs": 3},
    "augmented": {"augment": "rotate"},
}


@pytest.mark.parametrize("options", PLANS.values(), ids=PLANS)
def test_equals_a_plain_loop(options: dict[str, Any]) -> None:
    plan = replace(WIDE, **options)
    model, expected = network(), network()
    result, losses = train(model, plan, seed=3), twin(expected, plan, seed=3)
    assert result.steps == len(losses)
    assert result.loss == pytest.approx(np.mean(losses), rel=1e-12)
    for (name, found), wanted in zip(state(model).items(), state(expected).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=name)


def test_the_seed_decides_order_augmentation_and_dropout() -> None:
    plan = replace(WIDE, augment="flip", precision="float32", optimizer="adam")
    models = [network(dropout=0.5) for _ in range(3)]
    for model, seed, disturbance in zip(models, (1, 1, 2), (5, 6, 7), strict=True):
        torch.manual_seed(disturbance)
        train(model, plan, seed)
    assert same(models[0], models[1])
    assert not same(models[0], models[2])
    whole = replace(plan, augment="none", batch_size=0)  # what is left to the seed is dropout
    models = [network(dropout=0.5) for _ in range(2)]
    for model, seed in zip(models, (1, 2), strict=True):
        train(model, whole, seed)
    first, second = (state(model)["0.weight"] for model in models)
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_an_error(value: float) -> None:
    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return logits.sum() * 0 + value * targets.float().sum().clamp(min=1)

    with refuses("loss-not-finite"):
        train(network(), WIDE, loss=loss)


# Prediction


def test_predictions_are_the_models_in_evaluation_mode() -> None:
    model = network(dropout=0.5)
    train(model, replace(WIDE, precision="float32"))
    before = state(model)
    model.train()
    found = predict_logits(model, IMAGES, POINTS)
    inputs = torch.from_numpy(IMAGES[POINTS]).permute(0, 3, 1, 2).float() / 127.5 - 1
    with torch.no_grad():
        expected = model.eval()(inputs)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    after = state(model)
    assert before["1.num_batches_tracked"] == 5
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_model_that_predicted_first_can_be_trained(precision: str) -> None:
    # A process may be asked to evaluate before it ever trained.
    plan, model, fresh = replace(WIDE, precision=precision), network(), network()
    start = state(model)
    predict_logits(model, IMAGES, POINTS, plan)
    load_arrays(model, start)
    train(model, plan)
    train(fresh, plan)
    assert same(model, fresh)


# Weights in and out


def test_loaded_arrays_are_copied_and_cast() -> None:
    model = network()
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in state(model).items()}
    arrays["0.weight"] += 1
    load_arrays(model, arrays)
    kept = arrays["0.weight"].copy()
    train(model, replace(WIDE, precision="float32"))
    np.testing.assert_array_equal(arrays["0.weight"], kept)
    assert model[0].weight.dtype == torch.float32


def test_arrays_of_another_model_are_refused() -> None:
    model = network()
    arrays = state(model)
    missing = {name: array for name, array in arrays.items() if name != "5.bias"}
    with pytest.raises(ValueError, match=r"'5\.bias' \(1 "):
        load_arrays(model, missing)
    with pytest.raises(ValueError, match=r"'9\.bias' \(1 "):
        load_arrays(model, {**arrays, "9.bias": np.zeros(3)})
    message = r"array '5\.bias' has shape \(1,\), the model's has \(3,\)"
    with pytest.raises(ValueError, match=message):  # and it would broadcast
        load_arrays(model, {**arrays, "5.bias": np.zeros(1)})


def test_given_a_weight_without_a_gradient_at_first_then_adam_counts_its_steps_apart() -> None:
    one_model, other_model = network().double(), network().double()
    plan = LocalPlan(optimizer="adam", learning_rate=0.01, weight_decay=0.1)
    mine = build_optimizer(list(one_model.parameters()), plan)
    theirs = torch.optim.Adam(other_model.parameters(), lr=0.01, weight_decay=0.1, foreach=False)
    rng = np.random.default_rng(2)
    for step in range(5):
        pairs = zip(one_model.parameters(), other_model.parameters(), strict=True)
        for index, (one, other) in enumerate(pairs):
            one.grad = other.grad = None
            if index != 1 or step > 2:
                one.grad = torch.from_numpy(rng.normal(size=tuple(one.shape)))
                other.grad = one.grad.clone()
        mine.step()
        theirs.step()
    for one, other in zip(one_model.parameters(), other_model.parameters(), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=1e-12, atol=1e-15)
    mine.zero_grad()
    assert all(weight.grad is None for weight in one_model.parameters())


def test_the_normalizer_by_hand() -> None:
    # Momentum .5: velocities 1, 1.5, 1.75; their sum is 4.25.
    assert local_normalizer(3, replace(WIDE, momentum=0.5)) == 4.25
    # mu = 1, eta = .1: the first step leads 1 away, the second 1 − .1·1 = .9 further.
    assert local_normalizer(2, replace(WIDE, proximal_mu=1.0)) == pytest.approx(1.9)
    # In closed form (1 − (1 − eta·mu)^n) / (eta·mu).
    found = local_normalizer(20, replace(WIDE, proximal_mu=1.0))
    assert found == pytest.approx((1 - 0.9**20) / 0.1)


def test_the_mean_gradient_is_autograds_and_leaves_the_model_alone() -> None:
    model = network().double()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plan = replace(WIDE, l1=0.3, batch_size=0)
    batches, rng = point_batches(IMAGES, POINTS, TARGETS, plan), np.random.default_rng(0)
    task = Task(batches, on_logits(functional.cross_entropy))
    found = mean_gradient(model, task, plan, rng)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    inputs = torch.from_numpy(IMAGES[POINTS]).permute(0, 3, 1, 2).double() / 127.5 - 1
    l1 = sum(weight.abs().sum() for weight in model.parameters())
    loss = functional.cross_entropy(model.train()(inputs), torch.from_numpy(TARGETS)) + 0.3 * l1
    for mine, other in zip(found, torch.autograd.grad(loss, list(model.parameters())), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-7)


def test_given_a_model_on_another_device_then_read_only_arrays_are_copied_there() -> None:
    """The meta device takes any values of the right type, and has none."""
    model = nn.Linear(2, 1)
    arrays = {name: np.array(array) for name, array in dump_arrays(model).items()}
    for array in arrays.values():
        array.flags.writeable = False
    elsewhere = nn.Linear(2, 1, device="meta")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of memory that it may not write to
        load_arrays(elsewhere, arrays)
    with pytest.raises(ValueError, match=r"'bias' .*shape"):
        load_arrays(elsewhere, {**arrays, "bias": np.zeros(3, np.float32)})


def test_the_mean_is_over_batches_and_a_weight_without_part_has_gradient_zero() -> None:
    # Without batch norm the mean over five equal batches is the gradient over all points.
    model = network(batch_norm=False).double()
    model.register_parameter("unused", nn.Parameter(torch.ones(2, dtype=torch.float64)))

    def gradient(batch_size: int) -> list[Tensor]:
        plan = replace(WIDE, batch_size=batch_size)
        batches, rng = point_batches(IMAGES, POINTS, TARGETS, plan), np.random.default_rng(0)
        task = Task(batches, on_logits(functional.cross_entropy))
        return mean_gradient(model, task, plan, rng)

    for found, whole in zip(gradient(8), gradient(0), strict=True):
        np.testing.assert_allclose(found, whole, rtol=0, atol=1e-12)
    names = [name for name, _ in model.named_parameters()]
    assert gradient(8)[names.index("unused")].tolist() == [0, 0]
