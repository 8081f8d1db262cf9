"""Views of vectors: what noise and feature dropout change, and what they leave alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.vector_views import augment_vectors, strong_vectors
from fedul_flwr.learning.views import fixed_strong_view, strong_view

ONES = torch.ones(2000, 10)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_noise_has_mean_0_and_the_chosen_deviation() -> None:
    changes = augment_vectors(ONES, LocalPlan(augment="noise", noise=0.5), rng()) - ONES
    # 20,000 draws: the standard errors are 0.5/141 and 0.5/200.
    assert abs(float(changes.mean())) < 4 * 0.5 / 141
    assert abs(float(changes.std()) - 0.5) < 4 * 0.5 / 200


def test_dropout_sets_the_chosen_share_of_features_to_0_and_leaves_the_others() -> None:
    found = augment_vectors(ONES, LocalPlan(augment="dropout", feature_dropout=0.3), rng())
    assert set(found.unique().tolist()) == {0.0, 1.0}
    assert abs(float((found == 0).float().mean()) - 0.3) < 4 * (0.3 * 0.7 / 20_000) ** 0.5


@pytest.mark.parametrize(
    "plan",
    [
        LocalPlan(augment="none", noise=1, feature_dropout=0.5),
        LocalPlan(augment="noise", noise=0),
        LocalPlan(augment="dropout", feature_dropout=0),
    ],
)
def test_without_strength_vectors_do_not_change(plan: LocalPlan) -> None:
    assert torch.equal(augment_vectors(ONES, plan, rng()), ONES)


def test_a_strong_view_has_noise_and_dropout_and_follows_the_seed() -> None:
    view = strong_vectors(0.1, 0.25)
    torch.manual_seed(3)
    first = view(ONES)
    torch.manual_seed(3)
    assert torch.equal(view(ONES), first)
    dropped = first == 0
    assert abs(float(dropped.float().mean()) - 0.25) < 4 * (0.25 * 0.75 / 20_000) ** 0.5
    assert abs(float(first[~dropped].std()) - 0.1) < 0.01


@pytest.mark.parametrize("make", [strong_view, fixed_strong_view])
def test_strong_views_of_methods_take_their_strength_from_the_settings(make: object) -> None:
    settings = parse_flat({"method": "uda", "noise": 0.0, "feature-dropout": 0.5})
    view = make(settings)  # type: ignore[operator]
    found = view(ONES)
    assert set(found.unique().tolist()) == {0.0, 1.0}
    image = torch.zeros(1, 1, 8, 8)
    assert view(image).shape == image.shape
