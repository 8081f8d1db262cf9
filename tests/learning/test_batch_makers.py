"""All kinds of batches: who is in them, and what is augmented."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedul_flwr.learning.batches import (
    Batches,
    matching_batches,
    paired_batches,
    point_batches,
    repeated_batches,
    set_batches,
    to_input,
)
from fedul_flwr.learning.plan import LocalPlan

IMAGES: NDArray[np.uint8] = np.random.default_rng(0).integers(0, 256, (30, 4, 4, 1), dtype=np.uint8)
POINTS = np.random.default_rng(1).permutation(30)[:24]
TARGETS = np.arange(24) % 3
MAKERS: dict[str, Callable[[LocalPlan], Batches]] = {
    "points": lambda plan: point_batches(IMAGES, POINTS, TARGETS, plan),
    "repeated": lambda plan: repeated_batches(IMAGES, POINTS, TARGETS, plan, 5),
    "sets": lambda plan: set_batches(IMAGES, POINTS, TARGETS, plan),
    "paired": lambda plan: paired_batches(IMAGES, POINTS, 9, plan),
    "labeled alone": lambda plan: matching_batches(IMAGES, POINTS, TARGETS, plan, 0),
}


def seen_in(batches: list[tuple[Tensor, Tensor]]) -> tuple[list[int], list[int]]:
    """Rows of the images that are in the batches as they are, and those that are mirrored."""
    plain: list[int] = []
    mirrored: list[int] = []
    known = to_input(torch.from_numpy(IMAGES))
    for inputs, _ in batches:
        for shown in inputs:
            rows = [int(r) for r in (known == shown).all(dim=(1, 2, 3)).nonzero()]
            turned = [int(r) for r in (known.flip(3) == shown).all(dim=(1, 2, 3)).nonzero()]
            plain += rows
            mirrored += turned
            assert len(rows) + len(turned) == 1
    return plain, mirrored


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_batches_are_augmented_as_the_plan_says(maker: Callable[[LocalPlan], Batches]) -> None:
    plan = LocalPlan(batch_size=4, augment="flip")
    found = list(maker(plan)(np.random.default_rng(3)))
    plain, mirrored = seen_in(found)
    assert {*plain, *mirrored} <= set(POINTS.tolist())
    assert len(plain) > 2
    assert len(mirrored) > 2
    again = list(maker(plan)(np.random.default_rng(3)))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(found, again, strict=True))
    plain, mirrored = seen_in(list(maker(LocalPlan(batch_size=4))(np.random.default_rng(3))))
    assert not mirrored


def test_unlabeled_points_beside_labeled_ones_come_as_they_are() -> None:
    labels = np.where(np.arange(24) < 12, 0, -1)  # labeled, all of class 0
    plan = LocalPlan(batch_size=4, augment="flip")
    make = matching_batches(IMAGES, POINTS, labels, plan, 5)
    found = list(make(np.random.default_rng(0)))
    assert [targets.tolist() for _, targets in found] == [[0] * 4 + [-1] * 5] * 3
    plain, mirrored = seen_in([(inputs[4:], targets) for inputs, targets in found])
    assert not mirrored
    assert set(plain) <= set(POINTS[12:].tolist())
    plain, mirrored = seen_in([(inputs[:4], targets) for inputs, targets in found])
    assert sorted(plain + mirrored) == sorted(POINTS[:12].tolist())
    assert mirrored
