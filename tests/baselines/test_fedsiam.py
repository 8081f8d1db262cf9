"""FedSiam through runs: the ramp of its weight, the second head, what it learns from."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config import RunConfig
from fedul_flwr.errors import UserError
from tests.runs import last_model, train

Settings = Callable[..., RunConfig]
QUICK: dict[str, Any] = {
    **{"method": "fedsiam", "model": "mlp", "local_epochs": 3, "points_per_client": 40},
    **{"labels.total": 30, "num_rounds": 2, "semi.labels-only-rounds": 1, "augment": "rotate"},
}
"""One round of each stage, of several steps: at first the teacher is the student."""


def run(settings: Settings, **options: Any) -> Path:
    return train(settings(**{**QUICK, **options}), 2)


def same(one: Path, other: Path) -> bool:
    first, second = last_model(one), last_model(other)
    assert set(first) == set(second)
    return all(np.array_equal(array, second[name]) for name, array in first.items())


def test_the_weight_grows_from_the_second_stage_on(settings: Settings) -> None:
    # In the first of two rounds: exp(-5 (1 - 1/2)^2) of the weight.
    ramp = {"fedsiam.consistency-weight": 20.0, "fedsiam.ramp-up-rounds": 2}
    part = {"fedsiam.consistency-weight": 20.0 * math.exp(-1.25), "fedsiam.ramp-up-rounds": 0}
    full = {"fedsiam.consistency-weight": 20.0, "fedsiam.ramp-up-rounds": 0}
    found = run(settings, **ramp)
    assert same(found, run(settings, **part))
    assert not same(found, run(settings, **full))


def test_only_a_model_with_a_second_head_has_a_logit_cost(settings: Settings) -> None:
    costs = [{"fedsiam.logit-cost": cost} for cost in (0.0, 1.0)]
    assert same(*(run(settings, **cost) for cost in costs))
    first, second = (run(settings, model="mlp+head", **cost) for cost in costs)
    assert not same(first, second)


def test_decay_has_an_effect_and_no_weight_has_none(settings: Settings) -> None:
    decays = [{"fedsiam.decay": decay} for decay in (0.97, 0.0)]
    assert not same(*(run(settings, **decay) for decay in decays))
    nothing = {"fedsiam.consistency-weight": 0.0}
    assert same(*(run(settings, **decay, **nothing) for decay in decays))


def test_a_pass_over_the_data_before_training_is_refused(settings: Settings) -> None:
    with pytest.raises(UserError, match=r"scaffold\.option = 'I': method 'fedsiam' goes with 'II'"):
        run(settings, base="scaffold", **{"scaffold.option": "I"})
    assert np.isfinite(last_model(run(settings, base="scaffold", optimizer="sgd"))["1.bias"]).all()
