"""Strong augmentation: shape, range, one draw per image, and what it never does."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedul_flwr.learning import strong
from fedul_flwr.learning.strong import strong_augment
from tests.learning.test_augment import blob, moments, noise

KNOBS = ("ROTATION", "SHIFT", "SCALE", "SHEAR", "CONTRAST", "CUTOUT")


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> object:
    """``only(SHIFT=.1)``: all other changes are off."""

    def set_knobs(**values: float) -> None:
        for name in KNOBS:
            monkeypatch.setattr(strong, name, values.get(name, 0.0))

    return set_knobs


@pytest.mark.parametrize("shape", [(5, 1, 8, 8), (3, 3, 28, 28), (2, 3, 20, 31), (1, 1, 1, 1)])
def test_shape_and_range_stay(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    for images in (noise(*shape), noise(*shape).double()):
        before = images.clone()
        found = strong_augment(images)
        assert found.shape == images.shape
        assert found.dtype == images.dtype
        assert found.min() >= -1
        assert found.max() <= 1
        assert images.equal(before)


def test_nothing_on_is_the_identity(only: object) -> None:
    only()  # type: ignore[operator]
    images = noise(3, 2, 11, 7)
    np.testing.assert_allclose(strong_augment(images), images, atol=1e-5)


def test_shifts_are_of_an_eighth_of_the_side_at_most(only: object) -> None:
    only(SHIFT=0.125)  # type: ignore[operator]
    torch.manual_seed(0)
    found = strong_augment(blob(40, 64, 0, 0).repeat(300, 1, 1, 1))
    places = np.array([moments(image[None])[:2] for image in found])
    assert np.abs(places[:, 0]).max() == pytest.approx(8, abs=0.2)  # 64 / 8
    assert np.abs(places[:, 1]).max() == pytest.approx(5, abs=0.2)  # 40 / 8
    for axis in (0, 1):
        assert places[:, axis].min() == pytest.approx(-places[:, axis].max(), abs=0.4)


def test_shears_go_to_either_side(only: object) -> None:
    only(SHEAR=0.2)  # type: ignore[operator]
    torch.manual_seed(0)
    matrices, _ = strong._affine_maps(torch.zeros(500, 1, 8, 8))
    shears = matrices[:, 0, 1]
    assert float(shears.abs().max()) == pytest.approx(0.2, abs=0.01)
    assert float(shears.min()) == pytest.approx(-float(shears.max()), abs=0.01)
    assert abs(float(shears.mean())) < 5 * 0.2 / 3**0.5 / 500**0.5


def test_contrast_is_about_each_images_mean_before_brightness_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
