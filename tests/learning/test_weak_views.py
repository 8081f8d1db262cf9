"""Weak views: what pseudo labels are judged on, and what strong views begin from."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.learning import views
from fedul_flwr.learning.consistency import fixmatch_loss
from fedul_flwr.learning.helpers import InterClientConsistency
from fedul_flwr.learning.matching import MatchingObjective
from fedul_flwr.learning.network import Network
from fedul_flwr.learning.plan import CPU
from fedul_flwr.learning.views import strong_view, weak_view
from tests.learning.test_matching import Affine, pixels
from tests.support.local_tasks import batch_of
from tests.support.refusals import refuses
from tests.support.runs import assert_same_run, last_model, train

Settings = Callable[..., RunConfig]
WEAK = {"views.weak": True}
IMAGES = torch.linspace(-1, 1, 2 * 6 * 6).reshape(2, 1, 6, 6)


def seeded(view: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    torch.manual_seed(5)
    return view(inputs)


def test_given_no_weak_views_then_points_are_judged_as_they_are(settings: Settings) -> None:
    assert weak_view(settings(method="fixmatch", augment="flip"))(IMAGES) is IMAGES


def test_given_weak_views_then_a_strong_one_begins_from_a_weak_one_of_its_own(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Views are mirrored or not, and nothing more.
    monkeypatch.setattr(views, "randaugment", lambda images, *_: images)
    config = settings(method="fixmatch", augment="flip", **WEAK)
    plain = settings(method="fixmatch", augment="flip")
    many = IMAGES[:1].repeat(64, 1, 1, 1)

    def mirrored(config: RunConfig) -> int:
        changed = seeded(strong_view(config), many)
        sides = changed[..., 0] - changed[..., -1]  # equalized or not, one side is the darker one
        return int((sides.mean(dim=(1, 2)) > 0).sum())

    assert mirrored(plain) == 0
    assert 10 < mirrored(config) < 54


# In the losses, by hand


POINTS = pixels(math.log(3), 0.0)


def brighter(inputs: Tensor) -> Tensor:
    return inputs + math.log(3)


def test_given_weak_views_then_they_decide_which_points_are_sure_and_of_which_class() -> None:
    # As they are, probabilities of class 0 are 3/4 and 1/2; brighter by log 3, 9/10 and 3/4.
    network = Network(Affine(), CPU, "float64")
    labels = torch.tensor([-1, -1])
    shared: Any = {
        "supervised": functional.cross_entropy,
        "supervised_weight": 1.0,
        "consistency": fixmatch_loss,
        "unsupervised_weight": 1.0,
        "threshold": 0.8,
    }
    # The strong view of x is −x: of the first point class 0 has 1/4, −log 1/4 = log 4.
    weak = MatchingObjective(**shared, strong_view=lambda x: -x, weak_view=brighter)
    plain = MatchingObjective(**shared, strong_view=lambda x: -x)
    assert float(weak(network, batch_of(POINTS, labels)).detach()) == pytest.approx(math.log(4) / 2)
    assert float(plain(network, batch_of(POINTS, labels)).detach()) == 0.0
    assert (weak.confidence.share, plain.confidence.share) == (0.5, 0.0)


def test_given_weak_views_then_fedmatchs_models_judge_these_too() -> None:
    helper = Affine()
    with torch.no_grad():
        helper.weight.fill_(2.0)
    network = Network(Affine(), CPU, "float64")
    found = InterClientConsistency([helper], 1.0, 0.8, lambda x: -x, "own", brighter)(
        network, POINTS
    )
    # The first point alone is sure: weak x = 2·log 3, p = 9/10; the helper's logit is 4·log 3.
    p, q = 9 / 10, 81 / 82
    divergence = q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))
    assert found is not None
    assert float(found.detach()) == pytest.approx(math.log(4) + divergence)


# In runs

QUICK: dict[str, Any] = {
    **{"model": "mlp", "num_rounds": 2, "local_epochs": 1, "points_per_client": 30},
    **{"augment": "rotate", "labels.total": 20},
}
STAGES = {"semi.labels-only-rounds": 1}
EXTRA: dict[str, dict[str, Any]] = {
    "fedmatch": {"fedmatch.consistency-weight": 1.0},
    "local-lp": STAGES,
    "pseudo-label": STAGES,
    "fedsem": STAGES,
    "xclp": {**STAGES, "xclp.secure": "plaintext"},
}


@pytest.mark.parametrize("method", ["fixmatch", "uda", *EXTRA])
def test_given_weak_views_then_a_run_learns_otherwise(settings: Settings, method: str) -> None:
    plan = {**QUICK, **EXTRA.get(method, {}), "method": method}
    plain, weak = (train(settings(**plan, **more), 2) for more in ({}, WEAK))
    pairs = last_model(plain).items()
    assert not all(np.array_equal(array, last_model(weak)[name]) for name, array in pairs)
    if method == "fixmatch":
        assert_same_run(weak, train(settings(**plan, **WEAK), 2))


def test_given_points_that_augment_leaves_alone_then_no_view_is_weak(settings: Settings) -> None:
    with refuses("setting-without-effect", setting="views.weak"):
        settings(method="fixmatch", augment="none", **WEAK)


def test_given_augment_follows_from_the_data_then_the_run_refuses(settings: Settings) -> None:
    config = settings(**{**QUICK, "augment": "auto"}, method="fixmatch", **WEAK)  # digits: none
    with refuses("setting-without-effect", setting="views.weak"):
        train(config, 2)


@pytest.mark.parametrize("method", ["fedul", "supervised", "given-labels", "labels-only"])
def test_given_no_pseudo_labels_then_nothing_is_judged(settings: Settings, method: str) -> None:
    with refuses("setting-without-effect", setting="views.weak"):
        settings(method=method, **WEAK)
