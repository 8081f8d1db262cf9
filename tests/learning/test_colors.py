"""Changes of tone and color: by hand, and against torchvision's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedul_flwr.learning import strong as colors

SHAPES = [(4, 3, 16, 16), (3, 1, 9, 20), (1, 3, 17, 5)]
each_shape = pytest.mark.parametrize("shape", SHAPES)
FACTORS = torch.tensor([0.0, 0.4, 1.0, 1.7])


def levels(*shape: int, least: int = 0, most: int = 255) -> Tensor:
    drawn = np.random.default_rng(0).integers(least, most + 1, shape)
    return torch.from_numpy(drawn).float()


def row(*values: float) -> Tensor:
    """``(1, 1, 1, w)``."""
    return torch.tensor(values).float()[None, None, None]


def by_torchvision(change: Any, images: Tensor, factors: Tensor) -> Tensor:
    """torchvision's own changes of floating point images, which it keeps in [0, 1]."""
    pairs = zip(images / 255, factors.tolist(), strict=False)
    return 255 * torch.stack([change(image, factor) for image, factor in pairs])


@pytest.fixture(scope="module")
def tv() -> Any:
    """torchvision's functions; their import takes seconds."""
    from torchvision.transforms import functional

    return functional


# Autocontrast


def test_autocontrast_by_hand() -> None:
    # 50 -> 0, 100 -> 255·50/100 = 127.5, 150 -> 255
    torch.testing.assert_close(colors.autocontrast(row(50, 100, 150)), row(0, 127.5, 255))
    assert colors.autocontrast(row(7, 8)).equal(row(0, 255))


@each_shape
def test_autocontrast_is_torchvisions(tv: Any, shape: tuple[int, ...]) -> None:
    images = levels(*shape, least=20, most=150)
    images[0, 0] = 77  # a flat channel stays
    found = colors.autocontrast(images)
    torch.testing.assert_close(found, 255 * tv.autocontrast(images / 255), atol=1e-3, rtol=0)
    assert (found[0, 0] == 77).all()
    assert colors.autocontrast(found).equal(found)


# Equalization


def test_equalization_by_hand() -> None:
    # 10 of three, 20 of two, 90 of one pixel. Below: 0, 3, 5; others than the brightest: 5.
    # 255·0/5 = 0, 255·3/5 = 153, 255.
    found = colors.equalize(row(10, 20, 10, 90, 20, 10))
    assert found.equal(row(0, 153, 0, 255, 153, 0))


def test_of_two_pixels_one_becomes_black_and_one_white() -> None:
    assert colors.equalize(row(10, 90)).equal(row(0, 255))


def test_half_levels_are_rounded_up() -> None:
    assert colors.equalize(row(0, 1, 2)).equal(row(0, 128, 255))  # 255·1/2 = 127.5


@pytest.mark.parametrize("step", [1, 4])
def test_equalization_is_torchvisions_where_that_leaves_no_remainder(tv: Any, step: int) -> None:
    # 255 times `step` pixels below the brightest level, of which there are 7.
    values = np.random.default_rng(0).integers(3, 90, 255 * step)
    images = torch.tensor([*values, *[200] * 7])[None, None, None].float()
    expected = tv.equalize(images.to(torch.uint8)).float()
    assert colors.equalize(images).equal(expected)
    assert len(expected.unique()) > 50


def test_elsewhere_torchvision_whitens_and_leaves_small_images_alone(tv: Any) -> None:
    # 5 of 1024 pixels are of the brightest level: torchvision has 1019 // 255 = 3 pixels for each
    # level, so that what ranks after 3·255 = 765 is white, a quarter.
    images = levels(1, 1, 32, 32, most=200)
    images[0, 0, 0, :5] = 255
    theirs = tv.equalize(images.to(torch.uint8)).float()
    assert (theirs == 255).float().mean() == pytest.approx(1 - 765 / 1019, abs=0.01)
    assert (colors.equalize(images) == 255).sum() == 5
    small = levels(1, 1, 8, 8, most=99)
    assert tv.equalize(small.to(torch.uint8)).float().equal(small)
    assert colors.equalize(small).max() == 255


def test_channels_are_equalised_apart_and_flat_ones_stay() -> None:
    images = levels(3, 3, 6, 7)
    images[1, 2] = 8
    found = colors.equalize(images)
    for i in range(3):
        for k in range(3):
            assert found[i, k].equal(colors.equalize(images[i : i + 1, k : k + 1])[0, 0])
    assert (found[1, 2] == 8).all()
    assert colors.equalize(images + 0.3).equal(found)  # nearest levels count


def test_every_level_equally_often_stays() -> None:
    images = torch.randperm(256, generator=torch.Generator().manual_seed(0)).float()
    images = images.view(1, 1, 16, 16)
    assert colors.equalize(images).equal(images)


# Posterising and solarising


@each_shape
def test_posterising_is_torchvisions(tv: Any, shape: tuple[int, ...]) -> None:
    images = levels(*shape)
    for bits in range(1, 9):
        found = colors.posterize(images, torch.full((len(images),), bits))
        assert found.equal(tv.posterize(images.to(torch.uint8), bits).float())


def test_every_image_has_bits_of_its_own() -> None:
    # 215 = 0b11010111; its highest 8, 4 and 1 bits. 214.6 counts as 215.
    images = torch.tensor([215.0, 214.6, 215.0]).view(3, 1, 1, 1)
    found = colors.posterize(images, torch.tensor([8, 4, 1]))
    assert found.flatten().tolist() == [215, 208, 128]


