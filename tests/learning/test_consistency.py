"""Consistency: Bayes' rule, both forms and the mask by hand, and what has no gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.learning import consistency
from fedul_flwr.learning.consistency import (
    ConsistencyObjective,
    fixmatch_loss,
    log_set_posterior,
    uda_loss,
)
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU
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


def test_the_hard_form_by_hand() -> None:
    # Threshold .75 keeps points 0 and 2 with labels 0 and 1: (-log .5 - log .4) / 3.
    value, masked = fixmatch_loss(WEAK, STRONG, 0.75)
    assert float(value) == pytest.approx((0.693147 + 0.916291) / 3, abs=1e-6)
    assert float(masked) == pytest.approx(1 / 3)


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


def test_the_soft_form_without_sharpening_is_the_divergence() -> None:
    value, masked = uda_loss(WEAK, STRONG, 0.0, 1.0)
    expected = functional.kl_div(STRONG, WEAK, reduction="batchmean", log_target=True)
    assert float(value) == pytest.approx(float(expected), abs=1e-12)
    assert float(masked) == 0
    assert float(uda_loss(WEAK, WEAK, 0.0, 1.0)[0]) == pytest.approx(0, abs=1e-15)


def test_the_label_of_the_hard_form_is_the_weak_views_however_sure_the_strong_one_is() -> None:
    # Weak view: class 0 with .8. Strong view: class 1 with .9. The loss is −log .1, not −log .9.
    weak, strong = (torch.tensor([pair]).log() for pair in ([0.8, 0.2], [0.1, 0.9]))
    value, masked = fixmatch_loss(weak, strong, 0.75)
    assert (float(value), float(masked)) == (pytest.approx(2.302585, abs=1e-6), 0.0)
    # And it is the weak view that has to be sure: of .7 with the same strong view it is not.
    unsure = torch.tensor([[0.7, 0.3]]).log()
    assert [float(part) for part in fixmatch_loss(unsure, strong, 0.75)] == [0.0, 1.0]


def network(dtype: torch.dtype = torch.float64) -> Network:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    return Network(model.to(dtype).train(), CPU, str(dtype).removeprefix("torch."))


def batch() -> tuple[Tensor, Tensor]:
    values = np.random.default_rng(0).uniform(-1, 1, (8, 1, 3, 3))
    return torch.from_numpy(values), torch.tensor([0, 1, 2, 0, 1, 1, 2, 0])


def test_the_objective_is_the_surrogate_loss_and_the_weighted_consistency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consistency, "strong_augment", lambda inputs: inputs.flip(3))
    loss = SurrogateLoss(PRIORS, SIZES, PI)
    objective = ConsistencyObjective(loss, 0.7, 0.6, loss.transition.log_weights)
    inputs, sets = batch()
    found = objective(network(), inputs, sets)

    model = network()
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
    means = objective.means()
    expected = [float(surrogate.detach()), float(value.detach()), 1 - float(kept.double().mean())]
    assert means == pytest.approx(expected, rel=1e-10)
    assert 0 < means[2] < 1


def test_the_target_has_no_gradient() -> None:
    # The strong view's logits come from elsewhere: what is left has the surrogate's gradient.
    inputs, sets = batch()
    loss = SurrogateLoss(PRIORS, SIZES, PI)

    class Other(Network):
        calls = 0

        def __call__(self, given: Tensor) -> Tensor:
            self.calls += 1
            logits = super().__call__(given)
            return logits if self.calls == 1 else logits.detach()

    model = network().model
    objective = ConsistencyObjective(loss, 5.0, 0.0, loss.transition.log_weights)
    objective(Other(model, CPU, "float64"), inputs, sets).backward()  # type: ignore[no-untyped-call]
    found = [weight.grad for weight in model.parameters()]
    plain = network().model
    loss(plain(inputs), sets).backward()
    for gradient, weight in zip(found, plain.parameters(), strict=True):
        assert gradient is not None
        np.testing.assert_allclose(gradient, weight.grad, atol=1e-14)


def test_classes_that_a_set_lacks_leave_everything_finite() -> None:
    # Set 2 has no class 1; in float32, as in a run.
    loss = SurrogateLoss(PRIORS, SIZES, PI)
    model = network(torch.float32)
    objective = ConsistencyObjective(loss, 1.0, 0.0, loss.transition.log_weights)
    value = objective(model, batch()[0].float(), torch.full((8,), 2))
    value.backward()  # type: ignore[no-untyped-call]
    assert value.isfinite()
    assert all(w.grad is None or w.grad.isfinite().all() for w in model.model.parameters())
    assert objective.means()[1] == pytest.approx(0, abs=1e-6)  # the set leaves no doubt


def test_running_statistics_are_those_of_the_weak_view() -> None:
    inputs, sets = batch()
    with_strong, plain = network(), network()
    loss = SurrogateLoss(PRIORS, SIZES)
    objective = ConsistencyObjective(loss, 1.0, 0.0, loss.transition.log_weights)
    objective(with_strong, inputs, sets)
    plain(inputs)
    pairs = zip(with_strong.model.buffers(), plain.model.buffers(), strict=True)
    assert all(one.equal(other) for one, other in pairs)
