"""FedUL's transition and loss against Theorem 1, Bayes' rule and calculations by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedul_flwr.surrogate import SurrogateLoss, SurrogateTransition, log_transition

Floats = NDArray[np.float64]


def theorem_1(eta: Floats, priors: Floats, sizes: Floats, test_prior: Floats) -> Floats:
    """``(n, M)``: D(pi_bar) Pi D(pi)^-1 eta over its sum, with plain matrices."""
    matrix = np.diag(sizes / sizes.sum()) @ priors @ np.diag(1 / test_prior)
    unnormalized = eta @ matrix.T
    return unnormalized / unnormalized.sum(axis=1, keepdims=True)


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def tensor(values: object) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def close(found: Tensor, expected: Tensor) -> None:
    """Assert equality but for rounding."""
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), 1e-6, 1e-9)


def random_case(num_sets: int, num_classes: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Priors, unequal set sizes and a test prior far from uniform."""
    rng = np.random.default_rng(seed)
    priors = rng.dirichlet(np.ones(num_classes), num_sets)
    sizes = rng.integers(1, 1000, num_sets).astype(np.float64)
    test_prior = rng.dirichlet(np.full(num_classes, 2.0)) + 0.01
    return priors, sizes, test_prior / test_prior.sum()


@pytest.mark.parametrize(("num_sets", "num_classes"), [(2, 2), (7, 3), (12, 10), (40, 40)])
def test_equals_theorem_1_in_plain_float64(num_sets: int, num_classes: int) -> None:
    priors, sizes, test_prior = random_case(num_sets, num_classes)
    logits = np.random.default_rng(1).normal(0, 3, (50, num_classes))
    layer = SurrogateTransition(tensor(priors), tensor(sizes), tensor(test_prior))
    found = layer(tensor(logits)).exp().numpy()
    expected = theorem_1(softmax(logits), priors, sizes, test_prior)
    assert found.shape == (50, num_sets)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@given(
    num_classes=st.integers(2, 12),
    more_sets=st.integers(0, 20),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
    seed=st.integers(0, 10_000),
)
@hypothesis_settings(max_examples=60)
def test_float32_rows_follow_it(num_classes: int, more_sets: int, scale: float, seed: int) -> None:
    priors, sizes, test_prior = random_case(num_classes + more_sets, num_classes, seed)
    logits = np.random.default_rng(seed).normal(0, scale, (8, num_classes)).astype(np.float32)
    layer = SurrogateTransition(tensor(priors), tensor(sizes), tensor(test_prior))
    found = layer(torch.from_numpy(logits)).exp().numpy()
    expected = theorem_1(softmax(logits.astype(np.float64)), priors, sizes, test_prior)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=2e-6)
    # Logarithms of size 10 carry 1e-6 in float32.
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_no_factor_of_the_transition_can_be_left_out() -> None:
    # Pi = [[.5, .5], [.25, .75]], n = (3, 1), pi = (.2, .8), eta = (.5, .5):
    # m = 0: .75 (.5 · .5/.2 + .5 · .5/.8) = .75 · 1.5625 = 1.171875
    # m = 1: .25 (.5 · .25/.2 + .5 · .75/.8) = .25 · 1.09375 = .2734375
    # Q_0 = 1.171875 / 1.4453125 = 30/37.
    # Without D(pi)^-1 it would be .375 / .5 = 3/4, without D(pi_bar) 1.5625 / 2.65625 = 10/17,
    # and with D(pi) in place of its inverse .75 · .25 / (.1875 + .25 · .325) = 30/43.
    priors, sizes, test_prior = [[0.5, 0.5], [0.25, 0.75]], [3, 1], [0.2, 0.8]
    layer = SurrogateTransition(tensor(priors), tensor(sizes), tensor(test_prior))
    found = layer(torch.zeros(1, 2, dtype=torch.float64)).exp()
    close(found, tensor([[30 / 37, 7 / 37]]))
    # Rows of the matrix itself: .75 · .5/.2 = 1.875, .75 · .5/.8 = .46875, …
    close(
        log_transition(tensor(priors), tensor([0.75, 0.25]), tensor(test_prior)).exp(),
        tensor([[1.875, 0.46875], [0.3125, 0.234375]]),
    )


