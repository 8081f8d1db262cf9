"""Strong augmentation, and changes of tone and color against torchvision's."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedul_flwr.learning import strong
from fedul_flwr.learning.strong import strong_augment
from tests.learning.test_augment import blob, moments

KNOBS = ("ROTATION", "SHIFT", "SCALE", "SHEAR", "CONTRAST", "CUTOUT")


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> object:
    """``only(SHIFT=.1)``: all other changes are off."""

    def set_knobs(**values: float) -> None:
        for name in KNOBS:
            monkeypatch.setattr(strong, name, values.get(name, 0.0))

    return set_knobs


def test_shifts_are_of_an_eighth_of_the_side_at_most(only: object) -> None:
    only(SHIFT=0.125)  # type: ignore[operator]
    torch.manual_seed(0)
    found = strong_augment(blob(40, 64, 0, 0).repeat(300, 1, 1, 1))
    places = np.array([moments(image[None])[:2] for image in found])
    assert np.abs(places[:, 0]).max() == pytest.approx(8, abs=0.2)  # 64 / 8
    assert np.abs(places[:, 1]).max() == pytest.approx(5, abs=0.2)  # 40 / 8
    for axis in (0, 1):
        assert places[:, axis].min() == pytest.approx(-places[:, axis].max(), abs=0.4)


def test_contrast_is_about_each_mean_before_brightness(monkeypatch: pytest.MonkeyPatch) -> None:
    # Means 0.4 and 0.8; half the contrast, then 1.5 times as bright, and no more than 1.
    factors = iter([0.5, 1.5])
    monkeypatch.setattr(strong, "_uniform", lambda values, *_: values.new_tensor(next(factors)))
    found = strong._recolor(torch.tensor([[0.2, 0.6], [0.7, 0.9]])[:, None, None])
    expected = torch.tensor([[0.45, 0.75], [1.0, 1.0]])[:, None, None]
    torch.testing.assert_close(found, expected)


def test_rotations_of_oblong_images_are_rotations(only: object) -> None:
    only(ROTATION=30.0)  # type: ignore[operator]
    torch.manual_seed(0)
    found = strong_augment(blob(41, 61, 10, 0).repeat(200, 1, 1, 1))
    places = np.array([moments(image[None]) for image in found])
    np.testing.assert_allclose(np.hypot(places[:, 0], places[:, 1]), 10, atol=0.1)
    angles = np.degrees(np.arctan2(places[:, 1], places[:, 0]))
    assert 29 < np.abs(angles).max() <= 30.2
    assert angles.min() < -25
    assert angles.max() > 25
    np.testing.assert_allclose(places[:, 2], places[0, 3], rtol=0.05)  # a disc stays a disc


def test_scales_are_between_the_bounds(only: object) -> None:
    only(SCALE=0.2)  # type: ignore[operator]
    torch.manual_seed(0)
    before = blob(41, 41, 0, 0, radius=6)
    spread = moments(before)[2]
    found = [moments(i[None])[2] / spread for i in strong_augment(before.repeat(200, 1, 1, 1))]
    assert 0.78 < min(found) < 0.83
    assert 1.17 < max(found) < 1.22


def test_the_cutout_is_a_black_square_of_bounded_side(only: object) -> None:
    only(CUTOUT=0.4)  # type: ignore[operator]
    torch.manual_seed(0)
    found = strong_augment(torch.ones(300, 2, 20, 30))
    sizes = []
    for image in found:
        black = (image[0] < 0).nonzero()
        assert (image[0] < 0).equal(image[1] < 0)
        if len(black):
            extent = black.amax(dim=0) - black.amin(dim=0) + 1
            assert len(black) == int(extent.prod())  # a full rectangle: no holes
            sizes.append(int(extent.max()))
    assert max(sizes) == math.ceil(0.4 * 20)
    assert len(set(sizes)) > 5


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
    found = strong.autocontrast(images)
    torch.testing.assert_close(found, 255 * tv.autocontrast(images / 255), atol=1e-3, rtol=0)
    assert (found[0, 0] == 77).all()
    assert strong.autocontrast(found).equal(found)


# Equalization


def test_equalization_by_hand() -> None:
    # 10 of three, 20 of two, 90 of one pixel. Below: 0, 3, 5; others than the brightest: 5.
    # 255·0/5 = 0, 255·3/5 = 153, 255.
    found = strong.equalize(row(10, 20, 10, 90, 20, 10))
    assert found.equal(row(0, 153, 0, 255, 153, 0))


@pytest.mark.parametrize("step", [1, 4])
def test_equalization_is_torchvisions_where_that_leaves_no_remainder(tv: Any, step: int) -> None:
    # 255 times `step` pixels below the brightest level, of which there are 7.
    values = np.random.default_rng(0).integers(3, 90, 255 * step)
    images = torch.tensor([*values, *[200] * 7])[None, None, None].float()
    expected = tv.equalize(images.to(torch.uint8)).float()
    assert strong.equalize(images).equal(expected)
    assert len(expected.unique()) > 50


def test_channels_are_equalised_apart_and_flat_ones_stay() -> None:
    images = levels(3, 3, 6, 7)
    images[1, 2] = 8
    found = strong.equalize(images)
    for i in range(3):
        for k in range(3):
            assert found[i, k].equal(strong.equalize(images[i : i + 1, k : k + 1])[0, 0])
    assert (found[1, 2] == 8).all()
    assert strong.equalize(images + 0.3).equal(found)  # nearest levels count


# Posterising and solarising


@each_shape
@pytest.mark.parametrize(
    ("name", "strengths"), [("posterize", range(1, 9)), ("solarize", (0, 100, 128, 204.8, 255))]
)
def test_posterising_and_solarising_are_torchvisions(
    tv: Any, name: str, strengths: Sequence[float], shape: tuple[int, ...]
) -> None:
    images = levels(*shape)
    for strength in strengths:
        found = getattr(strong, name)(images, torch.full((len(images),), strength))
        assert found.equal(getattr(tv, name)(images.to(torch.uint8), strength).float())


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
    torch.testing.assert_close(getattr(strong, name)(images, factors), expected, atol=0.03, rtol=0)
