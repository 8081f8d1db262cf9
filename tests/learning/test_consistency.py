"""Consistency and the virtual adversarial step: by hand, and what has no gradient."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning import consistency
from fedul_flwr.learning.consistency import (
    ConsistencyObjective,
    adversarial_offset,
    divergence,
    fixmatch_loss,
    log_set_posterior,
    uda_loss,
    unit,
    virtual_adversarial_loss,
)
from fedul_flwr.learning.network import Network, frozen_statistics
from fedul_flwr.learning.plan import CPU
from fedul_flwr.learning.task import Batch
from fedul_flwr.surrogate import SurrogateLoss

PRIORS = torch.tensor([[0.6, 0.4], [0.1, 0.9], [1.0, 0.0]], dtype=torch.float64)
SIZES = torch.tensor([2, 5, 3])
PI = torch.tensor([0.3, 0.7], dtype=torch.float64)


def test_the_posterior_given_the_set_by_hand() -> None:
    # eta = (.5, .5), pi = (.3, .7). Set 0: .5·.6/.3 : .5·.4/.7 = 1 : .285714 -> (7/9, 2/9).
    # Set 1: .5·.1/.3 : .5·.9/.7 = .166667 : .642857 -> (7/34, 27/34). Set 2 has class 0 alone.
    weights = SurrogateLoss(PRIORS, SIZES, PI).transition.log_weights
    found = log_set_posterior(torch.zeros(3, 2, dtype=torch.float64), weights).exp()
    expected = [[7 / 9, 2 / 9], [7 / 34, 27 / 34], [1, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)


# Weak views (.9, .1), (.4, .6), (.2, .8); strong ones (.5, .5), (.3, .7), (.6, .4).
WEAK = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], dtype=torch.float64).log()
STRONG = torch.tensor([[0.5, 0.5], [0.3, 0.7], [0.6, 0.4]], dtype=torch.float64).log()


def test_a_point_at_the_threshold_counts() -> None:
    even = torch.tensor([[0.5, 0.5]], dtype=torch.float64).log()
    for value, masked in (
        fixmatch_loss(even, STRONG[1:2], 0.5),
        uda_loss(even, STRONG[1:2], 0.5, 1),
    ):
        assert float(masked) == 0
        assert float(value) > 0


def test_the_soft_form_by_hand() -> None:
    # Temperature .5 squares: .81 : .01 -> (.987805, .012195) and .04 : .64 -> (.058824, .941176).
    # KL to (.5, .5): .987805·log 1.975610 + .012195·log .024390 = .627287;
    # to (.6, .4): .058824·log .098039 + .941176·log 2.352941 = .668721. Sum / 3 = .432003.
    value, masked = uda_loss(WEAK, STRONG, 0.75, 0.5)
    assert float(value) == pytest.approx(0.432003, abs=1e-6)
    assert float(masked) == pytest.approx(1 / 3)


def network(dtype: torch.dtype = torch.float64) -> Network:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    return Network(model.to(dtype).train(), CPU, str(dtype).removeprefix("torch."))


def batch() -> tuple[Tensor, Tensor]:
    values = np.random.default_rng(0).uniform(-1, 1, (8, 1, 3, 3))
    return torch.from_numpy(values), torch.tensor([0, 1, 2, 0, 1, 1, 2, 0])


def test_the_objective_is_surrogate_loss_and_consistency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consistency, "strong_augment", lambda inputs: inputs.flip(3))
    loss = SurrogateLoss(PRIORS, SIZES, PI)
    objective = ConsistencyObjective(loss, 0.7, 0.6, loss.transition.log_weights)
    inputs, sets = batch()
    mine, model = network(), network()
    found = objective(mine, Batch(inputs, sets))
    weak, strong = model(inputs), model(inputs.flip(3))
    strong = strong + loss.transition.log_weights[sets]
    p = (weak.detach() + loss.transition.log_weights[sets]).softmax(dim=1)
    kept = p.amax(dim=1) >= 0.6
    each = functional.cross_entropy(strong, p.argmax(dim=1), reduction="none")
    value = each[kept].sum() / 8
    surrogate = loss(weak, sets)
    assert float(found.detach()) == pytest.approx(
        float((surrogate + 0.7 * value).detach()), rel=1e-10
    )
    expected = [float(surrogate.detach()), float(value.detach()), float(kept.double().mean())]
    assert [report() for report in objective.reports.values()] == pytest.approx(expected, rel=1e-10)
    assert 0 < expected[2] < 1
    found.backward()  # type: ignore[no-untyped-call]
    (surrogate + 0.7 * value).backward()
    for one, other in zip(mine.model.parameters(), model.model.parameters(), strict=True):
        np.testing.assert_allclose(one.grad, other.grad, atol=1e-14)


def test_classes_that_a_set_lacks_leave_everything_finite() -> None:
    # Set 2 has no class 1; in float32, as in a run.
    loss = SurrogateLoss(PRIORS, SIZES, PI)
    model = network(torch.float32)
    objective = ConsistencyObjective(loss, 1.0, 0.0, loss.transition.log_weights)
    value = objective(model, Batch(batch()[0].float(), torch.full((8,), 2)))
    value.backward()  # type: ignore[no-untyped-call]
    assert value.isfinite()
    assert all(w.grad is None or w.grad.isfinite().all() for w in model.model.parameters())
    # The set leaves no doubt.
    assert abs(objective.reports["consistency-loss"]()) < 1e-6


def test_running_statistics_are_those_of_the_weak_view() -> None:
    inputs, sets = batch()
    with_strong, plain = network(), network()
    loss = SurrogateLoss(PRIORS, SIZES)
    objective = ConsistencyObjective(loss, 1.0, 0.0, loss.transition.log_weights)
    objective(with_strong, Batch(inputs, sets))
    plain(inputs)
    pairs = zip(with_strong.model.buffers(), plain.model.buffers(), strict=True)
    assert all(one.equal(other) for one, other in pairs)


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


def test_unit_survives_tiny_and_zero_vectors() -> None:
    vectors = torch.tensor([[3.0, 4.0], [3e-30, 4e-30], [0.0, 0.0]])
    np.testing.assert_allclose(unit(vectors), [[0.6, 0.8], [0.6, 0.8], [0, 0]], rtol=1e-6)
