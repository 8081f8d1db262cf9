"""Rotating, shifting and flipping whole batches, against torch.rot90, geometry and by hand."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedul_flwr.learning import batches
from fedul_flwr.learning.batches import augmented, rotate, shears, translate, warp
from fedul_flwr.learning.plan import LocalPlan


def noise(*shape: int) -> Tensor:
    values = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    return torch.from_numpy(values)


def blob(height: int, width: int, right: float, up: float, radius: float = 3.0) -> Tensor:
    """``(1, 1, h, w)``: a soft white disc so far from the center, on black."""
    rows = torch.arange(height)[:, None] - (height - 1) / 2
    columns = torch.arange(width)[None, :] - (width - 1) / 2
    squared = (columns - right) ** 2 + (rows + up) ** 2
    return 2 * torch.exp(-squared / (2 * (radius / 2) ** 2))[None, None] - 1


def moments(image: Tensor) -> tuple[float, float, float, float]:
    """Center (right, up) and spread along both axes of what is not black."""
    mass = (image[0, 0].double() + 1).clamp(min=0)
    mass = mass / mass.sum()
    height, width = mass.shape
    up = (height - 1) / 2 - torch.arange(height).double()
    right = torch.arange(width).double() - (width - 1) / 2
    x, y = float((mass.sum(0) * right).sum()), float((mass.sum(1) * up).sum())
    return (
        x,
        y,
        math.sqrt(float((mass.sum(0) * (right - x) ** 2).sum())),
        math.sqrt(float((mass.sum(1) * (up - y) ** 2).sum())),
    )


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("quarters", [-1, 0, 1, 2, 3])
def test_quarter_turns_of_squares_are_rot90(quarters: int, size: int) -> None:
    images = noise(4, 3, size, size)
    found = rotate(images, torch.full((4,), 90.0 * quarters))
    # rot90 turns from the first dimension to the second: counter-clockwise with rows downwards.
    expected = torch.rot90(images, quarters, dims=(2, 3))
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_what_comes_from_outside_is_black() -> None:
    white = torch.ones(1, 2, 20, 20)
    turned = rotate(white, torch.tensor([45.0]))
    for row in (0, -1):
        for column in (0, -1):
            assert turned[0, :, row, column].tolist() == pytest.approx([-1, -1])
    assert turned[0, :, 10, 10].tolist() == pytest.approx([1, 1])
    assert turned.min() >= -1 - 1e-6
    assert turned.max() <= 1 + 1e-6
    assert (white == 1).all()  # the input is left alone


def flipped(found: Tensor, images: Tensor) -> int:
    return sum(bool(a.equal(b.flip(2))) for a, b in zip(found, images, strict=True))


@pytest.mark.parametrize(
    ("name", "most", "flips"), [("rotate", 20, 0), ("rotate-flip", 10, 1000), ("flip", 0, 1000)]
)
def test_rotation_has_bounds_and_half_of_a_batch_is_flipped(
    monkeypatch: pytest.MonkeyPatch, name: str, most: int, flips: int
) -> None:
    angles: list[Tensor] = [torch.zeros(0)]

    def spy(inputs: Tensor, degrees: Tensor) -> Tensor:
        angles[0] = degrees
        return inputs

    monkeypatch.setattr(batches, "rotate", spy)
    images = noise(2000, 1, 2, 2)
    found = augmented(images, LocalPlan(augment=name), np.random.default_rng(0))
    assert flipped(found, images) == pytest.approx(
        flips, abs=110
    )  # five deviations of sqrt(2000)/2
    if most:
        # 2000 draws come within 1/200 of both ends, but for a chance of 2·(399/400)^2000 = 1 %.
        assert -most <= angles[0].min() < -most * 0.995
        assert most * 0.995 < angles[0].max() <= most
        # The deviation of the mean is 2·most/sqrt(12·2000).
        assert abs(angles[0].mean()) < 0.065 * most


# Shifts


@pytest.mark.parametrize("down", [-4, 1, 4])
@pytest.mark.parametrize("right", [-4, -1, 3])
def test_a_shift_is_a_window_of_the_mirrored_image(down: int, right: int) -> None:
    images = noise(2, 3, 6, 9)
    padded = functional.pad(images, (4, 4, 4, 4), mode="reflect")
    expected = padded[:, :, 4 - down : 10 - down, 4 - right : 13 - right]
    found = translate(images, torch.tensor([down, down]), torch.tensor([right, right]))
    assert found.equal(expected)


def test_affine_turns_scales_and_shifts_within_its_limits() -> None:
    image = blob(28, 56, right=6.0, up=0.0, radius=4.0)  # oblong: a pixel is one both ways
    x0, y0, wide0, high0 = moments(image)
    found = augmented(
        image.repeat(300, 1, 1, 1), LocalPlan(augment="affine"), np.random.default_rng(0)
    )
    places = np.array([moments(one[None]) for one in found])
    # The center lies 6 to the right: turned by at most 15 degrees, times 0.9 to 1.1, moved by at
    # most 2; a quarter of a pixel for reading the nearest one.
    up, right = 6 * 1.1 * math.sin(math.radians(15)) + 2, 6 * 1.1 + 2
    least = 6 * 0.9 * math.cos(math.radians(15)) - 2
    assert np.abs(places[:, 1]).max() < up + 0.25
    assert least - 0.25 < places[:, 0].min() < places[:, 0].max() < right + 0.25
    sizes = places[:, 2:] / [wide0, high0]
    assert 0.85 < sizes.min() < 0.95
    assert 1.05 < sizes.max() < 1.15
    assert np.allclose(places[:, :2].mean(axis=0), [x0, y0], atol=0.35)  # nowhere in particular
    assert np.ptp(places[:, 0]) > 3
    assert np.ptp(places[:, 1]) > 4


@pytest.mark.parametrize("name", ["rotate", "affine"])
def test_the_nearest_pixel_is_taken_so_that_no_level_is_new(name: str) -> None:
    bits = np.random.default_rng(3).integers(0, 2, (20, 1, 9, 9))
    images = torch.tensor([-1.0, 0.5])[torch.from_numpy(bits)]
    found = augmented(images, LocalPlan(augment=name), np.random.default_rng(0))
    assert not torch.equal(found, images)
    assert set(found.unique().tolist()) == {-1.0, 0.5}


NONE = torch.zeros(1, 2)


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
