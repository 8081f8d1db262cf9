"""UDA's and FixMatch's losses of a batch: by hand, their parts, and what has no gradient."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.consistency import fixmatch_loss, uda_loss
from fedul_flwr.learning.matching import (
    Consistency,
    MatchingObjective,
    annealed_cross_entropy,
    threshold_for,
)
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU
from fedul_flwr.learning.task import Loss
from tests.support.local_tasks import batch_of

# Training-signal annealing: probabilities of the true classes are 3/4, 1/2 and 1/10.
SIGNAL = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.9, 0.1]], dtype=torch.float64).log()
TRUE = torch.tensor([0, 1, 1])


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0.6, (math.log(2) + math.log(10)) / 2),  # point 0 is left out, of the mean as well
        (0.4, math.log(10)),
        (0.05, 0.0),  # nothing is left
        (0.8, (math.log(4 / 3) + math.log(2) + math.log(10)) / 3),
        (1.0, (math.log(4 / 3) + math.log(2) + math.log(10)) / 3),
    ],
)
def test_what_is_learned_already_is_left_out(threshold: float, expected: float) -> None:
    logits = SIGNAL.clone().requires_grad_()
    value = annealed_cross_entropy(threshold)(logits, TRUE)
    assert float(value.detach()) == pytest.approx(expected, abs=1e-12)
    value.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    kept = torch.tensor([0.75, 0.5, 0.1]) <= threshold
    assert (logits.grad.abs().sum(dim=1) > 0).tolist() == kept.tolist()


class Affine(nn.Module):
    """Logits (w·x, 0) of one-pixel images x, so that probabilities are those of w·x."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        first = self.weight * inputs.flatten()
        return torch.stack([first, torch.zeros_like(first)], dim=1)


def pixels(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1, 1, 1)


def objective(
    consistency: Consistency,
    threshold: float,
    supervised: Loss = functional.cross_entropy,
    weights: tuple[float, float] = (10.0, 2.0),
) -> MatchingObjective:
    return MatchingObjective(
        supervised=supervised,
        supervised_weight=weights[0],
        consistency=consistency,
        unsupervised_weight=weights[1],
        threshold=threshold,
        strong_view=lambda x: -x,
    )


UDA = partial(uda_loss, temperature=1.0)
# exp(log 3) : 1 are probabilities 3/4 and 1/4, exp(log 9) : 1 are 9/10 and 1/10. The strong view of
# x is -x: 1/4 and 3/4, 1/10 and 9/10.
BATCH = pixels(math.log(3), 0.0, math.log(9), math.log(3))
LABELS = torch.tensor([0, 1, -1, -1])
SUPERVISED = 10 * (math.log(4 / 3) + math.log(2)) / 2


def test_uda_by_hand() -> None:
    # KL((.9, .1) ‖ (.1, .9)) = .8·log 9, KL((3/4, 1/4) ‖ (1/4, 3/4)) = .5·log 3.
    network = Network(Affine(), CPU, "float64")
    value = objective(UDA, 0.0)(network, batch_of(BATCH, LABELS))
    expected = SUPERVISED + 2 * (0.8 * math.log(9) + 0.5 * math.log(3)) / 2
    assert float(value.detach()) == pytest.approx(expected, abs=1e-12)
    # Of the labeled points one has 3/4 and one 1/2.
    annealed = objective(UDA, 0.0, annealed_cross_entropy(0.6))(network, batch_of(BATCH, LABELS))
    expected += 10 * math.log(2) - SUPERVISED
    assert float(annealed.detach()) == pytest.approx(expected, abs=1e-12)


