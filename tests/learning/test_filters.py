"""Filters from sums over patches, by hand and against plain loops."""

from typing import Any

import numpy as np
import pytest
import torch

from fedul_flwr.errors import BadMessageError
from fedul_flwr.learning.filters import (
    are_moments,
    fitted,
    moments_of,
    patch_moments,
    patch_sums,
    with_moments,
)
from fedul_flwr.learning.local import (
    dump_arrays,
    features_and_logits,
    features_of_views,
    load_arrays,
)
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.models import build_model

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 18, 17, 2), dtype=np.uint8)
ROWS = np.arange(7)


def test_moments_of_one_patch_by_hand() -> None:
    image = torch.tensor([[[[1.0, -1.0], [1.0, 1.0]]]])
    # Mean 1/2, less it (1/2, -3/2, 1/2, 1/2), variance 3/4; 3/4 + 0.01 = 0.76.
    patch = np.array([0.5, -1.5, 0.5, 0.5])
    np.testing.assert_allclose(patch_moments(image, 2), np.outer(patch, patch) / 0.76)
    assert not patch_moments(torch.ones(3, 1, 4, 4), 2).any()  # brightness alone is nothing


def test_an_image_counts_once_however_many_patches_it_has() -> None:
    image = torch.tensor([[[[1.0, -1.0], [-1.0, 1.0]]]])
    np.testing.assert_allclose(
        patch_moments(image.repeat(1, 1, 2, 3), 2), patch_moments(image, 2), atol=1e-12
    )


def test_sums_of_clients_are_those_of_all_their_images() -> None:
    both = patch_sums(IMAGES, ROWS[:3], 5) + patch_sums(IMAGES, ROWS[3:], 5)
    np.testing.assert_allclose(both, patch_sums(IMAGES, ROWS, 5))
    assert both.shape == (1 + 50 * 51 // 2,)
    assert patch_sums(IMAGES, ROWS[:0], 5).any() == 0
    many = patch_sums(IMAGES, np.zeros(1001, np.int64), 3)
    assert many[0] == 167  # every sixth of 1,001: at most 200
    np.testing.assert_allclose(many / 167, patch_sums(IMAGES, ROWS[:1], 3))


def test_moments_are_the_mean_of_products_over_images() -> None:
    moments = moments_of(patch_sums(IMAGES, ROWS, 3), 7)
    images = torch.from_numpy(IMAGES).permute(0, 3, 1, 2) / 127.5 - 1
    np.testing.assert_allclose(moments, patch_moments(images, 3) / 7, atol=1e-6)
    assert are_moments(moments)
    assert np.trace(moments) < 18


@pytest.mark.parametrize(
    ("change", "most"),
    [
        (lambda sums: sums, 6),  # of more images than are announced
        (lambda sums: sums * 0, 7),
        (lambda sums: sums * np.r_[1, np.full(171, 3)], 7),  # variance above 1
        (lambda sums: sums * np.r_[1, np.full(171, -1)], 7),
        (lambda sums: sums + np.r_[0, np.full(171, np.nan)], 7),
    ],
)
def test_sums_that_no_images_have_are_refused(change: Any, most: int) -> None:
    with pytest.raises(BadMessageError):
        moments_of(change(patch_sums(IMAGES, ROWS, 3)), most)


def test_filters_are_directions_with_their_axes_divided_by_a_root() -> None:
    directions = np.array([[[[3.0, 4.0]]], [[[0.0, 1.0]]]])
    # Axes have moments 6 and 15: roots of 6 + 10 and 15 + 10.
    np.testing.assert_allclose(
        fitted(directions, np.diag([6.0, 15.0])), [[[[3 / 4, 4 / 5]]], [[[0.0, 1 / 5]]]]
    )


def test_no_moments_that_patches_can_have_choose_a_filter() -> None:
    # At most 25 in all: of 25 axes one is made √(35 / 10) times shorter than the others.
    for moments in (np.diag(np.r_[25.0, np.zeros(24)]), np.eye(25)):
        assert are_moments(moments)
        lengths = np.linalg.norm(fitted(np.eye(25)[:, None, None], moments), axis=-1)
        assert lengths.max() / lengths.min() <= 3.5**0.5 + 1e-9
    endless = np.eye(25) * 1e6
    endless[0, 0] = 0  # all filters would be one pixel
    assert not are_moments(endless)
    assert not are_moments(np.triu(np.ones((2, 2))))
    for wrong in (np.nan, np.inf):
        assert not are_moments(np.full((2, 2), wrong))


def test_features_are_roots_of_mean_answers_to_patches() -> None:
    image = torch.rand(2, 19, 19, generator=torch.Generator().manual_seed(0)) * 2 - 1
    model = build_model("whitened-filters", (19, 19, 2), 3, seed=5)
    stored = (image * 127.5 + 127.5).permute(1, 2, 0)[None].to(torch.uint8).numpy()
    moments = moments_of(patch_sums(stored, ROWS[:1], 5), 1)
    load_arrays(model, with_moments(dump_arrays(model), moments))
    expected = []
    for one in (*model[0].filters, *-model[0].filters):
        answers = torch.empty(15, 15)
        for i, j in np.ndindex(15, 15):
            patch = image[:, i : i + 5, j : j + 5] - image[:, i : i + 5, j : j + 5].mean()
            patch /= (patch.square().mean() + 0.01).sqrt()
            answers[i, j] = max(0.0, float((one * patch).sum()) - 0.25)
        cells = answers.reshape(3, 5, 3, 5).mean(dim=(1, 3))
        expected.append((cells + 1e-6).sqrt().ravel())
    torch.testing.assert_close(model[0](image[None])[0], torch.cat(expected), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("shape", "side"), [((28, 28, 1), 5), ((8, 8, 1), 3), ((2, 2, 3), 2)])
def test_patches_of_small_images_are_smaller(shape: tuple[int, ...], side: int) -> None:
    model = build_model("whitened-filters", shape, 4)
    assert model[0].filters.shape == (50, shape[2], side, side)
    assert model(torch.zeros(2, shape[2], *shape[:2])).shape == (2, 4)


@pytest.mark.parametrize(("augment", "count"), [("none", 1), ("flip", 2), ("affine", 2)])
def test_a_view_stands_beside_each_point(augment: str, count: int) -> None:
    model = build_model("whitened-filters", (18, 17, 2), 3)
    plan, rng = LocalPlan(augment=augment), np.random.default_rng(0)
    features = features_of_views(model, IMAGES, ROWS, plan, rng)
    assert features.shape == (7, count, 900)
    plain, _ = features_and_logits(model, IMAGES, ROWS, plan)
    np.testing.assert_array_equal(features[:, 0], plain)
    if augment == "flip":  # of every image, by no chance
        mirrored, _ = features_and_logits(model, IMAGES[:, :, ::-1].copy(), ROWS, plan)
        np.testing.assert_allclose(features[:, 1], mirrored, atol=1e-5)
    elif augment == "affine":
        again = features_of_views(model, IMAGES, ROWS, plan, np.random.default_rng(0))
        np.testing.assert_array_equal(features, again)
        assert not np.array_equal(features[:, 1], features[:, 0])