EXTREME_PRIORS = {
    "one class per set": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "tiny": [[1 - 1e-30, 1e-30, 0], [1e-300, 1, 0], [0.2, 0.3, 0.5]],
    "a class in no set": [[0.7, 0.3, 0], [0.2, 0.8, 0], [1, 0, 0], [0, 1, 0]],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["nll", "release"])
@pytest.mark.parametrize("priors", EXTREME_PRIORS.values(), ids=EXTREME_PRIORS)
def test_extremes_stay_finite(priors: list[list[float]], kind: str, dtype: torch.dtype) -> None:
    rows = [[s * 1e4 * (k == j) for k in range(3)] for j in range(3) for s in (1, -1)]
    rows += [[1e4, -1e4, 0], [1e4, 1e4, 1e4], [-1e4, -1e4, -1e4]]
    points = torch.tensor(rows, dtype=dtype)
    sizes = torch.arange(1, len(priors) + 1)
    loss = SurrogateLoss(tensor(priors), sizes, tensor([1e-6, 0.3, 0.7 - 1e-6]), kind)
    for m in range(len(priors)):
        logits = points.clone().requires_grad_()
        value = loss(logits, torch.full((len(rows),), m))
        value.backward()
        assert torch.isfinite(value)
        assert logits.grad is not None
        assert torch.isfinite(logits.grad).all()


def test_a_confident_wrong_model_still_gets_a_gradient() -> None:
    # Pi = I: set 0 holds class 0 only, the model is sure of class 1: loss 1e4, gradient softmax - 1
    # for class 0 and + 1 for class 1. A product of probabilities would have underflowed to log 0.
    logits = torch.tensor([[-5e3, 5e3]], requires_grad=True)
    value = SurrogateLoss(torch.eye(2), torch.ones(2))(logits, torch.tensor([0]))
    value.backward()
    assert value.item() == pytest.approx(1e4)
    assert logits.grad is not None
    close(logits.grad, torch.tensor([[-1.0, 1.0]]))


def test_given_a_class_that_no_set_with_points_has_then_it_is_ruled_out() -> None:
    """Without its weight the loss ignores class 2; with it, 0.5 · -log(0.2 + 0.3) comes on top."""
    priors, sizes = tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0, 0, 1]]), tensor([1, 1, 0])
    logits, sets = tensor([[0.2, 0.3, 0.5]]).log(), torch.tensor([0])
    plain = SurrogateLoss(priors, sizes)(logits, sets)
    weighed = SurrogateLoss(priors, sizes, absent_weight=0.5)(logits, sets)
    close(weighed - plain, tensor(-0.5 * np.log(0.5)))
    everything = SurrogateLoss(priors, tensor([1, 1, 1]), absent_weight=0.5)(logits, sets)
    close(everything, SurrogateLoss(priors, tensor([1, 1, 1]))(logits, sets))


def test_a_set_without_training_points_leaves_gradients_finite() -> None:
    loss = SurrogateLoss(torch.full((3, 2), 0.5), torch.tensor([3, 0, 2]))
    logits = torch.zeros(2, 2, requires_grad=True)
    loss(logits, torch.tensor([0, 2])).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def both(loss: nn.Module, other: object, logits: Tensor, targets: Tensor) -> None:
    """Assert that values and gradients of two losses agree."""
    results = []
    for f in (loss, other):
        leaf = logits.clone().requires_grad_()
        value = f(leaf, targets)  # type: ignore[operator]
        value.backward()
        assert leaf.grad is not None
        results.append((value.detach(), leaf.grad))
    close(results[0][0], results[1][0])
    close(results[0][1], results[1][1])


@pytest.fixture
def logits() -> Tensor:
    return tensor(np.random.default_rng(4).normal(0, 2, (20, 3)))