@each_shape
def test_solarising_is_torchvisions(tv: Any, shape: tuple[int, ...]) -> None:
    images = levels(*shape)
    for threshold in (0, 100, 128.0, 204.8, 255):
        found = colors.solarize(images, torch.full((len(images),), threshold))
        assert found.equal(tv.solarize(images.to(torch.uint8), threshold).float())
    assert colors.solarize(images, torch.full((len(images),), 256)).equal(images)


def test_solarising_by_hand() -> None:
    images = row(0, 99, 100, 255).repeat(2, 1, 1, 1)
    found = colors.solarize(images, torch.tensor([100, 250]))
    assert found[:, 0, 0].tolist() == [[0, 99, 155, 0], [0, 99, 100, 0]]


# Blends


@each_shape
@pytest.mark.parametrize("name", ["saturate", "contrast", "brighten", "sharpen"])
def test_blends_are_torchvisions(tv: Any, name: str, shape: tuple[int, ...]) -> None:
    twin = {
        "saturate": tv.adjust_saturation,
        "contrast": tv.adjust_contrast,
        "brighten": tv.adjust_brightness,
        "sharpen": tv.adjust_sharpness,
    }[name]
    images = levels(*shape)
    factors = FACTORS[-len(images) :]
    expected = by_torchvision(twin, images, factors)
    # torchvision's share of red is .2989, which is 255/10^4 less of a level at most, times 1.
    torch.testing.assert_close(getattr(colors, name)(images, factors), expected, atol=0.03, rtol=0)


@pytest.mark.parametrize("name", ["saturate", "contrast", "brighten", "sharpen"])
def test_a_factor_of_one_is_the_image(name: str) -> None:
    images = levels(2, 3, 7, 6)
    assert getattr(colors, name)(images, torch.ones(2)).equal(images)


def test_saturation_by_hand() -> None:
    # Gray: .299·100 + .587·200 + .114·50 = 29.9 + 117.4 + 5.7 = 153. Twice as far from it:
    # 47, 247, -53 -> 0; half as far: 126.5, 176.5, 101.5.
    images = torch.tensor([100.0, 200, 50]).view(1, 3, 1, 1).repeat(3, 1, 1, 1)
    found = colors.saturate(images, torch.tensor([0.0, 2.0, 0.5]))[:, :, 0, 0]
    expected = torch.tensor([[153.0, 153, 153], [47, 247, 0], [126.5, 176.5, 101.5]])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_images_of_other_than_three_channels_have_no_saturation(channels: int) -> None:
    images = levels(2, channels, 3, 4)
    assert colors.saturate(images, torch.tensor([0.0, 3.0])).equal(images)
    assert colors.gray(images).equal(images.sum(dim=1, keepdim=True) / channels)


def test_contrast_and_brightness_by_hand() -> None:
    images = row(0, 100, 200).repeat(2, 1, 1, 1)
    # About the mean of 100: half and three times as far; times 1.5 and 0.
    found = colors.contrast(images, torch.tensor([0.5, 3.0]))
    assert found[:, 0, 0].tolist() == [[50, 100, 150], [0, 100, 255]]
    found = colors.brighten(images, torch.tensor([1.5, 0.0]))
    assert found[:, 0, 0].tolist() == [[0, 150, 255], [0, 0, 0]]


def test_sharpness_by_hand() -> None:
    # A single pixel of 130 on 0: smoothed 5·130/13 = 50, at its neighbor within the border
    # 130/13 = 10. Factor 1.5 is half as far beyond: 130 + 40 = 170, and 0 - 5 -> 0.
    image = torch.zeros(1, 1, 3, 4)
    image[0, 0, 1, 1] = 130
    smooth = colors.sharpen(image, torch.zeros(1))[0, 0]
    sharp = colors.sharpen(image, torch.full((1,), 1.5))[0, 0]
    torch.testing.assert_close(smooth, torch.tensor([[0.0] * 4, [0, 50, 10, 0], [0.0] * 4]))
    torch.testing.assert_close(sharp, torch.tensor([[0.0] * 4, [0, 170, 0, 0], [0.0] * 4]))


@pytest.mark.parametrize("shape", [(2, 1, 1, 1), (2, 3, 2, 9), (2, 3, 1, 2), (2, 1, 5, 2)])
def test_images_that_are_all_border_have_no_sharpness(shape: tuple[int, ...]) -> None:
    images = levels(*shape)
    assert colors.sharpen(images, torch.tensor([0.0, 2.0])).equal(images)


CHANGES: dict[str, Any] = {
    "autocontrast": colors.autocontrast,
    "equalize": colors.equalize,
    "posterize": lambda images: colors.posterize(images, each(images, 4)),
    "solarize": lambda images: colors.solarize(images, each(images, 90)),
    "saturate": lambda images: colors.saturate(images, each(images, 1.9)),
    "contrast": lambda images: colors.contrast(images, each(images, 1.9)),
    "brighten": lambda images: colors.brighten(images, each(images, 1.9)),
    "sharpen": lambda images: colors.sharpen(images, each(images, 1.9)),
}


def each(images: Tensor, value: float) -> Tensor:
    return images.new_full((len(images),), value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CHANGES)
def test_shape_precision_and_range_stay_and_the_argument_too(name: str, dtype: Any) -> None:
    images = levels(3, 3, 5, 8).to(dtype)
    before = images.clone()
    for some in (images, images[:0]):
        found = CHANGES[name](some)
        assert (found.shape, found.dtype) == (some.shape, dtype)
    found = CHANGES[name](images)
    assert images.equal(before)
    assert not found.equal(before)
    assert 0 <= found.min() <= found.max() <= 255
