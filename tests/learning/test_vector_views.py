"""Views of vectors: what noise, feature dropout and mixup change, and what they leave alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedul_flwr.config.run_config import RunConfig, parse_flat
from fedul_flwr.learning.batches import augment_vectors
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.randaugment import randaugment
from fedul_flwr.learning.released_randaugment import released_randaugment
from fedul_flwr.learning.strong import strong_augment
from fedul_flwr.learning.views import View, fixed_strong_view, strong_view

ONES = torch.ones(2000, 10)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("make", [strong_view, fixed_strong_view])
def test_strong_views_of_methods_take_their_strength_from_the_settings(make: object) -> None:
    settings = parse_flat({"method": "uda", "noise": 0.0, "feature-dropout": 0.5})
    view = make(settings)  # type: ignore[operator]
    found = view(ONES)
    assert set(found.unique().tolist()) == {0.0, 1.0}
    only = parse_flat({"method": "uda", "noise": 0.0, "feature-dropout": 0.0, "mixup": 0.5})
    halves = make(only)(torch.cat([torch.zeros(200, 1), ONES[:200, :1]]))  # type: ignore[operator]
    assert 0 < float(halves[:200].max()) <= 0.5


@pytest.mark.parametrize(
    ("make", "settings", "change"),
    [
        (strong_view, {"ssl.recipe": "release"}, lambda images: released_randaugment(images, 3)),
        (strong_view, {}, lambda images: randaugment(images, 3)),
        (fixed_strong_view, {}, strong_augment),
    ],
)
def test_strong_views_of_images_are_those_that_the_settings_name(
    make: Callable[[RunConfig], View], settings: dict[str, Any], change: Callable[..., Tensor]
) -> None:
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    torch.manual_seed(3)
    three = {"ssl.operations": 3}
    found = make(parse_flat({"method": "fixmatch", **three, **settings}))(images)
    torch.manual_seed(3)
    assert torch.equal(found, change(images))


def test_shares_of_mixup_are_even_between_0_and_the_setting() -> None:
    # Half of the rows are 0, half 1: rows of 0 with a partner of 1 become their share.
    inputs = torch.cat([torch.zeros(2000, 1), torch.ones(2000, 1)])
    found = augment_vectors(inputs, LocalPlan(augment="mixup", mixup=0.4), rng())[:2000, 0]
    shares = found[found > 0]
    assert 900 < len(shares) < 1100  # hypergeometric: 1000 with a standard deviation of 16
    assert float(shares.max()) <= 0.4
    assert abs(float(shares.mean()) - 0.2) < 4 * 0.4 / 12**0.5 / 30  # standard error of 900 draws
