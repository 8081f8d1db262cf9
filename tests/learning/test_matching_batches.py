"""Batches of labeled points with unlabeled ones beside them: sizes, who comes how often, order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fedul_flwr.learning.batches import matching_batches
from fedul_flwr.learning.plan import LocalPlan
from tests.learning.test_batches import index_of, numbered

Batch = tuple[torch.Tensor, torch.Tensor]


def epoch(
    labeled: int, others: int, batch_size: int, unlabeled_size: int, seed: int = 0
) -> list[Batch]:
    """Row i of the images shows i; points with a label have their row as label."""
    labels = np.full(labeled + others, -1, dtype=np.int64)
    points = 120 - np.arange(labeled + others)
    known = np.random.default_rng(7).permutation(labeled + others)[:labeled]
    labels[known] = points[known]
    plan = LocalPlan(batch_size=batch_size)
    make = matching_batches(numbered(121), points, labels, plan, unlabeled_size)
    return list(make(np.random.default_rng(seed)))


def sizes(found: list[Batch]) -> list[tuple[int, int]]:
    """Labeled and unlabeled points of every batch; the labeled ones come first."""
    for inputs, labels in found:
        assert len(inputs) == len(labels)
        assert labels.dtype == torch.int64
        count = int((labels >= 0).sum())
        assert (labels[:count] >= 0).all()
        assert index_of(inputs)[:count] == labels[:count].tolist()
    return [(int((labels >= 0).sum()), int((labels < 0).sum())) for _, labels in found]


@pytest.mark.parametrize(
    ("labeled", "others", "batch_size", "unlabeled_size", "expected"),
    [
        (10, 40, 5, 8, [(5, 8)] * 2),
        (12, 40, 5, 8, [(5, 8)] * 2),  # the last 2 labeled ones are left out
        (10, 6, 5, 8, [(5, 6)] * 2),  # at most all
        (10, 40, 0, 8, [(10, 8)]),  # batch-size 0: all labeled ones
        (12, 10, 3, 0, [(3, 3), (3, 3), (3, 2), (3, 2)]),
        (12, 3, 3, 0, [(3, 1), (3, 1), (3, 1), (3, 0)]),
        (10, 0, 4, 8, [(4, 0)] * 2),  # no unlabeled ones
        (0, 43, 5, 8, [(0, 8)] * 5),  # no labeled ones: a pass over the others
        (0, 3, 5, 8, [(0, 3)]),
        (0, 43, 5, 0, [(0, 5)] * 8),
        (0, 43, 0, 0, [(0, 43)]),
        (1, 1, 5, 8, [(1, 1)]),
    ],
)
def test_sizes(
    labeled: int,
    others: int,
    batch_size: int,
    unlabeled_size: int,
    expected: list[tuple[int, int]],
) -> None:
    assert sizes(epoch(labeled, others, batch_size, unlabeled_size)) == expected


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    labeled=st.integers(2, 30),
    others=st.integers(0, 60),
    batch_size=st.integers(2, 15),
    unlabeled_size=st.integers(0, 20),
    seed=st.integers(0, 99),
)
@example(labeled=30, others=60, batch_size=5, unlabeled_size=0, seed=0)
def test_an_epoch_is_a_pass_over_the_labeled_points(
    labeled: int, others: int, batch_size: int, unlabeled_size: int, seed: int
) -> None:
    found = epoch(labeled, others, batch_size, unlabeled_size, seed)
    shown = torch.cat([labels[labels >= 0] for _, labels in found]).tolist()
    each = min(batch_size, labeled)
    assert len(set(shown)) == len(shown) == labeled // each * each
    beside = [index_of(inputs[labels < 0]) for inputs, labels in found]
    rows = [row for part in beside for row in part]
    _, counts = np.unique(rows, return_counts=True)
    if unlabeled_size == 0:  # everyone once, in parts of equal length but for one
        lengths = [len(set(part)) for part in beside]
        assert len(counts) == others
        assert max(lengths) - min(lengths) <= 1
        assert sum(lengths) == others
    elif others > 1 and unlabeled_size > 1:  # in turns: nobody a second time before the others
        assert len(rows) == min(unlabeled_size, others) * len(found)
        absent = len(counts) < others
        assert counts.max() - (0 if absent else counts.min()) <= 1


def test_epochs_differ_and_repeat_with_their_seed() -> None:
    def rows(seed: int) -> list[int]:
        return [row for inputs, _ in epoch(20, 60, 4, 10, seed) for row in index_of(inputs)]

    assert rows(0) == rows(0)
    assert rows(0) != rows(1)
    # Another number of unlabeled ones leaves the order of the labeled ones alone.
    shown = [
        [label for _, labels in epoch(20, 60, 4, size) for label in labels[labels >= 0].tolist()]
        for size in (10, 3, 0)
    ]
    assert shown[0] == shown[1] == shown[2]