@pytest.fixture
def classes() -> Tensor:
    return torch.from_numpy(np.random.default_rng(5).integers(0, 3, 20))


def test_pure_sets_of_the_test_prior_are_supervised(logits: Tensor, classes: Tensor) -> None:
    loss = SurrogateLoss(torch.eye(3), torch.tensor([20, 30, 50]), tensor([0.2, 0.3, 0.5]))
    both(loss, functional.cross_entropy, logits, classes)


def test_pure_sets_of_other_sizes_shift_the_logits(logits: Tensor, classes: Tensor) -> None:
    sizes, test_prior = torch.tensor([70, 20, 10]), tensor([0.2, 0.3, 0.5])
    shift = (sizes / sizes.sum()).double().log() - test_prior.log()

    def shifted(f: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(f + shift, targets)

    sizes_share = sizes.double() / 100  # sizes count relative to each other only
    both(SurrogateLoss(torch.eye(3), sizes_share, test_prior), shifted, logits, classes)


def test_a_uniform_test_prior_cancels(logits: Tensor) -> None:
    priors, sizes, _ = random_case(6, 3, seed=8)
    unnormalized = softmax(logits.numpy()) @ (sizes[:, None] * priors).T
    expected = unnormalized / unnormalized.sum(axis=1, keepdims=True)
    for uniform in (None, torch.full((3,), 1 / 3, dtype=torch.float64)):
        layer = SurrogateTransition(tensor(priors), tensor(sizes), uniform)
        np.testing.assert_allclose(layer(logits).exp().numpy(), expected, rtol=1e-12)


# eta = (.75, .25), Pi = [[.9, .1], [.2, .8]], n = (1, 3), no D(pi)^-1:
# m = 0: .25 (.9 · .75 + .1 · .25) = .175; m = 1: .75 (.2 · .75 + .8 · .25) = .2625; Q = (.4, .6).
HAND_PRIORS, HAND_SIZES = [[0.9, 0.1], [0.2, 0.8]], [1, 3]
HAND_LOGITS = torch.tensor([[np.log(3), 0.0]], dtype=torch.float64)


def test_the_release_loss_by_hand() -> None:
    # Cross-entropy with the probabilities Q for logits: for set 0
    # -log(e^.4 / (e^.4 + e^.6)) = log(1 + e^.2) = log 2.2214028 = 0.7981389,
    # for set 1 log(1 + e^-.2) = log 1.8187308 = 0.5981389; their mean is 0.6981389.
    # The test prior has no part in it.
    loss = SurrogateLoss(tensor(HAND_PRIORS), tensor(HAND_SIZES), tensor([0.1, 0.9]), "release")
    assert loss(HAND_LOGITS, torch.tensor([0])).item() == pytest.approx(0.7981389, abs=1e-7)
    two = HAND_LOGITS.repeat(2, 1)
    assert loss(two, torch.tensor([0, 1])).item() == pytest.approx(0.6981389, abs=1e-7)


def test_the_likelihood_loss_by_hand() -> None:
    # -log .4 = 0.9162907 for set 0, -log .6 = 0.5108256 for set 1, mean 0.7135582.
    loss = SurrogateLoss(tensor(HAND_PRIORS), tensor(HAND_SIZES))
    two = HAND_LOGITS.repeat(2, 1)
    assert loss(two, torch.tensor([0, 1])).item() == pytest.approx(0.7135582, abs=1e-7)


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_widened(narrow: torch.dtype) -> None:
    priors, sizes, test_prior = random_case(8, 4, seed=9)
    layer = SurrogateTransition(tensor(priors), tensor(sizes), tensor(test_prior))
    logits = torch.from_numpy(np.random.default_rng(1).normal(0, 4, (9, 4))).to(narrow)
    found = layer(logits)
    assert found.dtype == torch.float32
    assert found.equal(layer(logits.float()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(logits).equal(found)


# Optimal recovery (Theorem 4) and convergence (Proposition 3), on a finite space of points

POINTS, TRUE_PRIOR = 12, np.array([0.5, 0.3, 0.2])
"""Number of different points, and class priors pi at test time."""
Client = tuple[Floats, Floats]
"""Class priors Pi_c ``(M_c, K)`` and sizes of a client's sets."""
CLIENTS: list[Client] = [
    (np.array([[0.8, 0.1, 0.1], [0.1, 0.7, 0.2], [0.2, 0.2, 0.6]]), np.array([100.0, 300, 200])),
    (np.array([[0.5, 0.4, 0.1], [0.3, 0.1, 0.6]]), np.array([500.0, 100])),
    (np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8], [1 / 3] * 3]), np.full(4, 50.0)),
]
"""The second has fewer sets than classes: alone it determines no model."""


