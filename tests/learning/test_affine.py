"""Affine maps of batches, by hand and on oblong images."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from fedul_flwr.learning.augment import rotations, shears, warp
from tests.learning.test_augment import blob, moments, noise

EYE = torch.eye(2)[None]
NONE = torch.zeros(1, 2)


def test_values_between_pixels_are_interpolated_or_of_the_nearest() -> None:
    image = torch.tensor([0.0, 4, 8])[None, None, None]
    shift = torch.tensor([[0.25 / 3, 0.0]])  # a quarter of a pixel
    # 0 + 1, 4 + 1, and three quarters of 8
    torch.testing.assert_close(warp(image, EYE, shift)[0, 0, 0], torch.tensor([1.0, 5, 6]))
    assert warp(image, EYE, shift, "nearest").equal(image)


def test_shears_by_hand() -> None:
    # Center (1, 1). Row 0 lies one above it, so its places move by -1 to the right: the value
    # comes from the pixel to the left; row 2's from the one to the right.
    image = torch.arange(1.0, 10).view(1, 1, 3, 3)
    across = warp(image, shears(torch.ones(1), torch.zeros(1)), NONE)
    down = warp(image, shears(torch.zeros(1), torch.ones(1)), NONE)
    expected = torch.tensor([[0.0, 1, 2], [4, 5, 6], [8, 9, 0]])
    torch.testing.assert_close(across[0, 0], expected)
    expected = torch.tensor([[0.0, 2, 6], [1, 5, 9], [4, 8, 0]])
    torch.testing.assert_close(down[0, 0], expected)


def test_rotations_are_counter_clockwise_in_degrees() -> None:
    turned = warp(noise(1, 2, 6, 6), rotations(torch.tensor([90.0])), NONE)
    torch.testing.assert_close(turned, torch.rot90(noise(1, 2, 6, 6), 1, dims=(2, 3)))
    right, up, *_ = moments(warp(blob(41, 61, 8, 0) + 1, rotations(torch.tensor([30.0])), NONE) - 1)
    assert right == pytest.approx(8 * math.cos(math.pi / 6), abs=0.05)
    assert up == pytest.approx(4, abs=0.05)


@pytest.mark.parametrize("shape", [(3, 1, 28, 28), (2, 3, 5, 9), (1, 1, 1, 1)])
def test_warp_is_torchs_affine_grid_and_sampling(shape: tuple[int, int, int, int]) -> None:
    torch.manual_seed(0)
    images, matrices, shifts = (
        torch.rand(shape),
        torch.randn(shape[0], 2, 2),
        torch.rand(shape[0], 2),
    )
    height, width = shape[2:]
    # affine_grid counts both sides from -1 to 1, so that a pixel across is not a pixel down.
    ratios = torch.tensor([[1, height / width], [width / height, 1]])
    maps = torch.cat([matrices * ratios, 2 * shifts[:, :, None]], dim=2)
    grid = functional.affine_grid(maps, list(shape), align_corners=False)
    expected = functional.grid_sample(images, grid, align_corners=False)
    torch.testing.assert_close(warp(images, matrices, shifts), expected)
