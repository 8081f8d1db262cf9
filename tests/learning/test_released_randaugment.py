"""FedMatch's released RandAugment: its draws, strengths by hand, and Pillow's geometry."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from fedul_flwr.learning import released_randaugment as module
from fedul_flwr.learning import strong as colors
from fedul_flwr.learning.released_randaugment import OPERATIONS, released_randaugment
from tests.learning.test_randaugment import eight_bit


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``draw(("rotate", 4), ("color", -2))``: every image gets these, of these numbers of 9."""

    def set_drawn(*operations: tuple[str, int]) -> None:
        def drawn(inputs: Tensor, *_: int) -> tuple[Tensor, Tensor]:
            names = torch.tensor([[OPERATIONS.index(name) for name, _ in operations]])
            strengths = torch.tensor([[number / 9 for _, number in operations]])
            return names.repeat(len(inputs), 1), strengths.repeat(len(inputs), 1).to(inputs.dtype)

        monkeypatch.setattr(module, "_draw", drawn)

    return set_drawn


def levels(images: Tensor) -> Tensor:
    return (images + 1) * 127.5


# Draws


def test_numbers_are_below_a_bound_that_is_drawn_for_every_image() -> None:
    torch.manual_seed(0)
    count = 20000
    _, strengths = module._draw(torch.zeros(count, 1, 1, 1), 6, 2, 5)
    numbers = (strengths.abs() * 9).round()
    # Bounds 2, 3, 4 and 5 alike, numbers below: P(0) = (1/2 + 1/3 + 1/4 + 1/5)/4 = .320833 and the
    # mean is (1/2 + 1 + 3/2 + 2)/4 = 1.25 of 9. P(4) = 1/20 and P(3) = (1/4 + 1/5)/4 = .1125.
    assert numbers.mean().item() == pytest.approx(1.25, abs=0.03)
    for number, share in ((0, 0.320833), (3, 0.1125), (4, 0.05)):
        assert (numbers == number).double().mean().item() == pytest.approx(share, abs=0.01)
    assert numbers.max() == 4
    # One bound for an image: all six are 0 or 1 with probability (1 + (2/3)^6 + (1/2)^6 +
    # (2/5)^6)/4 = .276877; with a bound for each it would be (.320833 + .320833)^6 = .0698.
    few = (numbers <= 1).all(dim=1).double().mean().item()
    assert few == pytest.approx(0.276877, abs=0.02)


def test_operations_are_drawn_with_repetition_each_as_often() -> None:
    torch.manual_seed(0)
    operations, strengths = module._draw(torch.zeros(13000, 1, 1, 1), 6, 2, 5)
    assert operations.shape == strengths.shape == (13000, 6)
    counts = operations.flatten().bincount(minlength=13)
    # 6000 of each, five deviations of sqrt(78000·12/169) = 74.4
    assert (counts - 6000).abs().max() < 372
    different = [len(set(row)) == 6 for row in operations.tolist()]
    # 13·12·11·10·9·8/13^6 = .255971
    assert np.mean(different) == pytest.approx(0.255971, abs=0.02)
    signs = strengths[strengths != 0].sign()
    assert abs(signs.mean().item()) < 0.03


# Images


@pytest.mark.parametrize("sign", [-1, 1])
def test_strengths_of_color_operations_by_hand(draw: Any, sign: int) -> None:
    # Number 4 of 9: 8 − round(16/9) = 6 bits, a threshold of 256 − 100/9 = 244.89, and factors of
    # 1 ± .4, ± .2222, ± .1333 and ± .4.
    images = eight_bit(2, 3, 12, 10)
    images[0, 0, 0] = 1.0  # levels of 255, which solarising inverts
    found: dict[str, Tensor] = {}
    for name in OPERATIONS[:8]:
        draw((name, 4 * sign))
        found[name] = levels(released_randaugment(images))
    before = levels(images)

    def factor(change: float) -> Tensor:
        return torch.full((2,), 1 + sign * change)

    expected = {
        "autocontrast": colors.autocontrast(before),
        "equalize": before,
        "posterize": (before.round() / 4).floor() * 4,
        "solarize": torch.where(before.round() < 245, before.round(), 255 - before.round()),
        "color": colors.saturate(before, factor(0.4)),
        "contrast": colors.contrast(before, factor(2 / 9)),
        "brightness": colors.brighten(before, factor(0.4 / 3)),
        "sharpness": colors.sharpen(before, factor(0.4)),
    }
    for name, images_after in expected.items():
        torch.testing.assert_close(found[name], images_after, atol=2e-3, rtol=0)


def smooth(height: int, width: int) -> Any:
    """An image without sharp edges, whose levels are whole."""
    down, right = np.mgrid[:height, :width]
    values = 128 + 60 * np.sin(down / 5) + 60 * np.cos(right / 7 + down / 9)
    return values.round().clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("number", [-4, 3])
@pytest.mark.parametrize("name", OPERATIONS[8:])
def test_geometric_operations_are_pillows(draw: Any, name: str, number: int) -> None:
    height, width = 24, 36
    picture = Image.fromarray(smooth(height, width))
    amount = number / 9
    match name:  # Pillow's maps begin at the upper left corner
        case "rotate":  # counter-clockwise whatever the sign
            after = picture.rotate(360 * abs(amount), Image.Resampling.BILINEAR, fillcolor=128)
            expected = np.asarray(after)
        case "shear-x":
            expected = transformed(picture, (1, 0.3 * amount, 0, 0, 1, 0))
        case "shear-y":
            expected = transformed(picture, (1, 0, 0, 0.3 * amount, 1, 0))
        case "translate-x":
            expected = transformed(picture, (1, 0, 0.2 * amount * width, 0, 1, 0))
        case "translate-y":
            expected = transformed(picture, (1, 0, 0, 0, 1, 0.2 * amount * height))
    draw((name, number))
    inputs = torch.from_numpy(np.array(picture)).float()[None, None] / 127.5 - 1
    found = levels(released_randaugment(inputs))[0, 0].numpy()
    # Pillow rounds, and has a border a pixel wide where either sees the outside.
    close = np.abs(found - expected) <= 2
    assert close.mean() > 0.88
    assert np.abs(found - np.asarray(picture)).max() > 20
    assert (found.min() > 5) == (name == "rotate")  # gray from outside, else black


def transformed(picture: Image.Image, data: tuple[float, ...]) -> Any:
    return np.asarray(
        picture.transform(picture.size, Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    )


def test_operations_are_made_in_the_order_in_which_they_are_drawn(draw: Any) -> None:
    # Levels 51 and 102. Autocontrast makes them 0 and 255, and brightness of 1 − .3 then 0 and
    # 178.5; the other way round autocontrast comes last: 0 and 255.
    images = torch.tensor([51.0, 102]).view(1, 1, 1, 2) / 127.5 - 1
    for order, expected in (((0, 1), [0, 178.5]), ((1, 0), [0, 255])):
        chosen = [("autocontrast", 9), ("brightness", -9)]
        draw(*(chosen[place] for place in order))
        found = levels(released_randaugment(images)).flatten()
        torch.testing.assert_close(found, torch.tensor(expected).float(), atol=1e-3, rtol=0)
