"""FedPL's losses by hand on a model that passes its inputs on, and every option against them."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.local import train_local
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU, LocalPlan
from fedul_flwr.learning.pseudo_labels import (
    FixMixObjective,
    is_confident,
    network_labels,
)
from fedul_flwr.learning.task import Batch, Batches, Task


class Fixed(FixMixObjective):
    """Mixes three to one, always."""

    def ratio(self) -> float:
        return 0.75


def linear() -> Network:
    """Two pixels to two logits: x0 + x1/8 and x1."""
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.125], [0.0, 1.0]]))
        layer.bias.zero_()
    return Network(nn.Sequential(nn.Flatten(), layer).double(), CPU, "float64")


def of(*rows: tuple[float, float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, 1, 1, 2)


def ce(logits: tuple[float, float], label: int) -> float:
    return math.log(math.exp(logits[0]) + math.exp(logits[1])) - logits[label]


def test_labels_of_a_network_and_their_confidence() -> None:
    # Softmax (1/2, 1/4, 1/4): confidence 1 - 1.5 log 2 / log 3 = 0.0536054; even: 0.
    logits = torch.tensor([[math.log(2), 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 50.0, 0.0]])
    found = network_labels(logits)
    assert found.labels.tolist() == [0, 0, 1]
    np.testing.assert_allclose(found.confidence, [0.0536054, 0, 1], atol=1e-6)


# One confident point, (2, 0) -> logits (2, 0), p = .88; one other, (0, .5) -> (.0625, .5), p = .61.
HIGH, LOW = (2.0, 0.0), (0.0, 0.5)
LABELS = torch.tensor([1, 0])
FIX = ce((2.0, 0.0), 1)  # log(e² + 1) = 2.126928
# Mixed inputs: .75·(2, 0) + .25·(0, .5) = (1.5, .125) -> logits (1.515625, .125).
MIX = 0.75 * ce((1.515625, 0.125), 1) + 0.25 * ce((1.515625, 0.125), 0)


def test_both_losses_by_hand() -> None:
    found = Fixed(threshold=0.7)(linear(), Batch(of(HIGH, LOW), LABELS))
    assert pytest.approx(2.126928, abs=1e-6) == FIX
    # log(e^1.515625 + e^.125) = 1.737904: CE 1.612904 of class 1 and .222279 of class 0;
    # .75·1.612904 + .25·.222279 = 1.265248.
    assert pytest.approx(1.265248, abs=1e-6) == MIX
    assert float(found.detach()) == pytest.approx(FIX + 0.3 * MIX, abs=1e-12)


def test_mixed_outputs_are_the_models_of_both_points() -> None:
    # A linear model mixes alike either way; behind a square it does not.
    same = Fixed(threshold=0.7, mix="outputs")(linear(), Batch(of(HIGH, LOW), LABELS))
    assert float(same.detach()) == pytest.approx(FIX + 0.3 * MIX, abs=1e-12)

    class Square(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs.flatten(1) ** 2

    network = Network(Square(), CPU, "float64")
    # (2, 0) -> (4, 0) and (0, .5) -> (0, .25): mixed outputs (3, .0625); mixed inputs
    # (1.5, .125) -> (2.25, .015625).
    for mix, logits in (("outputs", (3.0, 0.0625)), ("inputs", (2.25, 0.015625))):
        found = Fixed(threshold=0.7, mix=mix)(network, Batch(of(HIGH, LOW), LABELS))
        expected = ce((4.0, 0.0), 1) + 0.3 * (0.75 * ce(logits, 1) + 0.25 * ce(logits, 0))
        assert float(found.detach()) == pytest.approx(expected, abs=1e-12)


def test_relabeled_points_have_the_classes_that_the_model_is_surest_of() -> None:
    # (2, 0) -> class 0; (0, .5) -> (.0625, .5), class 1: the labels given, 1 and 0, have no say.
    found = Fixed(threshold=0.7, relabel=True)(linear(), Batch(of(HIGH, LOW), LABELS))
    mix = 0.75 * ce((1.515625, 0.125), 0) + 0.25 * ce((1.515625, 0.125), 1)
    assert float(found.detach()) == pytest.approx(ce((2.0, 0.0), 0) + 0.3 * mix, abs=1e-12)


def gradients(objective: FixMixObjective, inputs: Tensor, labels: Tensor) -> list[Tensor | None]:
    network = linear()
    loss = objective(network, Batch(inputs, labels))
    assert torch.isfinite(loss)
    loss.backward()  # type: ignore[no-untyped-call]
    return [weight.grad for weight in network.model.parameters()]


def test_without_confident_points_there_is_no_loss_but_a_gradient_of_zero() -> None:
    inputs = of(LOW, (0.2, 0.1))
    assert Fixed(threshold=0.7)(linear(), Batch(inputs, LABELS)).detach() == 0
    assert all(g is not None and (g == 0).all() for g in gradients(Fixed(0.7), inputs, LABELS))


@pytest.mark.parametrize("rows", [(HIGH, (0.0, 3.0)), (LOW, (0.2, 0.1))])
def test_a_batch_without_both_halves_is_no_step(rows: tuple[tuple[float, float], ...]) -> None:
    objective = Fixed(threshold=0.7, pairing="shorter")
    assert gradients(objective, of(*rows), LABELS) == [None, None]
    # Neither momentum nor penalties move a weight.
    network = linear()
    before = [weight.detach().clone() for weight in network.model.parameters()]
    plan = LocalPlan(l1=0.1, weight_decay=0.1, learning_rate=0.1, precision="float64")
    result = train_local(
        network.model,
        Task(Batches(3, lambda rng: iter([Batch(of(*rows), LABELS)])), objective),
        plan,
        np.random.default_rng(0),
    )
    assert result.loss == 0
    for weight, old in zip(network.model.parameters(), before, strict=True):
        assert weight.equal(old)


def test_the_ratio_is_drawn_from_a_symmetric_beta() -> None:
    torch.manual_seed(0)
    drawn = np.array([FixMixObjective(alpha=0.75).ratio() for _ in range(2000)])
    # Mean 1/2, variance 1/(4·(2·.75 + 1)) = .1.
    assert drawn.mean() == pytest.approx(0.5, abs=0.035)  # five deviations of sqrt(.1/2000)
    assert drawn.var() == pytest.approx(0.1, abs=0.01)
    flat = np.array([FixMixObjective(alpha=50).ratio() for _ in range(200)])
    assert flat.var() < 0.01


def test_mixed_points_leave_running_statistics_alone_and_one_pair_is_enough() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with torch.no_grad():
        model[3].weight.mul_(3)
    network = Network(model.double().train(), CPU, "float64")
    inputs = of(HIGH, LOW, (0.3, -1.0), (-1.0, 0.5))
    top = functional.softmax(network(inputs).detach(), dim=1).amax(dim=1)
    between = float(top.sort().values[-2:].mean())  # one point above it
    assert (top >= between).sum() == 1
    batches = int(model.get_buffer("2.num_batches_tracked"))
    loss = FixMixObjective(threshold=between)(network, Batch(inputs, torch.tensor([1, 0, 1, 0])))
    assert loss.isfinite()
    assert int(model.get_buffer("2.num_batches_tracked")) == batches + 1


def test_the_threshold_splits_by_the_top_probability() -> None:
    # Softmax of (log 3, 0) is (3/4, 1/4).
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [0.0, math.log(3)]])
    assert is_confident(logits, 0.7).tolist() == [True, False, True]
    assert is_confident(logits, 0.5).tolist() == [True, True, True]
    assert is_confident(logits, 0.8).tolist() == [False, False, False]
