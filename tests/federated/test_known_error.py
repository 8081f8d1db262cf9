"""Runs that know the error of their model without a label."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.data.safe_files import load_arrays_of
from fedul_flwr.errors import UserError
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.messages import PART
from fedul_flwr.federated.stages import heads
from fedul_flwr.federated.stages import known_error as stage
from fedul_flwr.federated.sums.server import SecureSums
from fedul_flwr.learning.known_error import LeaveOneOut
from tests.support.learnable_owners import NO_DATA, write_sets
from tests.support.lying_server import SUMMED, Owners
from tests.support.refusals import refuses
from tests.support.runs import metrics, summary, train

Settings = Callable[..., RunConfig]
NOISE = {"dp.clipping": "client", "dp.noise-multiplier": 1.0, "dp.norm": 1.0}
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
    of_labels = {"closed-form.refinements": 0, "num_rounds": 1}
    more = of_labels if method == "closed-form-labels" else {}
    run = train(settings(**{**CLOSED, "method": method, "partition": "iid", **more}), 5)
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
    assert 100 * (1 - np.diag(confusion).mean()) == pytest.approx(about["known_error"], abs=2.5)


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
        ({"method": "fedul", "selection": "last"}, False),
        ({"method": "fedul", "selection": "heldout"}, True),
        ({"method": "fedllp", "selection": "shares"}, True),
        ({"method": "fedul", "selection": "heldout", **NOISE}, False),
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


HELD_OUT: dict[str, Any] = {"method": "fedul", "validation-fraction": 0.0, "model": "mlp"}


@pytest.mark.parametrize("selection", ["heldout", "shares"])
def test_a_trained_model_is_judged_on_points_that_are_held_out(
    settings: Settings, selection: str
) -> None:
    flat = {**HELD_OUT, "selection": selection, "num-rounds": 3, "fedul.heldout-fraction": 0.4}
    run = train(settings(**flat), 5)
    lines, about = metrics(run), summary(run)
    low, high = about["known_error_interval"]
    assert low < about["test_error"] < high  # of some 300 points: some 10 points wide
    each = [line.get("known_error") for line in lines]
    if selection == "heldout":  # of the model that the run keeps, at its end
        assert each == [None] * 3
    else:
        assert about["best_round"] == 1 + int(np.argmin(each))
        assert about["known_error"] == min(each)
    assert about["temperature"] == load_arrays_of(run / "model.safetensors")[1]["temperature"]


@pytest.mark.parametrize("factor", [1, 10])
def test_a_model_that_the_server_made_up_is_not_judged_by_an_owner_that_checks(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: int
) -> None:
    owners, summed = Owners(tmp_path, 3, write_sets, **{"check-models": True}), []
    collect = SecureSums.collect

    def lying(
        self: Any, grid: Any, of: Any, clients: Any, size: int, arrays: Any, values: Any
    ) -> Any:
        crafted = {name: array * array.dtype.type(factor) for name, array in arrays.items()}
        asked = collect(self, grid, of, clients, size, crafted, values)
        summed.append(of)
        return asked

    monkeypatch.setattr(SecureSums, "collect", lying)
    flat = {
        **{**SUMMED, **HELD_OUT, "model": "linear", "selection": "shares", "num_rounds": 1},
        **{"test_prior": "uniform", "max_update_norm": 0.5, "fedul.heldout-fraction": 0.4},
    }
    with suppress(UserError):
        train(settings(**flat), 3, client_app=owners.app)
    assert (stage.OF_ERRORS in summed) is (factor == 1)


def test_given_noise_then_no_round_is_chosen_by_what_has_none(settings: Settings) -> None:
    with refuses("method-mismatch", UserError):
        train(settings(**{**HELD_OUT, "selection": "shares", **NOISE}), 3)
    with refuses("method-mismatch", UserError):
        train(settings(method="labels-only", calibration="shares"), 3)
    with refuses("method-mismatch", UserError):  # its counts are of whole sets
        train(settings(method="fedllp-pvc", selection="shares"), 3)


def test_given_sets_too_small_to_hold_out_of_then_the_run_ends_without(settings: Settings) -> None:
    small = {"points-per-client": 60, "fedul.heldout-fraction": 0.01, "selection": "heldout"}
    about = summary(train(settings(**HELD_OUT, **small), 3))
    assert about.get("known_error") is None


def test_given_estimated_shares_then_nobody_is_named(settings: Settings) -> None:
    about = summary(train(settings(**CLOSED, **{"fedul.prior-counts": 2}), 5))
    assert about["misfits"] == 0


@pytest.mark.parametrize("wrong", [None, 2])
def test_given_an_owner_with_swapped_shares_then_it_is_named_and_no_other_is(
    settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str], wrong: int | None
) -> None:
    def write(folder: Path, number: int) -> None:
        write_sets(folder, number, 6, 60, exact=True)
        if number == wrong:
            header, *rows = (folder / "priors.csv").read_text().splitlines()
            cells = [row.split(",") for row in rows]
            swapped = [",".join([name, b, a, c]) for name, a, b, c in cells]
            (folder / "priors.csv").write_text("\n".join([header, *swapped]) + "\n")

    flat = {**NO_DATA, **CLOSED, "model": "linear", "selection": "last"}
    owners = Owners(tmp_path, 6, write)
    about = summary(train(settings(**flat), 6, client_app=owners.app))
    logs = [line for line in capfd.readouterr().out.splitlines() if "do not follow" in line]
    assert about["misfits"] == len(logs) == (0 if wrong is None else 1)
    assert all(line.startswith(f"Client {wrong}: ") for line in logs)
    assert about.get("misfitting_clients", []) == []  # who it is leaves no owner's machine
