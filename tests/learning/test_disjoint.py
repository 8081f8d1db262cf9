"""Disjoint learning and its sums of weights: by hand, against autograd, and reductions."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.batches import matching_batches
from fedul_flwr.learning.device import move_model
from fedul_flwr.learning.disjoint import (
    Consistency,
    Decomposed,
    DisjointLoss,
    DisjointResult,
    Penalties,
    no_consistency,
    train_disjoint,
)
from fedul_flwr.learning.local import dump_arrays, train_local
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.parts import PSI, SIGMA, THETA, compose, decompose, flatten, unlabeled_part
from fedul_flwr.learning.plan import CPU, LocalPlan
from fedul_flwr.learning.pseudo_labels import scaled_cross_entropy
from fedul_flwr.learning.task import Batch, Batches, Task, on_logits
from tests.support.local_tasks import batch_of
from tests.support.refusals import refuses

Parts = dict[str, dict[str, Any]]
WIDE = LocalPlan(optimizer="sgd", learning_rate=0.1, batch_size=4, precision="float64")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (30, 4, 4, 2), dtype=np.uint8)
NONE = Penalties()
LABELS = np.where(np.arange(30) < 12, RNG.integers(0, 3, 30), -1)


def network(*, batch_norm: bool = False) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4) if batch_norm else nn.Identity(),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16, 3),
        )


def batches(labels: Any = LABELS, plan: LocalPlan = WIDE) -> Batches:
    return matching_batches(IMAGES, np.arange(len(labels)), labels, plan, 5)


def squares(net: Network, inputs: Tensor) -> Tensor:
    """A loss of unlabeled points that is simple to differentiate."""
    return net(inputs).pow(2).mean()


def learn(
    net: nn.Module,
    parts: Parts,
    consistency: Consistency = no_consistency,
    plan: LocalPlan = WIDE,
    penalties: Penalties = NONE,
    labels: Any = LABELS,
    weight: float = 1.0,
) -> tuple[Parts, DisjointResult]:
    decomposed = Decomposed(move_model(net, plan.device, plan.precision), parts)
    given, rng = batches(labels, plan), np.random.default_rng(1)
    loss = scaled_cross_entropy(weight)
    result = train_disjoint(
        decomposed, given, DisjointLoss(loss, consistency, penalties), plan, rng
    )
    return decomposed.dump(), result


def parts_of(net: nn.Module, psi_factor: float | None = 0.5, dtype: str = "f8") -> Parts:
    arrays = {name: array.copy() for name, array in dump_arrays(net).items()}
    floats = {n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    return decompose(floats, [name for name, _ in net.named_buffers()], psi_factor)


def moved(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name, array in one.items() if not np.array_equal(array, other[name])}


# By hand


class Line(nn.Module):
    """Logits (0, w·x) of one pixel x."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs.flatten(1) * self.w
        return torch.cat([torch.zeros_like(x), x], dim=1)


def one_pixel(*labels: int) -> Batches:
    """A batch of points x = 2, 4, 6 and so on."""

    def give(_: np.random.Generator) -> Iterator[Batch]:
        x = torch.arange(2, 2 * len(labels) + 2, 2).double().view(-1, 1, 1, 1)
        yield batch_of(x, torch.tensor(labels))

    return Batches(len(labels), give)


def line(sigma: float, psi: float) -> Decomposed:
    parts = {SIGMA: {"w": np.array([sigma])}, PSI: {"w": np.array([psi])}}
    return Decomposed(Line().double(), parts)


@pytest.mark.parametrize(("decay", "expected"), [(0.0, 0.51), (0.5, 0.50)])
def test_a_step_on_unlabeled_points_by_hand(decay: float, expected: float) -> None:
    # theta = 0.5, x = 2: the mean square of (0, 2 theta) is 2·theta² = 0.5, with slope
    # 4·theta = 2. Penalties: 2·λ_L2·(0.2 − 0.3) + λ_L1 = -6 + 0.9 with λ_L2 = 30, λ_L1 = 0.9.
    # psi ← 0.2 − 0.1·(2 − 6 + 0.9) = 0.51; a decay of 0.5 adds 0.5·0.2: 0.2 − 0.1·(-3) = 0.50.
    decomposed, plan = line(0.3, 0.2), replace(WIDE, weight_decay=decay)
    loss, rng, penalties = scaled_cross_entropy(1.0), np.random.default_rng(0), Penalties(30.0, 0.9)
    result = train_disjoint(
        decomposed, one_pixel(-1), DisjointLoss(loss, squares, penalties), plan, rng
    )
    dumped = decomposed.dump()
    assert float(dumped[PSI]["w"][0]) == pytest.approx(expected)
    assert float(dumped[SIGMA]["w"][0]) == 0.3
    assert result == DisjointResult(0.0, pytest.approx(0.5), 1)