def given_class() -> Floats:
    """``(K, points)``: p(x | k), the same at all clients."""
    return np.random.default_rng(5).dirichlet(np.full(POINTS, 2.0), size=3)


def posterior() -> Floats:
    """``(points, K)``: eta by Bayes' rule, what supervised learning of all points would find."""
    joint = TRUE_PRIOR[:, None] * given_class()
    return (joint / joint.sum(axis=0)).T


def population_loss(logits: Tensor, clients: list[Client]) -> Tensor:
    """J of eq. 7 with infinitely many points: the mean over clients of E[loss of eq. 9]."""
    total = tensor(0.0)
    for priors, sizes in clients:
        log_q = SurrogateTransition(tensor(priors), tensor(sizes), tensor(TRUE_PRIOR))(logits)
        joint = tensor((sizes / sizes.sum())[:, None] * (priors @ given_class()))  # p(m, x)
        total = total - (joint.T * log_q).sum()
    return total / len(clients)


@pytest.mark.parametrize("start", [None, 0, 1])
@pytest.mark.parametrize("clients", [CLIENTS, CLIENTS[:1]])
def test_the_minimizer_is_the_posterior_of_labels(clients: list[Client], start: int | None) -> None:
    """Theorem 4: from any first weights, for a model of any form, it gives back eta."""
    rng = np.random.default_rng(start)
    first = np.zeros((POINTS, 3)) if start is None else rng.normal(0, 2, (POINTS, 3))
    logits = tensor(first).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [logits],
        max_iter=300,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = population_loss(logits, clients)
        value.backward()
        return value

    optimizer.step(closure)
    np.testing.assert_allclose(softmax(logits.detach().numpy()), posterior(), atol=1e-4)


def test_given_a_client_with_fewer_sets_than_classes_then_the_minimizer_is_not_unique() -> None:
    """Where Theorem 4 does not hold: another eta has the same surrogate posterior, and loss."""
    priors, sizes = CLIENTS[1]
    (kernel,) = np.linalg.svd(np.diag(sizes) @ priors @ np.diag(1 / TRUE_PRIOR))[2][2:]
    other = posterior() + 0.05 * kernel
    other = other / other.sum(axis=1, keepdims=True)
    assert np.abs(other - posterior()).max() > 0.01
    values = [
        float(population_loss(tensor(np.log(eta)), CLIENTS[1:2])) for eta in (posterior(), other)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_given_algorithm_1_then_the_gradient_vanishes_and_the_rounds_end_at_the_posterior() -> None:
    """Proposition 3: with local steps and averaging, on clients of different sets."""
    logits = torch.zeros(POINTS, 3, dtype=torch.float64)
    norms = []
    for number in range(240):
        found = []
        for one in CLIENTS:
            local = logits.clone().requires_grad_()
            for _ in range(3):
                (gradient,) = torch.autograd.grad(population_loss(local, [one]), local)
                local = (local - 30.0 * gradient).detach().requires_grad_()
            found.append(local.detach())
        logits = torch.stack(found).mean(dim=0)
        if number in (0, 20, 239):
            whole = logits.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(population_loss(whole, CLIENTS), whole)
            norms.append(float(gradient.norm()))
    assert norms[2] < 0.1 * norms[1] < 0.05 * norms[0]
    np.testing.assert_allclose(softmax(logits.numpy()), posterior(), atol=0.02)
