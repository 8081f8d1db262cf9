"""LLPFC's client: transitions of groups by hand and against the authors' formulas; FedUL's loss."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedul_flwr.baselines.fedllp_fc import FedLLPFCClient, group_loss, group_transitions
from fedul_flwr.surrogate import SurrogateLoss
from tests.support.local_tasks import task_of
from tests.support.settings import Settings
from tests.support.simulated_clients import mlp_clients

Build = Callable[..., Any]


@pytest.fixture
def client(settings: Settings) -> Build:
    return mlp_clients(settings)


def drawn(
    num_sets: int, num_classes: int = 3, seed: int = 0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(num_classes, 0.7), num_sets), rng.integers(20, 60, num_sets)


def targets_of(rows: Any, weights: Any, sets: Any) -> torch.Tensor:
    return torch.from_numpy(np.column_stack([rows, weights])[sets]).float()


def test_given_one_group_of_equal_sets_then_the_loss_is_fedul_s() -> None:
    priors, sizes = drawn(3)[0], np.full(3, 40)
    rows, weights = group_transitions(priors, sizes, np.array([[2, 0, 1]]))
    fedul = SurrogateLoss(*map(torch.from_numpy, (priors, sizes, priors.mean(axis=0))))
    logits, sets = torch.randn(50, 3), np.random.default_rng(1).integers(3, size=50)
    ours = group_loss(logits, targets_of(rows, weights, sets))
    assert float(ours) == pytest.approx(float(fedul(logits, torch.from_numpy(sets))), rel=1e-5)


def test_given_groups_then_transitions_and_weights_are_those_of_the_authors_formulas() -> None:
    """T_ij = Γ_ij α_i / β_j with α = 1/K, β = Γ'α; points weigh α_i / (n_i / Σn), of sum 1."""
    priors, sizes = drawn(7, seed=3)
    groups = np.array([[6, 0, 3], [1, 5, 2]])
    rows, weights = group_transitions(priors, sizes, groups)
    for group in groups:
        gamma, shares = priors[group], np.full(3, 1 / 3)
        transition = gamma * shares[:, None] / (shares @ gamma)
        assert np.exp(rows[group]) == pytest.approx(transition)
        wanted = shares / (sizes[group] / sizes[group].sum())
        assert weights[group] == pytest.approx(wanted / wanted.sum())
    assert weights[4] == 0
    assert np.isneginf(rows[4]).all()


def test_given_weights_then_the_loss_is_the_weighted_mean_by_hand() -> None:
    """Points of sets whose rows are (.75, .25) and (.25, .75), of weights 1 and 3."""
    rows, weights = np.log([[0.75, 0.25], [0.25, 0.75]]), np.array([1.0, 3.0])
    logits = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    loss = group_loss(logits, targets_of(rows, weights, [0, 1]))
    # .75·.9 + .25·.1 = .7 and .25·.2 + .75·.8 = .65
    assert float(loss) == pytest.approx(-(np.log(0.7) + 3 * np.log(0.65)) / 4)


def test_given_a_class_in_no_set_of_a_group_then_loss_and_gradient_are_finite() -> None:
    priors = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.9, 0.1, 0.0], [0.0, 0.0, 1.0]])
    rows, weights = group_transitions(priors, np.array([10, 20, 0, 5]), np.array([[0, 1, 2]]))
    assert weights[2] == 0  # it has no point
    logits = torch.randn(6, 3, requires_grad=True)
    loss = group_loss(logits, targets_of(rows, weights, [0, 1, 0, 1, 1, 0]))
    loss.backward()
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_given_a_client_then_all_its_sets_but_a_rest_are_grouped_anew_each_round(
    client: Build,
) -> None:
    built = client(FedLLPFCClient, method="fedllp-fc", **{"fedul.num-sets": 23})
    first, again, other = (built.groups(number) for number in (1, 1, 2))
    assert first.shape == (2, 10)
    assert len(np.unique(first)) == 20
    assert (first == again).all()
    assert {*map(tuple, first)} != {*map(tuple, other)}
    sets = built.data.sets
    batches = task_of(built).batches
    used = np.isin(sets.sets, first)
    assert batches.num_points == used.sum() < len(used)


def test_given_points_that_only_their_sets_tell_apart_then_it_learns_their_classes() -> None:
    """Ten times as many sets as classes; a linear model finds the classes without a label."""
    generator = torch.Generator().manual_seed(0)
    priors, sizes = drawn(30, seed=5)
    rng = np.random.default_rng(2)
    labels = np.concatenate(
        [rng.choice(3, size=n, p=p) for n, p in zip(sizes, priors, strict=True)]
    )
    sets = np.repeat(np.arange(30), sizes)
    points = functional.one_hot(torch.from_numpy(labels), 3).float()
    points += 0.1 * torch.randn(points.shape, generator=generator)
    weight = torch.zeros(3, 3, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.1)
    for step in range(150):
        order = np.random.default_rng(step).permutation(30).reshape(-1, 3)
        rows, weights = group_transitions(priors, sizes, order)
        optimizer.zero_grad()
        group_loss(points @ weight, targets_of(rows, weights, sets)).backward()
        optimizer.step()
    predicted = (points @ weight).argmax(dim=1).numpy()
    assert (predicted == labels).mean() > 0.98
