"""Runs that leave the labels of the test set unread, as the trials of a search do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedul_flwr.config.run_config import RunConfig, parse_flat
from tests.support.refusals import refuses
from tests.support.runs import last_model, metrics, summary, train


def test_a_run_without_test_errors_trains_the_same_model(
    settings: Callable[..., RunConfig],
) -> None:
    given = {"num_rounds": 2, "local_epochs": 1, "model": "mlp"}
    measured = train(settings(**given), 2)
    unmeasured = train(settings(**given, measure_test_error=False), 2)
    one, other = last_model(measured), last_model(unmeasured)
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert [line["test_error"] for line in metrics(unmeasured)] == [None, None]
    assert summary(unmeasured)["test_error"] is None
    assert summary(unmeasured)["best_round"] == summary(measured)["best_round"]
    assert summary(measured)["test_error"] is not None


def test_it_is_refused_where_there_is_nothing_to_leave_out() -> None:
    nothing = {"dataset": "none", "class-names": "a,b", "input-shape": "8x8x1"}
    with refuses("setting-without-effect", setting="measure-test-error"):
        parse_flat({**nothing, "measure-test-error": False})
    with refuses("setting-without-effect", setting="measure-test-error"):
        parse_flat({"method": "xclp-predict", "measure-test-error": False})
