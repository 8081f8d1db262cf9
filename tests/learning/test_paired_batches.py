"""Batches of labeled points and as many others: sizes, who comes how often, views."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fedul_flwr.learning.batches import paired_batches
from fedul_flwr.learning.plan import LocalPlan
from tests.learning.test_batches import index_of, numbered


def epoch(
    labeled: int, others: int, batch_size: int, views: int = 1, seed: int = 0
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Points are rows 100, 99, … of images that show their row."""
    points = 100 - np.arange(labeled + others)
    plan = LocalPlan(batch_size=batch_size)
    make = paired_batches(numbered(101), points, labeled, plan, views)
    return list(make(np.random.default_rng(seed)))


@pytest.mark.parametrize(
    ("labeled", "others", "batch_size", "sizes"),
    [
        (10, 40, 5, [10] * 8),  # 5 and 5, eight times 5 others
        (3, 40, 5, [6] * 13),  # all 3 labeled ones and 3 others, 39 of the 40
        (10, 43, 4, [8] * 10),
        (10, 2, 5, [7]),  # 5 labeled and both others
        (10, 0, 4, [4, 4]),  # without others a pass over the labeled ones
        (3, 0, 4, [3]),
        (0, 9, 4, [4, 4]),  # without labeled ones a pass over the others
        (0, 3, 4, [3]),
        (4, 9, 0, [8, 8]),  # batch-size 0: all labeled ones, and as many others
        (0, 9, 0, [9]),
        (1, 3, 5, [2, 2, 2]),
        (1, 0, 5, [1]),
        (0, 1, 5, [1]),
    ],
)
def test_sizes(labeled: int, others: int, batch_size: int, sizes: list[int]) -> None:
    found = epoch(labeled, others, batch_size)
    assert [len(positions) for _, positions in found] == sizes
    assert [len(inputs) for inputs, _ in found] == sizes


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    labeled=st.integers(1, 12),
    others=st.integers(1, 50),
    batch_size=st.integers(1, 15),
    seed=st.integers(0, 99),
)
@example(labeled=12, others=50, batch_size=5, seed=0)
def test_an_epoch_is_a_pass_over_the_others(
    labeled: int, others: int, batch_size: int, seed: int
) -> None:
    found = epoch(labeled, others, batch_size, seed=seed)
    each = min(batch_size, labeled)
    taken = torch.cat([positions for _, positions in found]).numpy()
    assert taken.dtype == np.int64
    free = taken[taken >= labeled]
    assert len(np.unique(free)) == len(free) == (others // each * each if others > each else others)
    # Labeled points take turns: none comes a second time more often than another.
    counts = np.bincount(taken[taken < labeled], minlength=labeled)
    assert counts.sum() == each * len(found)
    assert counts.max() - counts.min() <= 1
    for inputs, positions in found:
        assert index_of(inputs) == (100 - positions).tolist()
        assert (positions < labeled).sum() == each


def test_views_show_the_same_points_each_augmented_anew() -> None:
    for inputs, positions in epoch(5, 12, 4, views=3):
        assert len(inputs) == 3 * len(positions)
        assert index_of(inputs) == (100 - positions).tolist() * 3
    images = np.random.default_rng(0).integers(0, 256, (20, 9, 9, 1), dtype=np.uint8)
    plan = LocalPlan(batch_size=4, augment="rotate")
    make = paired_batches(images, np.arange(20), 5, plan, views=2)
    differ = []
    for inputs, _ in make(np.random.default_rng(0)):
        one, two = inputs.chunk(2)
        differ += ((one - two).abs().amax(dim=(1, 2, 3)) > 0).tolist()
        # Rotation leaves the center where it is.
        torch.testing.assert_close(one[:, :, 4, 4], two[:, :, 4, 4], rtol=0, atol=1e-5)
    assert 0.4 < np.mean(differ) < 1  # quarter turns: 3 of 4 pairs differ, of 24 in all
