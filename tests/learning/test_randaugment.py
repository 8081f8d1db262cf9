"""RandAugment: what is drawn, what each operation does to an image, and what never changes."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fedul_flwr.learning import randaugment as module
from fedul_flwr.learning import strong as colors
from fedul_flwr.learning.batches import rotations, shears, warp
from fedul_flwr.learning.randaugment import OPERATIONS, randaugment
from tests.learning.test_augment import noise

COLORS, GEOMETRY = OPERATIONS[:8], OPERATIONS[8:]
SHAPES = [(5, 1, 8, 8), (4, 3, 32, 32), (3, 3, 20, 31), (1, 3, 9, 7), (1, 1, 1, 1)]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``only("rotate", -0.5)``: every image gets this operation at this strength."""

    def draw(name: str, strength: float) -> None:
        def drawn(inputs: Tensor, *_: int) -> tuple[Tensor, Tensor]:
            chosen = torch.tensor([name == operation for operation in OPERATIONS])
            return chosen.repeat(len(inputs), 1), torch.full((len(inputs), 13), strength)

        monkeypatch.setattr(module, "_draw", drawn)

    return draw


def eight_bit(*shape: int) -> Tensor:
    """Images as they come: whole levels, brought to [-1, 1]."""
    return ((noise(*shape) + 1) * 127.5).round() / 127.5 - 1


# What is drawn


def test_every_image_draws_different_operations_each_as_often() -> None:
    torch.manual_seed(0)
    drawn, _ = module._draw(torch.zeros(3000, 1, 1, 1), 6, 2, 5)
    assert (drawn.sum(dim=1) == 6).all()
    # 3000·6/13 = 1385 images for each, five deviations of sqrt(3000·6/13·7/13) = 27.3
    assert (drawn.sum(dim=0) - 3000 * 6 / 13).abs().max() < 137
    # Both of two: 3000·(6·5)/(13·12) = 577, five deviations of sqrt(577·(1 - .192)) = 21.6
    both = drawn.float().T @ drawn.float()
    assert (both[~torch.eye(13, dtype=torch.bool)] - 3000 * 30 / 156).abs().max() < 108
    every, _ = module._draw(torch.zeros(5, 1, 1, 1), 13, 2, 5)
    assert every.all()


def test_magnitudes_are_whole_numbers_of_the_range_in_either_direction() -> None:
    torch.manual_seed(0)
    _, strengths = module._draw(torch.zeros(4000, 1, 1, 1), 6, 2, 5)
    assert strengths.shape == (4000, 13)
    values = torch.tensor([-5, -4, -3, -2, 2, 3, 4, 5]) / 10
    for column in strengths.unbind(1):
        found, counts = column.unique(return_counts=True)
        torch.testing.assert_close(found, values)
        # 500 of each, five deviations of sqrt(4000·7/64) = 20.9
        assert (counts - 500).abs().max() < 105
    # Operations of an image draw apart: the mean of 4000 products of two directions is 0 ± .016.
    signs = strengths.sign()
    together = (signs.T @ signs / 4000)[~torch.eye(13, dtype=torch.bool)]
    assert together.abs().max() < 5 / math.sqrt(4000)


# What the operations do


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("name", COLORS)
def test_strengths_of_color_operations(only: Any, name: str, sign: int) -> None:
    images = eight_bit(2, 3, 12, 10)
    levels = (images + 1) * 127.5
    # At magnitude 3 of 10: 8 - round(1.2) = 7 bits, a threshold of 256·.7 = 179.2, and factors
    # of 1 ± .27.
    factors = torch.full((2,), 1 + sign * 0.27)
    expected = {
        "autocontrast": lambda: colors.autocontrast(levels),
        "equalize": lambda: colors.equalize(levels),
        "posterize": lambda: colors.posterize(levels, torch.tensor([7, 7])),
        "solarize": lambda: colors.solarize(levels, torch.tensor([179.2, 179.2])),
        "color": lambda: colors.saturate(levels, factors),
        "contrast": lambda: colors.contrast(levels, factors),
        "brightness": lambda: colors.brighten(levels, factors),
        "sharpness": lambda: colors.sharpen(levels, factors),
    }[name]()
    only(name, sign * 0.3)
    found = (randaugment(images) + 1) * 127.5
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
    assert (found - levels).abs().max() > 1 - 2e-3


@pytest.mark.parametrize("strength", [-0.4, 0.4])
@pytest.mark.parametrize("name", GEOMETRY)
def test_strengths_of_geometric_operations(only: Any, name: str, strength: float) -> None:
    images = noise(2, 3, 12, 20)
    matrix, shift, none = torch.eye(2)[None], torch.zeros(1, 2), torch.zeros(1)
    match name:  # at magnitude 4 of 10
        case "rotate":
            matrix = rotations(torch.tensor([30 * strength]))
        case "shear-x":
            matrix = shears(torch.tensor([0.3 * strength]), none)
        case "shear-y":
            matrix = shears(none, torch.tensor([0.3 * strength]))
        case "translate-x":
            shift = torch.tensor([[150 / 331 * strength, 0]])
        case "translate-y":
            shift = torch.tensor([[0, 150 / 331 * strength]])
    expected = warp(images + 1, matrix.repeat(2, 1, 1), shift.repeat(2, 1)) - 1
    only(name, strength)
    found = randaugment(images)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    assert (found - images).abs().max() > 0.1