def test_a_batch_learns_its_labels_first() -> None:
    # x = 2 has label 0, x = 4 none. As above sigma becomes -1.162117 (weight 10), so theta is
    # -0.962117; the mean square of (0, 4 theta) is 8·theta², its slope 16·theta = -15.393878:
    # psi ← 0.2 + 1.5393878.
    decomposed = line(0.3, 0.2)
    loss, rng = scaled_cross_entropy(10.0), np.random.default_rng(0)
    result = train_disjoint(decomposed, one_pixel(0, -1), DisjointLoss(loss, squares), WIDE, rng)
    dumped = decomposed.dump()
    assert float(dumped[SIGMA]["w"][0]) == pytest.approx(-1.162117, abs=1e-6)
    assert float(dumped[PSI]["w"][0]) == pytest.approx(1.739388, abs=1e-6)
    assert result.consistency == pytest.approx(8 * 0.962117**2, abs=1e-5)
    assert result.steps == 2


# Which part changes


@pytest.mark.parametrize("change", [{}, {"proximal_mu": 0.7}, {"momentum": 0.9}, {"l1": 0.02}])
def test_rounds_are_descent_on_both_losses(change: dict[str, float]) -> None:
    """Equations 4 and 5 by autograd, with the other part held fast."""
    plan = replace(WIDE, local_epochs=2, weight_decay=0.05, learning_rate=0.02, **change)
    net = network().double()
    start = parts_of(net)
    found, _ = learn(net, start, squares, plan, Penalties(0.8, 0.05), weight=3.0)

    own = {part: {n: torch.from_numpy(a) for n, a in start[part].items()} for part in start}
    velocity = {part: {n: torch.zeros_like(w) for n, w in own[part].items()} for part in own}

    def step(part: str, loss: Callable[[dict[str, Tensor], dict[str, Tensor]], Tensor]) -> None:
        leaves = {n: w.clone().requires_grad_() for n, w in own[part].items()}
        sigma, psi = (leaves if name == part else own[name] for name in (SIGMA, PSI))
        value = loss(sigma, psi)
        for n, w in leaves.items():
            anchor = torch.from_numpy(start[part][n])
            value = value + plan.proximal_mu / 2 * (w - anchor).pow(2).sum()
            value = value + plan.l1 * w.abs().sum() + plan.weight_decay / 2 * w.pow(2).sum()
        value.backward()
        for n, w in leaves.items():
            assert w.grad is not None
            velocity[part][n] = plan.momentum * velocity[part][n] + w.grad
            own[part][n] = (w - plan.learning_rate * velocity[part][n]).detach()

    def logits(sigma: dict[str, Tensor], psi: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.func.functional_call(net, {n: sigma[n] + psi[n] for n in sigma}, inputs)

    rng = np.random.default_rng(1)
    rng.integers(2**63)  # the seed of torch's generator
    for _ in range(2):
        for inputs, labels, _ in batches(plan=plan)(rng):
            x, known = inputs.double(), labels >= 0
            step(
                SIGMA,
                lambda s, p: 3 * functional.cross_entropy(logits(s, p, x[known]), labels[known]),  # noqa: B023
            )
            step(
                PSI,
                lambda s, p: (
                    logits(s, p, x[~known]).pow(2).mean()  # noqa: B023
                    + sum(0.8 * (s[n] - p[n]).pow(2).sum() + 0.05 * p[n].abs().sum() for n in p)
                ),
            )
    for part, weights in own.items():
        for name, weight in weights.items():
            np.testing.assert_allclose(found[part][name], weight, rtol=1e-9, atol=1e-12)
        assert moved(found[part], start[part]) == set(start[part])


# Reductions


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_without_psi_it_is_supervised_training(batch_norm: bool, precision: str) -> None:
    """Bit for bit, whether psi is there and stays 0 or whether there is theta alone."""
    dtype = getattr(torch, precision)
    net = network(batch_norm=batch_norm).to(dtype).eval()  # as one is left that was in use
    plan = replace(WIDE, precision=precision, local_epochs=3, optimizer="adam", weight_decay=0.01)
    kind = "f4" if dtype == torch.float32 else "f8"
    labels = LABELS[:12]
    whole = parts_of(net, None, kind)
    zero, result = learn(net, parts_of(net, 0.0, kind), squares, plan, labels=labels, weight=2.0)
    theta, same = learn(net, whole, squares, plan, labels=labels, weight=2.0)
    Decomposed(net, whole)
    objective, rng = on_logits(scaled_cross_entropy(2.0)), np.random.default_rng(1)
    expected = train_local(net, Task(batches(labels, plan), objective), plan, rng)
    trained = dump_arrays(net)
    for name, array in zero[SIGMA].items():
        np.testing.assert_array_equal(array, trained[name])
        np.testing.assert_array_equal(theta[THETA][name], trained[name])
        assert not zero[PSI][name].any()
    for name in zero[PSI]:
        np.testing.assert_array_equal(theta[THETA][name], trained[name])
    assert result == same == DisjointResult(expected.loss, 0.0, expected.steps)


# Edges


@pytest.mark.parametrize("labels", [LABELS[:12], LABELS[12:]], ids=["labeled", "unlabeled"])
def test_a_loss_that_is_not_finite_ends_it_in_one_sentence(labels: Any) -> None:
    def infinite(net: Network, inputs: Tensor) -> Tensor:
        return net(inputs).sum() * float("inf")

    parts = parts_of(network())
    if labels[0] >= 0:
        parts[SIGMA]["0.weight"][:] = np.nan
    with refuses("loss-not-finite"):
        learn(network(), parts, infinite, labels=labels)


BUFFERS = ("norm.mean", "norm.count")
MODEL = {
    "w": np.array([[1.0, -2.0]], np.float32),
    "norm.mean": np.array([3.0], np.float32),
    "norm.count": np.array(7),
}


def assert_same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape)
        assert array.tobytes() == other[name].tobytes(), name


