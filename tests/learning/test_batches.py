"""From uint8 images to batches: values, memory layout, order, and who belongs to whom."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedul_flwr.learning.batches import (
    epoch_order,
    evaluation_batches,
    gather,
    point_batches,
    repeated_batches,
    to_input,
)
from fedul_flwr.learning.plan import LocalPlan


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


@given(num_points=st.integers(1, 60), batch_size=st.integers(0, 70), seed=st.integers(0, 99))
@hypothesis_settings(max_examples=100, deadline=None)
def test_an_epoch_takes_every_point_once_and_drops_the_incomplete_batch(
    num_points: int, batch_size: int, seed: int
) -> None:
    batches = epoch_order(num_points, batch_size, np.random.default_rng(seed))
    taken = np.concatenate(batches)
    assert len(np.unique(taken)) == len(taken)
    assert taken.max() < num_points
    if batch_size == 0 or batch_size >= num_points:
        assert [len(batch) for batch in batches] == [num_points]
    else:
        assert [len(batch) for batch in batches] == [batch_size] * (num_points // batch_size)


def test_the_points_that_are_dropped_differ_between_epochs() -> None:
    rng = np.random.default_rng(0)
    dropped = [set(range(7)) - set(np.concatenate(epoch_order(7, 3, rng))) for _ in range(50)]
    assert set.union(*dropped) == set(range(7))  # missing one has probability 7·(6/7)^50 = 0.3 %


@pytest.mark.parametrize("augment", ["none", "rotate", "flip"])
def test_targets_stay_with_their_points(augment: str) -> None:
    points = np.array([11, 3, 30, 8, 25, 19, 2])
    plan = LocalPlan(batch_size=3, augment=augment)
    make = point_batches(numbered(40, 9, 9), points, 1000 + points, plan)
    batches = list(make(np.random.default_rng(1)))
    assert [tuple(inputs.shape) for inputs, _ in batches] == [(3, 1, 9, 9)] * 2
    for inputs, targets in batches:
        assert targets.dtype == torch.int64
        center = inputs[:, :, 4:5, 4:5]  # rotation leaves it where it is
        assert [1000 + index for index in index_of(center)] == targets.tolist()
        assert set(index_of(center)) <= set(points.tolist())


def test_evaluation_takes_all_points_in_order() -> None:
    points = np.array([5, 1, 9, 9, 0])
    batches = list(evaluation_batches(numbered(10), points, batch_size=2))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert [index for batch in batches for index in index_of(batch)] == [5, 1, 9, 9, 0]
    assert list(evaluation_batches(numbered(10), points[:0], 2)) == []


def test_few_points_come_again_until_there_are_as_many_batches_as_asked_for() -> None:
    rows = np.array([7, 2, 9, 4, 0])
    made = repeated_batches(numbered(10), rows, rows * 10, LocalPlan(batch_size=2), 15)
    found = list(made(np.random.default_rng(0)))
    assert [len(inputs) for inputs, _ in found] == [2] * 15
    seen = [index for inputs, _ in found for index in index_of(inputs)]
    assert [10 * index for index in seen] == [int(y) for _, targets in found for y in targets]
    # 30 places, 5 points: each stretch of five has all of them, in an order of its own.
    stretches = [seen[start : start + 5] for start in range(0, 30, 5)]
    assert all(sorted(stretch) == [0, 2, 4, 7, 9] for stretch in stretches)
    assert len({tuple(stretch) for stretch in stretches}) > 1


def test_a_repeated_batch_has_at_most_all_points() -> None:
    rows = np.arange(3)
    for size in (8, 0):
        made = repeated_batches(numbered(3), rows, rows, LocalPlan(batch_size=size), 4)
        batches = [sorted(index_of(x)) for x, _ in made(np.random.default_rng(0))]
        assert batches == [[0, 1, 2]] * 4


def test_vectors_pass_unchanged_into_every_batch() -> None:
    vectors = np.arange(12, dtype=np.float32).reshape(6, 2) - 5.5
    points = np.array([4, 0, 2])
    plan = LocalPlan(batch_size=2)
    (inputs, targets), *_ = point_batches(vectors, points, np.array([7, 8, 9]), plan)(
        np.random.default_rng(0)
    )
    rows = {7: 4, 8: 0, 9: 2}
    expected = [vectors[rows[int(target)]].tolist() for target in targets]
    assert inputs.dtype == torch.float32
    assert inputs.tolist() == expected
    evaluated = torch.cat(list(evaluation_batches(vectors, points, 2)))
    np.testing.assert_array_equal(evaluated.numpy(), vectors[points])


def test_batches_of_vectors_are_copies() -> None:
    vectors = np.ones((3, 2), dtype=np.float32)
    to_input(gather(vectors, np.array([0]))).zero_()
    assert vectors.all()


def test_given_vectors_then_their_noise_is_of_the_rounds_generator() -> None:
    vectors = np.ones((4, 3), np.float32)
    plan = LocalPlan(batch_size=0, augment="noise", noise=0.5)
    batches = point_batches(vectors, np.arange(4), np.arange(4), plan)
    (inputs, targets) = next(iter(batches(np.random.default_rng(3))))
    rng = np.random.default_rng(3)
    order = rng.permutation(4)
    np.testing.assert_array_equal(targets.numpy(), order)
    noise = rng.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_allclose(inputs.numpy(), 1 + 0.5 * noise, rtol=1e-6)
