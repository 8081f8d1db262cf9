"""Batches of bags: whole sets, parts of larger ones, and losses that are means over them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedul_flwr.learning.batches import bag_batches
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.proportions import ProportionLoss, bags_of, over_bags, proportion_loss

SETS = np.repeat([0, 1, 3], [4, 7, 2])
STORED = np.arange(20, dtype=np.float32)[:, None]
POINTS = np.arange(20)[-13:]


def epoch(batch_size: int, bag_size: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    make = bag_batches(STORED, POINTS, SETS, LocalPlan(batch_size=batch_size), bag_size)
    return list(make(np.random.default_rng(seed)))


def test_bags_are_whole_sets_and_nearly_equal_parts_of_larger_ones() -> None:
    # Sets of 4, 7 and 2 points in bags of at most 4: 4; 4 and 3; 2.
    ((inputs, targets),) = epoch(0, 4)
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
    found = [len(bags_of(targets)) for _, targets in epoch(batch_size, bag_size)]
    assert found == bags


def test_parts_are_cut_anew_in_every_epoch() -> None:
    cuts = set()
    for seed in range(6):
        ((inputs, targets),) = epoch(0, 4, seed)
        parts = [inputs[rows, 0].int().tolist() for rows, m in bags_of(targets) if int(m[0]) == 1]
        cuts.add(frozenset(frozenset(part) for part in parts))
    assert len(cuts) > 3


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
