"""SemiFL's and (FL)²'s client by the formulas of their papers and of their authors' code."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.learning import fix_mix
from fedul_flwr.learning.batch_statistics import (
    BATCH,
    norm_statistics,
    num_statistic_batches,
    statistic_names,
)
from fedul_flwr.learning.batches import fix_mix_batches, point_batches
from fedul_flwr.learning.fix_mix import FixMixLoss, select, sharpness_aware
from fedul_flwr.learning.local import train_local
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU, LocalPlan
from fedul_flwr.learning.task import Batch, Batches, Task, on_logits

WIDE: Any = {"dtype": torch.float64}
PLAN = LocalPlan(
    batch_size=0,
    optimizer="sgd",
    learning_rate=0.1,
    momentum=0.9,
    nesterov=True,
    precision="float64",
)


def network_of(*sizes: int, norm: bool = False) -> Network:
    """Linear layers with tanh between them, batch norm before the first of these."""
    torch.manual_seed(3)
    layers: list[nn.Module] = [nn.Linear(*pair) for pair in pairwise(sizes)]
    for position in range(len(layers) - 1, 0, -1):
        layers.insert(position, nn.Tanh())
    if norm:
        layers.insert(1, nn.BatchNorm1d(sizes[1]))
    return Network(nn.Sequential(*layers).double().train(), CPU, "float64")


def test_given_a_threshold_then_points_at_it_or_above_are_chosen() -> None:
    found = select(torch.tensor([[0.96, 0.04], [0.1, 0.9], [0.2, 0.8]], **WIDE), 0.9)
    assert found.labels.tolist() == [0, 1, 1]
    assert found.chosen.tolist() == [True, True, False]
    assert found.sure.tolist() == [True, False, False]
    assert found.mean_top == pytest.approx((0.96 + 0.9 + 0.8) / 3)


def test_given_adaptive_thresholds_then_they_are_those_of_the_formula() -> None:
    """tau = (.9 + .6 + .7)/3 = .7333; the classes' means are .6 and .4, so class 1 needs 2/3 of
    it, .4889."""
    found = select(torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]], **WIDE), ADAPTIVE)
    assert found.mean_top == pytest.approx(2.2 / 3)
    assert found.chosen.tolist() == [True, False, True]


def test_given_points_that_are_all_alike_then_all_reach_the_adaptive_threshold() -> None:
    for top in (0.1 + 0.2 + 0.3, 1 / 3, 0.7):
        found = select(torch.tensor([[top, 1 - top]] * 7, **WIDE), ADAPTIVE)
        assert found.chosen.all()


def test_given_four_labels_and_points_then_the_classes_are_aligned() -> None:
    """Labels (3+1, 1+1)/6, points (4 · 0.25 + 1, 4 · 0.75 + 1)/6; 0.2 · 2 and 0.8 / 2 are equal."""
    factors = fix_mix.class_factors(np.array([3, 1]), np.array([0.25, 0.75]), 4)
    np.testing.assert_allclose(factors, [2, 0.5])
    found = fix_mix.aligned(torch.tensor([[0.2, 0.8]]), torch.tensor(factors, dtype=torch.float32))
    assert found.tolist() == [[0.5, 0.5]]


def test_given_an_epoch_then_every_sure_point_comes_once_with_any_other() -> None:
    stored = np.arange(20, dtype=np.float32).reshape(20, 1)
    points, labels = np.arange(10, 20), np.arange(10) % 3
    sure = np.array([1, 4, 5, 8])
    batches = fix_mix_batches(stored, points, labels, sure, LocalPlan(batch_size=2))
    found, others = [], []
    for inputs, targets, _ in batches(np.random.default_rng(1)):
        rows = inputs[:, 0].long().numpy()
        assert len(rows) == 4
        np.testing.assert_array_equal(targets.numpy(), (rows - 10) % 3)
        found += rows[:2].tolist()
        others += rows[2:].tolist()
    assert sorted(found) == [11, 14, 15, 18]
    assert set(others) - {11, 14, 15, 18}  # unsure ones, too


def strong(inputs: Tensor) -> Tensor:
    return inputs.flip(1) * 1.5


def weak(inputs: Tensor) -> Tensor:
    return inputs + 0.25


def test_given_a_batch_then_loss_and_step_are_the_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    """CE(f(strong x), y) + lam CE(f(m), y) + (1 - lam) CE(f(m), y'), m of weak views; gradient
    clipped to norm 1, then SGD 0.03 with Nesterov's momentum 0.9 and weight decay 5e-4."""
    monkeypatch.setattr("fedul_flwr.learning.fix_mix.mixing_ratio", lambda *_: 0.3)
    rng = np.random.default_rng(0)
    stored = rng.normal(0, 3, (8, 4)).astype(np.float32)
    labels = rng.integers(0, 3, 8)
    plan = replace(
        PLAN, learning_rate=0.03, weight_decay=5e-4, max_gradient_norm=1.0, local_epochs=4
    )
    ours, theirs = (network_of(4, 5, 3).model for _ in "ab")
    batches = fix_mix_batches(stored, np.arange(8), labels, np.array([0, 3, 5, 6]), plan)
    seen: list[tuple[Tensor, Tensor]] = []

    def watched(rng: np.random.Generator) -> Any:
        for batch in batches(rng):
            seen.append(batch)
            yield batch

    loss = FixMixLoss(3, strong, weak)
    result = train_local(ours, Task(Batches(1, watched), loss), plan, np.random.default_rng(2))

    optimizer = torch.optim.SGD(
        theirs.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    losses, norms = [], []
    for inputs, targets, _ in seen:
        x, m = inputs.double().split(4)
        y, y_m = targets.split(4)
        mixed = 0.3 * (x + 0.25) + 0.7 * (m + 0.25)
        optimizer.zero_grad()
        value = functional.cross_entropy(theirs(x.flip(1) * 1.5), y)
        output = theirs(mixed)
        value = value + 0.3 * functional.cross_entropy(output, y)
        value = value + 0.7 * functional.cross_entropy(output, y_m)
        value.backward()  # type: ignore[no-untyped-call]
        norms.append(float(nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)))
        optimizer.step()
        losses.append(float(value.detach()))
    assert max(norms) > 1  # something is cut
    assert result.loss == pytest.approx(np.mean(losses), rel=1e-9)
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, rtol=1e-9, atol=1e-12)


