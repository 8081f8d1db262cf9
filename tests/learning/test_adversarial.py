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


def rise(network: Network, inputs: Tensor, log_p: Tensor, offset: Tensor) -> float:
    with frozen_statistics(network.model), torch.no_grad():
        return float(divergence(log_p, network(inputs + offset)))


@pytest.mark.parametrize("seed", range(5))
def test_it_moves_predictions_more_than_random_directions(seed: int) -> None:
    network, inputs = build(seed), points(seed=seed)
    log_p = functional.log_softmax(network(inputs).detach(), dim=1)
    with frozen_statistics(network.model):
        offset = adversarial_offset(network, inputs, log_p, radius=0.1, xi=1e-3)
    found = rise(network, inputs, log_p, offset)
    random = [rise(network, inputs, log_p, 0.1 * unit(torch.randn_like(inputs))) for _ in range(20)]
    assert found > 2 * max(random)


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


def test_a_step_of_the_release_drowns_in_float32() -> None:
    # 1e-6, against the same step in float64: the direction is lost; that of 1e-3 is not.
    def found(dtype: torch.dtype, xi: float) -> Tensor:
        network, inputs = build(dtype=dtype, norm=False), points(8).to(dtype)
        log_p = functional.log_softmax(network(inputs).detach(), dim=1)
        torch.manual_seed(5)
        start = torch.randn(inputs.shape, dtype=torch.float64)
        original, torch.randn_like = torch.randn_like, lambda like: start.to(like.dtype)
        try:
            return adversarial_offset(network, inputs, log_p, radius=1.0, xi=xi).double()
        finally:
            torch.randn_like = original

    def likeness(xi: float) -> float:
        both = found(torch.float32, xi) * found(torch.float64, 1e-5)
        return float(both.flatten(1).sum(dim=1).min())

    assert likeness(1e-3) > 0.99
    assert likeness(1e-6) < 0.9


def test_every_offset_has_the_length_asked_for() -> None:
    network, inputs = build(), points()
    log_p = functional.log_softmax(network(inputs).detach(), dim=1)
    offset = adversarial_offset(network, inputs, log_p, radius=2.5, xi=1e-3)
    np.testing.assert_allclose(offset.flatten(1).norm(dim=1), 2.5, rtol=1e-5)
    assert not offset.requires_grad


def test_where_nothing_moves_the_offset_is_random_and_as_long() -> None:
    network, inputs = build(), points()
    with torch.no_grad():
        network.model[4].weight.zero_()  # type: ignore[index,operator,union-attr]
    log_p = functional.log_softmax(network(inputs).detach(), dim=1)
    offset = adversarial_offset(network, inputs, log_p, radius=0.5, xi=1e-3)
    np.testing.assert_allclose(offset.flatten(1).norm(dim=1), 0.5, rtol=1e-5)


def test_unit_survives_tiny_and_zero_vectors() -> None:
    vectors = torch.tensor([[3.0, 4.0], [3e-30, 4e-30], [0.0, 0.0]])
    np.testing.assert_allclose(unit(vectors), [[0.6, 0.8], [0.6, 0.8], [0, 0]], rtol=1e-6)


def test_running_statistics_and_their_counter_stay() -> None:
    network, inputs = build(), points()
    logits = network(inputs)
    before = {name: value.clone() for name, value in network.model.named_buffers()}
    assert int(before["1.num_batches_tracked"]) == 1
    virtual_adversarial_loss(network, inputs, logits, radius=0.1, xi=1e-3)
    for name, value in network.model.named_buffers():
        assert value.equal(before[name]), name
    network(inputs)  # and are live again
    assert int(network.model.get_buffer("1.num_batches_tracked")) == 2


def test_the_power_iteration_leaves_no_gradient_in_the_weights() -> None:
    network, inputs = build(), points()
    log_p = functional.log_softmax(network(inputs).detach(), dim=1)
    adversarial_offset(network, inputs, log_p, radius=0.1, xi=1e-3)
    assert all(weight.grad is None for weight in network.model.parameters())


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


def test_a_network_is_wide_without_bfloat16() -> None:
    narrow, inputs = build(dtype=torch.bfloat16, norm=False), points(4)
    plain = narrow.model(inputs)
    assert not narrow(inputs).equal(plain)
    assert narrow.wide()(inputs).equal(plain)
    assert narrow.wide()(inputs).dtype == torch.float32
