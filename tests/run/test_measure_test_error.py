"""Runs that leave the labels of the test set unread, as the trials of a search do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedul_flwr.config.run_config import RunConfig, parse_flat
from fedul_flwr.data.types import PointArrays, Source
from fedul_flwr.models import build_model
from fedul_flwr.run.evaluation import Evaluator
from tests.support.refusals import refuses
from tests.support.runs import last_model, metrics, summary, train


class Unreadable:
    """Labels that nobody may look at."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise AssertionError("the labels of the test set were read")


def test_without_test_errors_the_labels_of_the_test_set_are_not_read() -> None:
    images = np.zeros((4, 8, 8, 1), dtype=np.uint8)
    train_set = PointArrays(images, np.array([0, 1, 0, 1]))
    source = Source(train_set, PointArrays(images, Unreadable()), ("a", "b"))  # type: ignore[arg-type]
    rows = np.arange(2)
    with pytest.raises(AssertionError, match="read"):
        Evaluator(parse_flat({"model": "mlp", "learning-rate": 0.1}), source, rows)
    given = {"model": "mlp", "learning-rate": 0.1, "measure-test-error": False}
    settings = parse_flat(given)
    arrays = {
        name: value.numpy() for name, value in build_model("mlp", (8, 8, 1), 2).state_dict().items()
    }
    errors = Evaluator(settings, source, rows).errors([arrays])
    assert errors.test is None
    assert errors.validation is not None


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