def test_given_momentum_that_is_kept_then_two_rounds_are_one_of_twice_the_epochs() -> None:
    stored = np.random.default_rng(0).normal(0, 1, (6, 4)).astype(np.float32)
    labels = np.array([0, 1, 2, 0, 1, 2])
    loss = on_logits(functional.cross_entropy)

    def trained(rounds: int, epochs: int, kept: Arrays | None) -> dict[str, Tensor]:
        model = network_of(4, 3).model
        plan = replace(PLAN, local_epochs=epochs)
        for _ in range(rounds):
            batches = point_batches(stored, np.arange(6), labels, plan)
            train_local(model, Task(batches, loss), plan, np.random.default_rng(1), velocity=kept)
        return dict(model.state_dict())

    whole, momentum = trained(1, 4, None), {}
    in_two = trained(2, 2, momentum)
    assert momentum.keys() == whole.keys()
    assert any(array.any() for array in momentum.values())
    forgetful = trained(2, 2, None)
    for name, weight in whole.items():
        torch.testing.assert_close(in_two[name], weight, rtol=1e-12, atol=1e-14)
        assert not torch.allclose(forgetful[name], weight)


# (FL)²: sharpness


def test_given_sharpness_then_value_and_gradient_are_those_of_the_authors_steps() -> None:
    """ASAM: t = |w| + 0.01 for weights, 1 for biases; e = rho t (t g) / |t g|; KL(p_w || p_{w+e})
    of sure points, mean over all, and its gradient at w + e."""
    network = network_of(4, 5, 3)
    model, rho = network.model, 0.4
    points, labels = torch.randn(5, 4, **WIDE), torch.tensor([0, 1, 2, 0, 1])
    sure = torch.tensor([True, False, True, True, False])

    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    found = sharpness_aware(network, points, labels, sure, rho)
    found.backward()  # type: ignore[no-untyped-call]
    ours = {name: cast(Tensor, weight.grad).clone() for name, weight in model.named_parameters()}
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name])

    model.zero_grad()
    p = model(points).softmax(1).detach()
    functional.cross_entropy(model(points)[sure], labels[sure]).backward()  # type: ignore[no-untyped-call]
    scaled = {
        name: weight.grad * (weight.abs() + 0.01 if "weight" in name else 1.0)
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    norm = torch.sqrt(sum(part.square().sum() for part in scaled.values()))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scale = weight.abs() + 0.01 if "weight" in name else torch.ones_like(weight)
            weight.add_(rho * scale * scaled[name] / norm)
    model.zero_grad()
    q = model(points).log_softmax(1)
    value = ((p * (p.log() - q)).sum(1) * sure).sum() / 5
    value.backward()  # type: ignore[no-untyped-call]
    assert float(found.detach()) == pytest.approx(float(value.detach()), rel=1e-9)
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(ours[name], weight.grad, rtol=1e-9, atol=1e-12)


def test_given_sure_points_then_their_sharpness_is_added_to_the_loss_of_all() -> None:
    network = network_of(4, 5, 3, norm=True)
    points = torch.randn(8, 4, **WIDE)
    targets = torch.tensor([0, 1 + 3, 2, 0 + 3, 0, 0, 0, 0])  # the second and the last are sure
    sharp = FixMixLoss(3, strong, weak, mix_weight=0.0, sharpness=0.3)
    plain = FixMixLoss(3, strong, weak, mix_weight=0.0)
    found = sharp(network, Batch(points, targets))
    found.backward()  # type: ignore[no-untyped-call]
    without = plain(network, Batch(points, targets))
    sure = torch.tensor([False, True, False, True])
    added = sharpness_aware(network, strong(points[:4]), targets[:4] % 3, sure, 0.3).detach()
    assert float(added) > 0
    torch.testing.assert_close(found.detach(), without.detach() + added)
    unsure = sharp(network, Batch(points, targets % 3))
    torch.testing.assert_close(unsure.detach(), without.detach())


def test_given_training_then_statistics_of_batch_norm_stay() -> None:
    network = network_of(4, 5, 3, norm=True)
    before = {n: t.clone() for n, t in network.model.state_dict().items() if "running" in n}
    points = torch.randn(8, 4, **WIDE)
    FixMixLoss(3, strong, weak, sharpness=0.3)(
        network, Batch(points, torch.tensor([3, 4, 5, 3, 0, 0, 1, 1]))
    )
    for name, value in before.items():
        assert torch.equal(network.model.state_dict()[name], value)


def test_given_two_batches_then_statistics_are_means_of_those_of_each() -> None:
    rng = np.random.default_rng(0)
    stored = rng.normal(2, 3, (BATCH + 50, 4)).astype(np.float32)
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2))
    points = np.arange(BATCH + 50)
    found, count = norm_statistics(model, stored, points, LocalPlan())
    parts = [stored[:BATCH], stored[BATCH:]]
    assert count == num_statistic_batches(len(points)) == 2
    assert list(found) == statistic_names(model) == ["1.running_mean", "1.running_var"]
    mean = np.mean([part.mean(axis=0) for part in parts], axis=0)
    variance = np.mean([part.var(axis=0, ddof=1) for part in parts], axis=0)
    np.testing.assert_allclose(found["1.running_mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["1.running_var"], variance, rtol=1e-5)
    assert model[1].momentum == 0.1
