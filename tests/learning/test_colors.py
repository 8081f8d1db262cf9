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


def test_channels_are_equalised_apart_and_flat_ones_stay() -> None:
    images = levels(3, 3, 6, 7)
    images[1, 2] = 8
    found = colors.equalize(images)
    for i in range(3):
        for k in range(3):
            assert found[i, k].equal(colors.equalize(images[i : i + 1, k : k + 1])[0, 0])
    assert (found[1, 2] == 8).all()
    assert colors.equalize(images + 0.3).equal(found)  # nearest levels count


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
