"""The virtual adversarial step: what it finds, how long it is, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning.consistency import (
    adversarial_offset,
    divergence,
    unit,
    virtual_adversarial_loss,
)
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.plan import CPU


def build(seed: int = 0, dtype: torch.dtype = torch.float32, *, norm: bool = True) -> Network:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6) if norm else nn.Identity(),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(6 * 4 * 4, 4),
    )
    with torch.no_grad():
        model[4].weight.mul_(4)  # predictions that are neither flat nor certain
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return Network(model.to(wide).train(), CPU, str(dtype).removeprefix("torch."))


def points(count: int = 16, seed: int = 1) -> Tensor:
    return torch.from_numpy(
        np.random.default_rng(seed).uniform(-1, 1, (count, 1, 6, 6)).astype(np.float32)
    )


def test_a_point_whose_predictions_do_not_move_keeps_its_random_direction() -> None:
    # ReLU lets nothing of the black point through; of the white one it does.
    layer = nn.Linear(4, 2, bias=False)
    model = nn.Sequential(nn.Flatten(), nn.ReLU(), layer)
    inputs = torch.stack([-torch.ones(1, 2, 2), torch.ones(1, 2, 2)])
    network = Network(model, CPU, "float32")
    log_p = functional.log_softmax(network(inputs).detach(), dim=1)
    torch.manual_seed(5)
    start = unit(torch.randn_like(inputs))
    torch.manual_seed(5)
    found = adversarial_offset(network, inputs, log_p, radius=0.5, xi=1e-3)
    np.testing.assert_allclose(found[0], 0.5 * start[0], rtol=1e-6)
    # The white one's is along the difference of the rows, up to its sign.
    along = unit((layer.weight[0] - layer.weight[1]).detach()[None])[0]
    assert abs(float(found[1].ravel() @ along)) == pytest.approx(0.5, rel=1e-3)


def test_it_is_the_direction_of_the_hessian_times_the_start() -> None:
    # Without batch norm points are apart: the exact H·d from autograd's second derivative.
    network = build(dtype=torch.float64, norm=False)
    inputs = points(3).double()
    log_p = functional.log_softmax(network(inputs).detach(), dim=1)
    torch.manual_seed(5)
    start = unit(torch.randn_like(inputs))
    torch.manual_seed(5)
    found = adversarial_offset(network, inputs, log_p, radius=1.0, xi=1e-5)

    zero = torch.zeros_like(inputs, requires_grad=True)
    value = divergence(log_p, network(inputs + zero))
    (slope,) = torch.autograd.grad(value, zero, create_graph=True)
    (exact,) = torch.autograd.grad((slope * start).sum(), zero)
    np.testing.assert_allclose(found, unit(exact), atol=1e-4)


def test_the_search_leaves_statistics_and_gradients_alone() -> None:
    network, inputs = build(), points()
    logits = network(inputs)
    before = {name: value.clone() for name, value in network.model.named_buffers()}
    assert int(before["1.num_batches_tracked"]) == 1
    virtual_adversarial_loss(network, inputs, logits, radius=0.1, xi=1e-3)
    assert all(weight.grad is None for weight in network.model.parameters())
    for name, value in network.model.named_buffers():
        assert value.equal(before[name]), name
    network(inputs)  # and are live again
    assert int(network.model.get_buffer("1.num_batches_tracked")) == 2


def test_gradients_are_those_of_the_divergence_at_a_fixed_offset() -> None:
    network, inputs = build(), points()
    logits = network(inputs)
    torch.manual_seed(9)
    virtual_adversarial_loss(network, inputs, logits, radius=0.1, xi=1e-3).backward()  # type: ignore[no-untyped-call]
    found = [
        weight.grad.clone() for weight in network.model.parameters() if weight.grad is not None
    ]

    network.model.zero_grad()
    log_p = functional.log_softmax(logits.detach(), dim=1)
    torch.manual_seed(9)
    with frozen_statistics(network.model):
        offset = adversarial_offset(network, inputs, log_p, radius=0.1, xi=1e-3)
        divergence(log_p, network(inputs + offset)).backward()  # type: ignore[no-untyped-call]
    for one, weight in zip(found, network.model.parameters(), strict=True):
        assert one is not None
        assert weight.grad is not None
        np.testing.assert_array_equal(one, weight.grad)


def test_the_divergence_by_hand() -> None:
    # KL((3/4, 1/4) ‖ (1/2, 1/2)) = .75·log 1.5 + .25·log .5 = .130812, and 0: mean .065406.
    log_p = torch.tensor([[0.75, 0.25], [0.5, 0.5]]).log()
    assert float(divergence(log_p, torch.zeros(2, 2))) == pytest.approx(0.065406, abs=1e-6)