# Arrays


def test_first_parts_by_hand() -> None:
    parts = decompose(MODEL, BUFFERS, 0.5)
    assert parts.keys() == {SIGMA, PSI}
    # Statistics are no sum, and go with psi; counters go nowhere.
    assert_same_bits(parts[SIGMA], {"w": MODEL["w"]})
    expected = {"w": np.array([[0.5, -1.0]], np.float32), "norm.mean": MODEL["norm.mean"]}
    assert_same_bits(parts[PSI], expected)
    assert unlabeled_part(parts) == PSI


def test_a_trained_model_is_the_sum_of_its_parts() -> None:
    # theta / 1.25 = (0.8, -1.6), and a quarter of that.
    parts = decompose(MODEL, BUFFERS, 0.25, whole=True)
    np.testing.assert_allclose(parts[SIGMA]["w"], [[0.8, -1.6]], rtol=1e-6)
    np.testing.assert_allclose(parts[PSI]["w"], [[0.2, -0.4]], rtol=1e-6)
    np.testing.assert_allclose(compose(parts)["w"], MODEL["w"], rtol=1e-6)
    assert parts[SIGMA]["w"].dtype == parts[PSI]["w"].dtype == np.float32
    assert_same_bits(decompose(MODEL, BUFFERS, 0.0, whole=True)[SIGMA], {"w": MODEL["w"]})


@pytest.mark.parametrize(
    ("used", "cutoff", "expected"),
    [
        ("both", 0.0, [11.0, 20.25, 29.75]),
        ("sigma", 0.0, [10.0, 20.0, 30.0]),
        ("psi", 0.0, [1.0, 0.25, -0.25]),
        # Below the cut-off counts as 0; at it does not.
        ("both", 0.25, [11.0, 20.25, 29.75]),
        ("both", 0.3, [11.0, 20.0, 30.0]),
        ("psi", 0.3, [1.0, 0.0, 0.0]),
    ],
)
def test_sums_by_hand(used: str, cutoff: float, expected: list[float]) -> None:
    parts = {
        SIGMA: {"w": np.array([10, 20, 30], np.float32)},
        PSI: {"w": np.array([1, 0.25, -0.25], np.float32), "mean": np.array([0.1], np.float32)},
    }
    # Statistics are those of psi whatever is used, and nothing of them is cut off.
    assert_same_bits(
        compose(parts, used, cutoff),
        {"w": np.array(expected, np.float32), "mean": parts[PSI]["mean"]},
    )


# Models


def model(precision: str = "float32") -> nn.Module:
    return move_model(network(batch_norm=True), CPU, precision)


def unlike_parts(net: nn.Module, psi_factor: float | None = 0.3) -> Parts:
    """Parts whose psi is no multiple of sigma."""
    parts = parts_of(net, psi_factor, "f8" if net[0].weight.dtype == torch.float64 else "f4")
    rng = np.random.default_rng(1)
    last = parts[unlabeled_part(parts)]
    for name, array in last.items():
        last[name] = array + rng.random(array.shape).astype(array.dtype)
    return parts


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("psi_factor", [0.3, None])
def test_models_hold_the_sum_and_give_parts_back(precision: str, psi_factor: float | None) -> None:
    net, dtype = model(precision), getattr(torch, precision)
    parts = unlike_parts(net, psi_factor)
    decomposed = Decomposed(net, parts)
    found = dict(dump_arrays(net))
    assert found.pop("1.num_batches_tracked").dtype == np.int64
    assert_same_bits(found, {name: compose(parts)[name] for name in found})
    dumped = decomposed.dump()
    assert dumped.keys() == parts.keys()
    for part, arrays in parts.items():
        assert_same_bits(dumped[part], arrays)
    # The convolution's weights lie channels last in the model, but not in a message.
    assert not net[0].weight.is_contiguous()
    assert all(array.flags.c_contiguous for array in flatten(dumped).values())
    assert net(torch.zeros(2, 2, 4, 4, dtype=dtype)).dtype == dtype
