"""Losses of sets and bags: by hand, against other formulas, and far out."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from fedul_flwr.learning.batches import bag_batches, set_batches
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.proportions import (
    ProportionLoss,
    bags_of,
    count_loss,
    log_mean_prediction,
    over_bags,
    proportion_loss,
)


def test_the_loss_of_a_set_by_hand() -> None:
    # Logits (log 3, 0) and (0, 0): softmax (3/4, 1/4) and (1/2, 1/2), mean (5/8, 3/8).
    # Prior (.2, .8): -(.2·log .625 + .8·log .375) = .2·.470004 + .8·.980829 = .878664.
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]], dtype=torch.float64)
    assert log_mean_prediction(logits).exp().tolist() == pytest.approx([0.625, 0.375])
    loss = proportion_loss(logits, torch.tensor([0.2, 0.8], dtype=torch.float64))
    assert float(loss) == pytest.approx(0.878664, abs=1e-6)


def test_predictions_that_underflow_have_a_loss_and_a_gradient() -> None:
    # Every softmax of class 1 is exp(-200), zero in float32: the naive logarithm is infinite.
    logits = torch.tensor([[200.0, 0.0], [200.0, 0.0]], requires_grad=True)
    loss = proportion_loss(logits, torch.tensor([0.5, 0.5]))
    assert float(loss.detach()) == pytest.approx(100, rel=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    # Of -.5·(log p0 + log p1) = .5·(z0 - z1) far out, shared by two points: ±1/4.
    np.testing.assert_allclose(logits.grad, [[0.25, -0.25]] * 2, rtol=1e-5)


def test_batches_are_whole_sets_in_random_order() -> None:
    images = np.empty((30, 2, 2, 1), dtype=np.uint8)
    images[:] = np.arange(30)[:, None, None, None]
    points = np.random.default_rng(0).permutation(30)[:20]
    sets = np.repeat([0, 1, 2, 4], [3, 9, 1, 7])  # set 3 is empty
    make = set_batches(images, points, sets, LocalPlan(batch_size=2))
    orders = set()
    for seed in range(12):
        batches = list(make(np.random.default_rng(seed)))
        orders.add(tuple(int(targets[0]) for _, targets, _ in batches))
        assert sorted(int(targets[0]) for _, targets, _ in batches) == [0, 1, 2, 4]
        for inputs, targets, _ in batches:
            m = int(targets[0])
            assert targets.tolist() == [m] * len(inputs)
            shown = ((inputs[:, 0, 0, 0] + 1) * 127.5).round().int().tolist()
            assert sorted(shown) == sorted(points[sets == m].tolist())
    assert len(orders) > 5


def by_all_labels(p: Tensor, counts: list[int]) -> float:
    """−Σ_k log P(N_k = n_k) by adding up all vectors of labels."""
    n, num_classes = p.shape
    chances = [0.0] * num_classes
    for labels in product(range(num_classes), repeat=n):
        chance = math.prod(float(p[i, label]) for i, label in enumerate(labels))
        for k in range(num_classes):
            chances[k] += chance * (labels.count(k) == counts[k])
    return -sum(math.log(chance) for chance in chances)


@pytest.mark.parametrize(
    "counts", [[1, 0, 0], [0, 1, 1], [2, 1, 1], [0, 0, 5], [3, 1, 2], [0, 6, 0]]
)
def test_it_is_the_sum_over_all_label_vectors(counts: list[int]) -> None:
    torch.manual_seed(sum(counts))
    logits = 2 * torch.randn(sum(counts), 3, dtype=torch.float64)
    expected = by_all_labels(logits.softmax(dim=1), counts)
    assert float(count_loss(logits, torch.tensor(counts))) == pytest.approx(expected, rel=1e-12)


# Bags

SETS = np.repeat([0, 1, 3], [4, 7, 2])
STORED = np.arange(20, dtype=np.float32)[:, None]
POINTS = np.arange(20)[-13:]


def epoch(batch_size: int, bag_size: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    make = bag_batches(STORED, POINTS, SETS, LocalPlan(batch_size=batch_size), bag_size)
    return list(make(np.random.default_rng(seed)))


def test_bags_are_whole_sets_and_nearly_equal_parts_of_larger_ones() -> None:
    # Sets of 4, 7 and 2 points in bags of at most 4: 4; 4 and 3; 2.
    ((inputs, targets, _),) = epoch(0, 4)
    bags = [(int(m[0]), len(rows)) for rows, m in bags_of(targets)]
    assert sorted(bags) == [(0, 4), (1, 3), (1, 4), (3, 2)]
    assert sorted(inputs[:, 0].tolist()) == POINTS.tolist()
    of_set = dict(zip(POINTS.tolist(), SETS.tolist(), strict=True))
    assert [of_set[int(x)] for x in inputs[:, 0]] == targets[:, 0].tolist()


@pytest.mark.parametrize(
    ("batch_size", "bag_size", "bags"),
    [(8, 4, [2, 2]), (9, 4, [2, 2]), (12, 4, [3]), (2, 4, [1] * 4), (8, 8, [1, 1, 1])],
)
def test_a_batch_has_as_many_bags_as_its_size_allows(
    batch_size: int, bag_size: int, bags: list[int]
) -> None:
    found = [len(bags_of(targets)) for _, targets, _ in epoch(batch_size, bag_size)]
    assert found == bags


def test_the_loss_is_the_mean_over_bags_of_any_size() -> None:
    priors, logits = torch.tensor([[0.2, 0.8], [0.9, 0.1]]), torch.randn(5, 2)
    targets = torch.tensor([[0, 0], [1, 1], [0, 0], [1, 2], [1, 2]])
    expected = [
        proportion_loss(logits[[0, 2]], priors[0]),
        proportion_loss(logits[[1]], priors[1]),
        proportion_loss(logits[[3, 4]], priors[1]),
    ]
    found = over_bags(ProportionLoss(priors))(logits, targets)
    torch.testing.assert_close(found, torch.stack(expected).mean())
