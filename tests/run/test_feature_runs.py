"""Runs on features instead of points, and runs that train the last layer first."""

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.types import Inputs
from fedul_flwr.results.predict import load_model
from fedul_flwr.run.resolve_settings import with_model
from tests.support.owner_files import NO_DATA, images, write_sets
from tests.support.refusals import refuses
from tests.support.runs import last_model, own_data_app, train
from tests.support.settings import Settings


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A user's module with an extractor: images at half their size, as vectors."""

    def halves(points: Inputs) -> NDArray[np.float64]:
        return points[:, ::2, ::2].reshape(len(points), -1) / 255

    found = ModuleType("somebodys")
    found.halves = halves  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somebodys", found)
    return found


def trained(settings: Settings, output: Path) -> Path:
    """A run whose model has learned a little."""
    plan = {"method": "supervised", "model": "mlp", "num-rounds": 2}
    return train(settings(**plan, output=str(output)), 3)


FEATURES = {"features": "somebodys:halves", "model": "linear"}


@pytest.mark.parametrize(
    "method",
    [
        {"method": "fedul", "selection": "heldout"},
        {"method": "xclp", "labels.total": 100, "xclp.num-bits": 64},
    ],
)
def test_given_features_then_a_method_learns(settings: Settings, method: dict[str, object]) -> None:
    directory = train(settings(**FEATURES, **method, **{"num-rounds": 2}), 3)
    shapes = {array.shape for array in last_model(directory).values()}
    assert (10, 16) in shapes  # 8 x 8 pixels at half their size are 16 numbers
    assert json.loads((directory / "config.json").read_text())["data"]["input_shape"] == [8, 8, 1]


def test_given_a_run_on_features_then_labels_are_propagated(settings: Settings) -> None:
    options = {"features": "somebodys:halves", "standardize": "federation"}
    directory = train(settings(method="supervised", model="mlp", num_rounds=3, **options), 3)
    overrides = {"method": "xclp-predict", "labels.total": 60, "xclp.secure": "plaintext"}
    implied = with_model(overrides, directory)
    assert {key: implied[key] for key in options} == options
    found = json.loads((train(settings(**implied), 3) / "labels.json").read_text())
    assert found["sources"]["xclp"]["error"] < 50  # chance is 90 %
    with refuses("settings-contradict", setting="features"):
        with_model({**overrides, "features": ""}, directory)


def test_given_owners_then_each_has_its_features(settings: Settings, tmp_path: Path) -> None:
    folders = [write_sets(tmp_path / str(number)) for number in range(2)]
    chosen = settings(
        **NO_DATA | FEATURES | {"method": "fedul", "selection": "last", "num-rounds": 1}
    )
    allowed = {"allow-methods": "fedul,somebodys:halves"}
    directory = train(chosen, 2, client_app=own_data_app(folders, **allowed))
    assert last_model(directory)["1.weight"].shape == (2, 16)
    assert load_model(directory).predict(images(4)[..., np.newaxis]).shape == (4,)


def test_given_an_earlier_run_then_its_last_inputs(settings: Settings, tmp_path: Path) -> None:
    first = trained(settings, tmp_path / "first")
    features = {"features": f"run:{first}", "model": "linear", "num-rounds": 2}
    second = train(settings(method="fedul", output=str(tmp_path / "second"), **features), 3)
    assert (10, 128) in {array.shape for array in last_model(second).values()}
    # An owner has no such directory.
    folders = [write_sets(tmp_path / str(number)) for number in range(2)]
    chosen = settings(**NO_DATA | features | {"method": "fedul", "output": str(tmp_path / "third")})
    with refuses("client-failed"):
        train(chosen, 2, client_app=own_data_app(folders))


def test_given_frozen_rounds_then_the_body_stays(settings: Settings, tmp_path: Path) -> None:
    with refuses("setting-without-effect"):
        settings(**{"frozen-rounds": 1, "start-from": "x", "base": "scaffold"})
    first = trained(settings, tmp_path / "first")
    start = {"method": "fedul", "model": "mlp", "start-from": str(first), "frozen-rounds": 2}

    def arrays(rounds: int) -> dict[str, NDArray[np.generic]]:
        output = str(tmp_path / str(rounds))
        return last_model(train(settings(**start, output=output, **{"num-rounds": rounds}), 3))

    before = load_model(first).model.state_dict()
    body = [name for name in before if not name.startswith("5.")]
    frozen, thawed = arrays(2), arrays(3)
    # The mean of equal float32 numbers can be off by their last bit.
    assert all(np.allclose(frozen[name], before[name], rtol=1e-6, atol=0) for name in body)
    assert not np.allclose(frozen["5.weight"], before["5.weight"], rtol=1e-3)
    assert not any(np.allclose(thawed[name], before[name], rtol=1e-3) for name in body)
