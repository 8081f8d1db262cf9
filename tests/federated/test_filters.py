"""Runs whose filters follow from one sum over patches, and servers and owners who lie about it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.errors import UserError
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.messages import FILTERS, PART, SUMS
from fedul_flwr.federated.stages import filters, heads
from fedul_flwr.federated.sums.server import SecureSums
from fedul_flwr.learning.filters import fitted, with_moments
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.models import build_model
from tests.support.learnable_owners import NO_DATA, images_in, write_sets
from tests.support.lying_server import Owners
from tests.support.refusals import refuses
from tests.support.runs import cut_off, last_model, metrics, resume, same, train
from tests.support.settings import AT_SERVER, QUICK, Settings

FITTED: dict[str, Any] = {"method": "closed-form", "model": "whitened-filters"}
CLOSED: dict[str, Any] = {**FITTED, "points_per_client": 150}
OF_OWNERS: dict[str, Any] = {**FITTED, **NO_DATA, "test_prior": "uniform", "selection": "last"}
AT_CENTER: dict[str, Any] = {
    **{**QUICK, **FITTED, **AT_SERVER, "method": "given-labels", "head": "closed-form"},
}
KINDS = ("masked", "plaintext")


@pytest.mark.parametrize("kind", KINDS)
def test_the_filters_are_those_of_all_images_together(
    settings: Settings, tmp_path: Path, kind: str
) -> None:
    limits = {"allow-plaintext": True, "require-secure-sum": False}
    owners = Owners(tmp_path, 3, write_sets, **limits)
    options = {**OF_OWNERS, "closed-form.sum": kind, "seed": 3}
    made = last_model(train(settings(**options), 3, client_app=owners.app))
    images = np.concatenate([images_in(folder) for folder in owners.folders])
    patches = np.lib.stride_tricks.sliding_window_view(images / 127.5 - 1, (3, 3), (1, 2))
    rows = patches.reshape(-1, 9)
    rows = rows - rows.mean(axis=1, keepdims=True)
    rows /= np.sqrt((rows**2).mean(axis=1, keepdims=True) + 0.01)
    np.testing.assert_allclose(made["0.moments"], rows.T @ rows / len(rows), atol=1e-5)
    drawn = dump_arrays(build_model("whitened-filters", (8, 8, 1), 3, seed=3))
    np.testing.assert_allclose(
        made["0.filters"], fitted(drawn["0.filters"], made["0.moments"]), atol=1e-5
    )


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_run_that_was_cut_off_ends_with_the_same_bits(settings: Settings, call: int) -> None:
    options = {**CLOSED, "closed-form.sum": "plaintext"}
    whole = train(settings(**options), 4)
    assert same(whole, resume(cut_off(settings(**options), 4, call), 4))


def test_with_labels_at_the_server_alone_its_images_make_the_filters(settings: Settings) -> None:
    run = train(settings(**AT_CENTER), 3)
    assert last_model(run)["0.moments"].any()
    assert metrics(run)[-1]["test_error"] < 40


def test_a_run_may_begin_with_filters_of_another(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train(settings(**CLOSED), 3)
    monkeypatch.setattr(filters.AtServer, "_collect", None)
    again = train(settings(**CLOSED, start_from=str(first), seed=9), 3)
    np.testing.assert_array_equal(last_model(again)["0.filters"], last_model(first)["0.filters"])


# Servers and owners who lie


def crafted(change: str, arrays: Any) -> Any:
    """Arrays of a model with filters that a server has chosen."""
    untrained = dump_arrays(build_model("whitened-filters", (8, 8, 1), 3, seed=4))
    if change == "filters":
        return {**arrays, "0.filters": arrays["0.filters"] * np.float32(1.1)}
    one = np.array([1, -1, 0, 0, 0, 0, 0, 0, 0]) / 2**0.5
    moments = {
        "axis": 1e6 * (np.eye(9) - np.outer(one, one)),  # all filters are one picture
        "bounded": np.eye(9, dtype=np.float32),
    }[change]
    return with_moments({**arrays, "0.filters": untrained["0.filters"]}, moments)


@pytest.mark.parametrize(
    ("change", "wants", "answers"),
    [
        *[("filters", True, 0), ("filters", False, 1), ("axis", True, 0), ("axis", False, 1)],
        ("bounded", True, 1),
    ],
)
def test_owners_make_the_filters_anew_and_bound_what_they_are_of(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    wants: bool,
    answers: int,
) -> None:
    owners = Owners(tmp_path, 4, write_sets, **{"require-secure-sum": wants})
    collect, opened = SecureSums.collect, []

    def lying(self: Any, grid: Any, of: str, clients: Any, size: int, *more: Any) -> Any:
        sent = [crafted(change, more[0]), *more[1:]] if of in heads.HEADS else more
        asked = collect(self, grid, of, clients, size, *sent)
        opened.append(of)
        return asked

    monkeypatch.setattr(SecureSums, "collect", lying)
    options = {**OF_OWNERS, "closed-form.refinements": 0, "seed": 4}
    try:
        train(settings(**options), 4, client_app=owners.app)
    except UserError:
        assert not answers
    assert opened.count("head") == answers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lie", [-100.0, 100.0])
def test_an_owner_who_sends_what_no_images_have_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, lie: float, kind: str
) -> None:
    honest = filters.AtClient._sums

    def lying(self: Any) -> Any:
        sums = honest(self)
        if self.client.node.partition_id == 2:
            sums[1:] *= lie
        return sums

    monkeypatch.setattr(filters.AtClient, "_sums", lying)
    options = settings(**CLOSED, on_client_failure="continue", **{"closed-form.sum": kind})
    if kind == "masked":  # nobody sees which
        with refuses("sum-wrong"):
            train(options, 4)
    else:
        assert [*metrics(train(options, 4))[0]["failed"]] == ["Client 2"]


def test_images_of_one_color_have_no_filters(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = filters.AtClient._sums
    monkeypatch.setattr(filters.AtClient, "_sums", lambda self: honest(self) * np.r_[1, [0] * 45])
    with refuses("nothing-to-learn"):
        train(settings(**CLOSED), 3)


def test_owners_read_what_the_sum_is(settings: Settings) -> None:
    masked = declared(settings(**CLOSED))
    assert "patches" in masked[PART][FILTERS].says
    assert FILTERS not in masked
    plain = settings(**CLOSED, **{"closed-form.sum": "plaintext"})
    assert SUMS in declared(plain)[FILTERS]
    assert FILTERS not in declared(settings(**{**CLOSED, "model": "linear"})).get(PART, {})


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({**QUICK, "method": "fedul"}, "method-mismatch"),
        ({**CLOSED, "closed-form.epsilon": 1.0}, "setting-breaks-privacy"),
        ({**FITTED, "dataset": "wine"}, "model-unfit"),
    ],
)
def test_what_has_no_such_sum_is_refused(
    options: dict[str, Any], code: str, settings: Settings
) -> None:
    with refuses(code):
        train(settings(**{**options, "model": "whitened-filters"}), 3)
