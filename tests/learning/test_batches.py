"""From uint8 images to batches: values, memory layout, order, and who belongs to whom."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedul_flwr.learning.batches import (
    epoch_order,
    matching_batches,
    paired_batches,
    point_batches,
    repeated_batches,
    set_batches,
    to_input,
)
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Batch, Batches


def numbered(count: int, height: int = 2, width: int = 3) -> NDArray[np.uint8]:
    """Images whose every pixel is their index."""
    images = np.empty((count, height, width, 1), dtype=np.uint8)
    images[:] = np.arange(count)[:, None, None, None]
    return images


def index_of(inputs: torch.Tensor) -> list[int]:
    return [round(float(value)) for value in (inputs[:, 0, 0, 0] + 1) * 127.5]


def test_bytes_become_numbers_from_minus_1_to_1() -> None:
    pixels = torch.tensor([0, 51, 204, 255], dtype=torch.uint8).reshape(1, 1, 4, 1)
    # v / 127.5 - 1: 51 / 127.5 = .4, 204 / 127.5 = 1.6
    found = to_input(pixels)
    np.testing.assert_allclose(found.ravel(), [-1, -0.6, 0.6, 1], atol=1e-7)
    assert found.dtype == torch.float32
    assert pixels.ravel().tolist() == [0, 51, 204, 255]  # the images themselves are left alone


@pytest.mark.parametrize(
    ("num_points", "batch_size", "sizes"),
    [(7, 3, [3, 3]), (6, 3, [3, 3]), (7, 0, [7]), (7, 7, [7]), (7, 8, [7]), (2, 1, [1, 1])],
)
def test_an_epoch_takes_every_point_once_and_drops_the_incomplete_batch(
    num_points: int, batch_size: int, sizes: list[int]
) -> None:
    batches = epoch_order(num_points, batch_size, np.random.default_rng(0))
    assert [len(batch) for batch in batches] == sizes
    taken = np.concatenate(batches)
    assert len(np.unique(taken)) == len(taken)
    assert set(taken) <= set(range(num_points))


@pytest.mark.parametrize("augment", ["none", "rotate", "flip"])
def test_targets_stay_with_their_points(augment: str) -> None:
    points = np.array([11, 3, 30, 8, 25, 19, 2])
    plan = LocalPlan(batch_size=3, augment=augment)
    make = point_batches(numbered(40, 9, 9), points, 1000 + points, plan)
    batches = list(make(np.random.default_rng(1)))
    assert [tuple(inputs.shape) for inputs, _, _ in batches] == [(3, 1, 9, 9)] * 2
    for inputs, targets, _ in batches:
        assert targets.dtype == torch.int64
        center = inputs[:, :, 4:5, 4:5]  # rotation leaves it where it is
        assert [1000 + index for index in index_of(center)] == targets.tolist()
        assert set(index_of(center)) <= set(points.tolist())


def test_few_points_come_again_until_there_are_as_many_batches_as_asked_for() -> None:
    rows = np.array([7, 2, 9, 4, 0])
    made = repeated_batches(numbered(10), rows, rows * 10, LocalPlan(batch_size=2), 15)
    found = list(made(np.random.default_rng(0)))
    assert [len(inputs) for inputs, _, _ in found] == [2] * 15
    seen = [index for inputs, _, _ in found for index in index_of(inputs)]
    assert [10 * index for index in seen] == [int(y) for _, targets, _ in found for y in targets]
    # 30 places, 5 points: each stretch of five has all of them, in an order of its own.
    stretches = [seen[start : start + 5] for start in range(0, 30, 5)]
    assert all(sorted(stretch) == [0, 2, 4, 7, 9] for stretch in stretches)
    assert len({tuple(stretch) for stretch in stretches}) > 1


def test_given_vectors_then_their_noise_is_of_the_rounds_generator() -> None:
    vectors = np.ones((4, 3), np.float32)
    plan = LocalPlan(batch_size=0, augment="noise", noise=0.5)
    batches = point_batches(vectors, np.arange(4), np.arange(4), plan)
    inputs, targets, _ = next(iter(batches(np.random.default_rng(3))))
    rng = np.random.default_rng(3)
    order = rng.permutation(4)
    np.testing.assert_array_equal(targets.numpy(), order)
    noise = rng.standard_normal((4, 3)).astype(np.float32)
    assert inputs.dtype == torch.float32
    np.testing.assert_allclose(inputs.numpy(), 1 + 0.5 * noise, rtol=1e-6)


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


def seen_in(batches: list[Batch]) -> tuple[list[int], list[int]]:
    """Rows of the images that are in the batches as they are, and those that are mirrored."""
    plain: list[int] = []
    mirrored: list[int] = []
    known = to_input(torch.from_numpy(IMAGES))
    for inputs, _, _ in batches:
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
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(found, again, strict=True))
    plain, mirrored = seen_in(list(maker(LocalPlan(batch_size=4))(np.random.default_rng(3))))
    assert not mirrored


def test_unlabeled_points_beside_labeled_ones_come_as_they_are() -> None:
    labels = np.where(np.arange(24) < 12, 0, -1)  # labeled, all of class 0
    plan = LocalPlan(batch_size=4, augment="flip")
    make = matching_batches(IMAGES, POINTS, labels, plan, 5)
    found = list(make(np.random.default_rng(0)))
    assert [targets.tolist() for _, targets, _ in found] == [[0] * 4 + [-1] * 5] * 3
    plain, mirrored = seen_in([Batch(batch.unlabeled, batch.targets) for batch in found])
    assert not mirrored
    assert set(plain) <= set(POINTS[12:].tolist())
    plain, mirrored = seen_in([Batch(batch.labeled, batch.labels) for batch in found])
    assert sorted(plain + mirrored) == sorted(POINTS[:12].tolist())
    assert mirrored


Sizes = tuple[int, int]


def epoch(labeled: int, others: int, batch_size: int, unlabeled_size: int) -> list[Batch]:
    """Row i of the images shows i; points with a label have their row as label."""
    labels = np.full(labeled + others, -1, dtype=np.int64)
    points = 120 - np.arange(labeled + others)
    known = np.random.default_rng(7).permutation(labeled + others)[:labeled]
    labels[known] = points[known]
    plan = LocalPlan(batch_size=batch_size)
    make = matching_batches(numbered(121), points, labels, plan, unlabeled_size)
    return list(make(np.random.default_rng(0)))


def sizes(found: list[Batch]) -> list[Sizes]:
    """Labeled and unlabeled points of every batch; the labeled ones come first."""
    for inputs, labels, _ in found:
        assert len(inputs) == len(labels)
        assert labels.dtype == torch.int64
        count = int((labels >= 0).sum())
        assert (labels[:count] >= 0).all()
        assert index_of(inputs)[:count] == labels[:count].tolist()
    return [(int((labels >= 0).sum()), int((labels < 0).sum())) for _, labels, _ in found]


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
        (0, 43, 5, 0, [(0, 5)] * 8),
        (0, 43, 0, 0, [(0, 43)]),
        (1, 1, 5, 8, [(1, 1)]),
    ],
)
def test_an_epoch_is_a_pass_over_the_labeled_points(
    labeled: int, others: int, batch_size: int, unlabeled_size: int, expected: list[Sizes]
) -> None:
    found = epoch(labeled, others, batch_size, unlabeled_size)
    assert sizes(found) == expected
    shown = torch.cat([labels[labels >= 0] for _, labels, _ in found]).tolist()
    assert len(set(shown)) == len(shown)
    beside = [index_of(inputs[labels < 0]) for inputs, labels, _ in found]
    rows = [row for part in beside for row in part]
    _, counts = np.unique(rows, return_counts=True)
    if unlabeled_size == 0 and labeled:  # everyone once
        assert len(counts) == len(rows) == others
    elif others and labeled:  # in turns: nobody a second time before the others
        assert counts.max() - (0 if len(counts) < others else counts.min()) <= 1


def epoch_paired_batches(labeled: int, others: int, batch_size: int, views: int = 1) -> list[Batch]:
    """Points are rows 100, 99, … of images that show their row."""
    points = 100 - np.arange(labeled + others)
    plan = LocalPlan(batch_size=batch_size)
    make = paired_batches(numbered(101), points, labeled, plan, views)
    return list(make(np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("labeled", "others", "batch_size", "sizes"),
    [
        (3, 40, 5, [6] * 13),  # all 3 labeled ones and 3 others, 39 of the 40
        (10, 2, 5, [7]),  # 5 labeled and both others
        (10, 0, 4, [4, 4]),  # without others a pass over the labeled ones
        (0, 9, 4, [4, 4]),  # without labeled ones a pass over the others
        (4, 9, 0, [8, 8]),  # batch-size 0: all labeled ones, and as many others
        (0, 9, 0, [9]),
        (1, 3, 5, [2, 2, 2]),
        (0, 1, 5, [1]),
    ],
)
def test_an_epoch_is_a_pass_over_the_others(
    labeled: int, others: int, batch_size: int, sizes: list[int]
) -> None:
    found = epoch_paired_batches(labeled, others, batch_size)
    assert [len(positions) for _, positions, _ in found] == sizes
    for inputs, positions, _ in found:
        assert index_of(inputs) == (100 - positions).tolist()
    taken = torch.cat([positions for _, positions, _ in found]).numpy()
    assert taken.dtype == np.int64
    free = taken[taken >= labeled]
    assert len(np.unique(free)) == len(free)
    if labeled and others:  # labeled points take turns: none comes more often than another
        counts = np.bincount(taken[taken < labeled], minlength=labeled)
        assert counts.max() - counts.min() <= 1


def test_views_show_the_same_points_each_augmented_anew() -> None:
    for inputs, positions, _ in epoch_paired_batches(5, 12, 4, views=3):
        assert len(inputs) == 3 * len(positions)
        assert index_of(inputs) == (100 - positions).tolist() * 3
    images = np.random.default_rng(0).integers(0, 256, (20, 9, 9, 1), dtype=np.uint8)
    plan = LocalPlan(batch_size=4, augment="rotate")
    make = paired_batches(images, np.arange(20), 5, plan, views=2)
    differ = []
    for inputs, _, _ in make(np.random.default_rng(0)):
        one, two = inputs.chunk(2)
        differ += ((one - two).abs().amax(dim=(1, 2, 3)) > 0).tolist()
        # Rotation leaves the center where it is.
        torch.testing.assert_close(one[:, :, 4, 4], two[:, :, 4, 4], rtol=0, atol=1e-5)
    assert 0.4 < np.mean(differ) < 1  # quarter turns: 3 of 4 pairs differ, of 24 in all
