"""Differential privacy where a client has failed, or its update goes nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, RecordDict

from fedul_flwr.bridge import ARRAYS, to_arrays
from fedul_flwr.client_app import clip
from fedul_flwr.config import RunConfig, default_flat
from fedul_flwr.errors import UserError
from strategies.private_mean import privacy_spent
from tests.exchanges import Exchange, watched
from tests.runs import metrics, summary, train
from tests.strategies.test_private_mean import (
    ALMOST_NONE,
    FAR,
    MEAN,
    NEAR,
    QUICK,
    SERVER,
    START,
    a_round,
    answer,
    ask,
    length,
    private_mean,
)

Settings = Callable[..., RunConfig]

pytestmark = pytest.mark.usefixtures("identity")


def test_a_missing_update_releases_nothing() -> None:
    strategy = private_mean(2)
    a_round(strategy, START, [FAR, NEAR])
    spent = privacy_spent(strategy)
    (message, _) = ask(strategy, 2, MEAN)
    arrays, found = strategy.aggregate_train(2, [answer(message, FAR)])
    assert found is None
    for name, array in to_arrays(cast(ArrayRecord, arrays)).items():
        np.testing.assert_array_equal(array, MEAN[name])
    assert privacy_spent(strategy) == spent


def test_an_update_of_zero_is_one_of_the_mean() -> None:
    """The other one is clipped to (0.8, 0; 0.6), and half of it is added."""
    found = a_round(private_mean(2, noise_multiplier=ALMOST_NONE), START, [FAR, START])
    np.testing.assert_allclose(found["a"], [1.4, 1.0], atol=1e-5)
    np.testing.assert_allclose(found["b"], [[2.3]], atol=1e-5)


def test_a_client_whose_update_is_zero_clips_it_itself() -> None:
    (message,) = ask(private_mean(1, clipping="client"), 1, START)
    flat = {**default_flat(), "dp.clipping": "client"}
    context = Context(0, 0, {}, RecordDict(), flat)
    reply = clip(message, context, lambda asked, _: answer(asked, START))
    sent = to_arrays(cast(ArrayRecord, reply.content[ARRAYS]))
    assert sent["a"].tolist() == [1 + 2**-52, 1.0]
    assert sent["b"].tolist() == START["b"].tolist()


# Whole runs


def test_a_round_with_a_failure_leaves_the_model(settings: Settings) -> None:
    exchanges: list[Exchange] = []
    lossy = watched(exchanges, fate=lambda at, who: "lost" if (at, who) == (2, 1) else "answers")
    config = settings(**QUICK, **SERVER, on_client_failure="continue")
    directory = train(config, 3, **lossy)
    models = [e.down[ARRAYS] for e in exchanges if e.client == 0]
    assert length(models[2], models[1]) == 0 < length(models[1], models[0])
    assert [line["failures"] for line in metrics(directory)] == [0, 1, 0]
    found = summary(directory)
    assert (found["rounds"], found["releases"]) == (3, 2)
    with pytest.raises(UserError, match=r"^1 client\(s\) failed in round 2: no connection"):
        train(settings(**QUICK, **SERVER), 3, **lossy)