def test_the_target_of_uda_has_no_gradient() -> None:
    # By hand with w = 1: with s the strong view's share of class 0 and target share t of it,
    # d/dw −[t·log s + (1 − t)·log(1 − s)] = (s − t)·(−x).
    model = Affine()
    loss = objective(UDA, 0.0)(Network(model, CPU, "float64"), batch_of(BATCH[2:], LABELS[2:]))
    loss.backward()  # type: ignore[no-untyped-call]
    expected = (0.1 - 0.9) * -math.log(9) + (0.25 - 0.75) * -math.log(3)
    assert model.weight.grad is not None
    assert float(model.weight.grad) == pytest.approx(2 * expected / 2, abs=1e-12)


def test_nothing_sure_and_no_label_is_a_gradient_of_zeros() -> None:
    # Not none at all: weight decay and FedProx pull at weights that have a gradient.
    model = Affine()
    value = objective(fixmatch_loss, 0.95)(
        Network(model, CPU, "float64"), batch_of(BATCH[2:], LABELS[2:])
    )
    value.backward()  # type: ignore[no-untyped-call]
    assert float(value.detach()) == 0
    assert model.weight.grad is not None
    assert float(model.weight.grad) == 0


# Which points are passed through the network


class Counting(Network):
    """Notes how many points every pass had, and whether it keeps a graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, CPU, "float64")
        self.passes: list[tuple[int, bool]] = []

    def __call__(self, inputs: Tensor) -> Tensor:
        self.passes.append((len(inputs), torch.is_grad_enabled()))
        return super().__call__(inputs)


def deep(*norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 6), *norm, nn.Tanh(), nn.Linear(6, 3)).double()


def images(count: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).uniform(-2, 2, (count, 1, 3, 3)))


def plain_loss(model: nn.Module, inputs: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """FixMatch as the paper writes it: all points, and a mask."""
    known = labels >= 0
    loss = 10 * functional.cross_entropy(model(inputs[known]), labels[known])
    with torch.no_grad():
        top, guess = model(inputs[~known]).softmax(dim=1).max(dim=1)
    each = functional.cross_entropy(model(-inputs[~known]), guess, reduction="none")
    return loss + 2 * (each * (top >= threshold)).mean()


@pytest.mark.parametrize("norm", [False, True])
def test_leaving_points_out_changes_no_gradient(norm: bool) -> None:
    inputs, labels = images(20), torch.tensor([0, 2, 1, 1, *[-1] * 16])
    model, twin = (deep(*[nn.BatchNorm1d(6)] * norm) for _ in range(2))
    network = Counting(model)
    found = objective(fixmatch_loss, 0.45)(network, batch_of(inputs, labels))
    expected = plain_loss(twin, inputs, labels, 0.45)
    found.backward()  # type: ignore[no-untyped-call]
    expected.backward()  # type: ignore[no-untyped-call]
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    for weight, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, other.grad, rtol=1e-9, atol=1e-12)
    passed = network.passes[-1][0]
    # With batch norm the views of the sure ones depend on all.
    assert passed == 16 if norm else 0 < passed < 16


def test_running_statistics_are_of_images_as_they_are() -> None:
    inputs, labels = images(12), torch.tensor([0, 1, 2, *[-1] * 9])
    model, twin = (deep(nn.BatchNorm1d(6)) for _ in range(2))
    objective(UDA, 0.0)(Network(model, CPU, "float64"), batch_of(inputs, labels))
    twin(inputs[:3])
    twin(inputs[3:])
    pairs = zip(model.buffers(), twin.buffers(), strict=True)
    assert all(one.equal(other) for one, other in pairs)


@pytest.mark.parametrize("top", [[0.2, 0.4, 0.9], [0.3, 0.3, 0.3], [0.11]])
def test_given_adaptive_then_the_threshold_is_the_mean_and_is_reached(top: list[float]) -> None:
    found = threshold_for("adaptive", torch.tensor(top))  # type: ignore[arg-type]
    assert found == pytest.approx(np.mean(top), abs=1e-5)
    assert (torch.tensor(top) >= found).any()
    assert threshold_for("adaptive", torch.empty(0)) == 0.0  # type: ignore[arg-type]
