"""Runs that know the error of their model without a label."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.errors import UserError
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.messages import PART
from fedul_flwr.federated.stages import heads
from fedul_flwr.federated.stages import known_error as stage
from fedul_flwr.learning.known_error import LeaveOneOut
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.lying_server import Owners
from tests.support.runs import metrics, summary, train

Settings = Callable[..., RunConfig]
CLOSED: dict[str, Any] = {"method": "closed-form", "num_rounds": 2}


@pytest.mark.parametrize("method", ["closed-form", "closed-form-labels"])
def test_the_interval_has_the_share_of_points_that_heads_without_them_get_wrong(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    said: list[Any] = []
    logits = LeaveOneOut.logits

    def watched(self: Any, features: Any, soft: Any, weight: Any, *, stated: bool) -> Any:
        made = logits(self, features, soft, weight, stated=stated)
        said.append((soft, made.argmax(axis=1)))
        return made

    monkeypatch.setattr(LeaveOneOut, "logits", watched)
    run = train(settings(**{**CLOSED, "method": method, "partition": "iid"}), 5)
    lines, about = metrics(run), summary(run)
    assert about["known_error"] == lines[about["best_round"] - 1]["known_error"]
    low, high = about["known_error_interval"]
    assert low <= about["known_error"] <= high
    if method == "closed-form-labels":  # labels are one-hot rows, and the error is a count
        soft, guess = (np.concatenate(part) for part in zip(*said[:5], strict=True))
        labels = soft.argmax(axis=1)
        recalls = [(guess[labels == k] == k).mean() for k in range(10)]
        assert lines[0]["known_error"] == pytest.approx(100 * (1 - np.mean(recalls)), abs=0.01)
    else:  # class shares of digits tell all ten classes apart
        assert abs(about["known_error"] - about["test_error"]) < 4
    confusion = np.array(about["known_confusion"])
    np.testing.assert_allclose(confusion.sum(axis=1), 1, atol=1e-4)
    assert 100 * (1 - np.diag(confusion).mean()) == pytest.approx(about["known_error"])


def test_a_resumed_run_knows_what_the_whole_one_knows(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = summary(train(settings(**CLOSED), 3))
    begin, output = heads.AtServer.begin, str(tmp_path / "begun")

    def failing(self: Any, round: Any) -> None:
        if round.number == 2:
            raise UserError("The machine has died.", "stopped")
        begin(self, round)

    with monkeypatch.context() as patch:
        patch.setattr(heads.AtServer, "begin", failing)
        with pytest.raises(UserError):
            train(settings(**CLOSED, output=output), 3)
    resumed = summary(train(resolve({"resume": output}, tmp_path), 3))
    for key in ("known_error", "known_error_interval", "known_confusion"):
        assert resumed[key] == whole[key]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_asked_has_the_type_of_the_run(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    """Another type would make the same question look new."""
    arrays_of = LeaveOneOut.arrays
    monkeypatch.setattr(LeaveOneOut, "arrays", lambda self, _: arrays_of(self, kind))
    flat = {**NO_DATA, **CLOSED, "model": "linear", "selection": "last", "precision": "float32"}
    owners = Owners(tmp_path, 3, write_sets)
    with nullcontext() if kind is np.float32 else pytest.raises(UserError):
        train(settings(**flat), 3, client_app=owners.app)


@pytest.mark.parametrize(
    ("flat", "known"),
    [
        ({}, True),
        ({"closed-form.epsilon": 2.0}, False),  # it would need a part of the budget
        ({"closed-form.sum": "plaintext"}, False),  # one owner's sums would be read
        ({"method": "fedul-heads"}, False),  # the network has learned from the points
        ({"method": "fedul"}, False),
    ],
)
def test_it_is_declared_where_it_is_known(
    settings: Settings, flat: dict[str, Any], known: bool
) -> None:
    config = settings(**{**CLOSED, **flat})
    assert stage.KnowsError.is_on(config) is known
    assert (stage.OF_ERRORS in declared(config).get(PART, {})) is known


def test_each_owner_reads_the_error_on_its_own_points(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flat = {**NO_DATA, **CLOSED, "model": "linear", "selection": "last"}
    limits = {"require-secure-sum": True, "fixed-clients": True}
    owners = Owners(tmp_path, 3, write_sets, **limits)
    about = summary(train(settings(**flat), 3, client_app=owners.app))
    assert 0 <= about["known_error"] < 50
    said = capfd.readouterr().out
    assert all(f"Client {client}: error on its own points " in said for client in range(3))
    logs = [line for line in said.splitlines() if "own points" in line]
    assert len({line.partition(": ")[2] for line in logs}) > 2  # each its own
