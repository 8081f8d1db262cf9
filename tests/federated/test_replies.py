"""Replies one by one: forms, figures, norms, each refused in a sentence."""

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.combine import update_norm
from fedul_flwr.federated.payload import OF_ALL, Part, Sizes, refuse_undeclared
from fedul_flwr.federated.replies import check_all_bytes, check_trained, check_update
from fedul_flwr.federated.stages.clip import check_clipped
from tests.support.refusals import refuses


def record(**arrays: Any) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


W, B = np.zeros((2, 3), np.float32), np.zeros(3, np.float32)
EXPECTED = {"arrays": record(w=W, b=B), "control": record(w=W)}


def update(**changed: Any) -> RecordDict:
    """A reply of the expected form; records in ``changed`` take the place of its own."""
    records = {"arrays": record(w=W + 1, b=B), "control": record(w=W), **changed}
    return RecordDict({name: found for name, found in records.items() if found is not None})


def test_an_update_of_the_expected_form_is_sound() -> None:
    check_update(update(), EXPECTED)
    check_all_bytes(update())


NAN = np.where(np.arange(3) == 1, np.nan, B).astype(np.float32)
BAD: dict[str, tuple[RecordDict, str]] = {
    "no model": (update(arrays=None), "message-incomplete"),
    "no variate": (update(control=None), "message-incomplete"),
    "an array missing": (update(arrays=record(w=W)), "message-incomplete"),
    "shape": (update(arrays=record(w=W.T, b=B)), "message-form"),
    "of a variate": (update(control=record(w=B)), "message-form"),
    "nan": (update(arrays=record(w=W, b=NAN)), "message-out-of-range"),
    "infinite": (update(control=record(w=W + np.float32(np.inf))), "message-out-of-range"),
}


@pytest.mark.parametrize(("content", "code"), BAD.values(), ids=BAD)
def test_other_updates_are_refused(content: RecordDict, code: str) -> None:
    with refuses(code, BadMessageError):
        check_update(content, EXPECTED)


TIMES = {"started": 1.0, "ended": 2.0}


def figures(metrics: Any = None, diagnostics: Any = TIMES, **more: Any) -> RecordDict:
    tables = {"metrics": metrics, "diagnostics": diagnostics, **more}
    return RecordDict({k: MetricRecord(dict(v)) for k, v in tables.items() if v is not None})


GOOD = {"num-examples": 3, "loss": -0.5, "steps": 2, "normalizer": 2.0, "shares": [0.5, 0.25]}
REPORTS = {**OF_ALL, "shares": Part(2, optional=True)}
UNTRAINED = {**GOOD, "num-examples": 0, "steps": 0, "normalizer": 0.0}


@pytest.mark.parametrize("metrics", [GOOD, UNTRAINED, {"num-examples": 1}])
def test_sound_figures(metrics: dict[str, Any]) -> None:
    check_trained(figures(metrics), REPORTS, Sizes(classes=10))


REFUSED: dict[str, tuple[RecordDict, str]] = {
    "no metrics": (figures(), "message-incomplete"),
    "no end": (figures(GOOD, {"started": 1.0}), "message-incomplete"),
    "no weight": (figures({"loss": 1.0}), "message-incomplete"),
    "nan": (figures({**GOOD, "loss": math.nan}), "message-out-of-range"),
    "one of several": (figures({**GOOD, "shares": [0.5, math.inf]}), "message-out-of-range"),
    "weight": (figures({**GOOD, "num-examples": -1}), "message-out-of-range"),
    "normalizer": (figures({**GOOD, "normalizer": -1.0}), "message-out-of-range"),
    "no step": (figures({**GOOD, "normalizer": 0.0}), "message-contradicts"),
}


@pytest.mark.parametrize(("content", "code"), REFUSED.values(), ids=REFUSED)
def test_other_figures_are_refused(content: RecordDict, code: str) -> None:
    with refuses(code, BadMessageError):
        check_trained(content, REPORTS, Sizes(classes=10))


@pytest.mark.parametrize(("length", "is_short"), [(2.0, True), (2.001, True), (2.02, False)])
def test_an_update_that_its_client_has_not_clipped_is_refused(
    length: float, is_short: bool
) -> None:
    start = record(w=np.zeros(4))
    update = record(w=np.full(4, length / 2))  # of length √(4 · length² / 4)
    with nullcontext() if is_short else refuses("update-too-large", BadMessageError):
        check_clipped(update, start, 2.0)


def test_numbers_add_up_to_what_is_declared() -> None:
    shares = Part(2, at_least=0, total=1)
    shares.check("shares", [0.75, 0.25], Sizes())
    with refuses("message-out-of-range", BadMessageError):
        shares.check("shares", [0.75, 0.24], Sizes())


def test_a_number_with_the_name_of_declared_arrays_does_not_leave() -> None:
    parts = {"psi": Part("model")}
    refuse_undeclared("Mine", "train", RecordDict({"psi": record(w=np.ones(2))}), parts)
    with refuses("own-method-wrong"):
        refuse_undeclared("Mine", "train", figures({"psi": 1.0}, None), parts)


def test_arrays_with_the_name_of_a_declared_number_do_not_leave() -> None:
    parts = {"psi": Part()}
    refuse_undeclared("Mine", "train", figures({"psi": 1.0}, None), parts)
    with refuses("own-method-wrong"):
        refuse_undeclared("Mine", "train", RecordDict({"psi": record(w=np.ones(2))}), parts)


def test_the_norm_of_an_update_by_hand() -> None:
    start = record(w=np.array([1.0, 1.0], np.float32), n=np.array(5), v=np.array(2.0))
    # sqrt(3² + 4² + 12²) = 13; whole numbers do not count.
    moved = record(w=np.array([4.0, -3.0], np.float32), n=np.array(500), v=np.array(-10.0))
    assert update_norm(moved, start) == 13.0
    assert update_norm(start, start) == 0.0
    # In float32 its square would be infinite.
    far = record(w=np.array([1e30, 1.0], np.float32), n=np.array(5), v=np.array(2.0))
    assert update_norm(far, start) == pytest.approx(1e30, rel=1e-6)
