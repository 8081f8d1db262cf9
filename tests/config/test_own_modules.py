"""Modules that a run's folder names run only if this user named them, here or before."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from fedul_flwr.cli.main import app
from fedul_flwr.config.run_config import resolve
from fedul_flwr.results.predict import load_model
from tests.support.refusals import refuses
from tests.support.runs import train

MODULE = """
from pathlib import Path
from fedul_flwr.models import build_model

Path(__file__).with_suffix(".ran").touch()

def build(input_shape, num_classes):
    return build_model("mlp", input_shape, num_classes)
"""
OWN = "strangers_model:build"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a run with a model of one's own, whose module lies beside it."""
    (tmp_path / "strangers_model.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDUL_PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    overrides = {
        **{"model": OWN, "num-rounds": 1, "points-per-client": 60, "output": "run"},
        "fedul.num-sets": 10,
    }
    train(resolve(overrides, tmp_path), 2)
    (tmp_path / "strangers_model.ran").unlink()
    sys.modules.pop("strangers_model")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "image.png")
    yield tmp_path
    sys.modules.pop("strangers_model", None)


def ran(folder: Path) -> bool:
    return (folder / "strangers_model.ran").exists()


def predict(*options: str) -> Result:
    words = ["predict", "--model", *options, "--input", "image.png", "--output", "p.csv"]
    return CliRunner().invoke(app, words)


def test_given_a_run_of_ones_own_when_predicting_then_its_module_runs(folder: Path) -> None:
    done = predict("run")
    assert done.exit_code == 0, done.output
    assert ran(folder)


def test_given_a_folder_from_elsewhere_when_predicting_then_nothing_runs(folder: Path) -> None:
    (folder / "run").rename(folder / "copied")
    with refuses("module-not-trusted", match=OWN):
        load_model(folder / "copied")
    assert not ran(folder)
    assert predict("copied").exit_code != 0
    assert predict("copied", "--trust-modules").exit_code == 0
    assert ran(folder)


@pytest.mark.parametrize("prefix", ["run", "torchvision.models"])
def test_given_a_strangers_prefix_when_predicting_then_refused(folder: Path, prefix: str) -> None:
    (folder / "run.py").write_text(MODULE)
    (folder / "run").rename(folder / "copied")
    config = folder / "copied" / "config.json"
    config.write_text(config.read_text().replace(OWN, f"{prefix}:build"))
    with refuses("module-not-trusted"):
        load_model(folder / "copied")
    assert not list(folder.glob("*.ran"))


def test_trust_does_not_search_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "run").rename(folder / "copied")
    monkeypatch.delenv("FEDUL_PATH")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(folder))])
    with refuses("reference-wrong", setting="model"):
        load_model(folder / "copied", trust_modules=True)
    assert not ran(folder)


def test_a_run_elsewhere_has_its_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "strangers_model.py").write_text(MODULE)
    monkeypatch.delenv("FEDUL_PATH")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(folder))])
    monkeypatch.chdir(elsewhere)
    load_model(folder / "run")
    assert ran(folder)
    assert not ran(elsewhere)
    with refuses("module-not-trusted"):
        resolve({"resume": str(folder / "run"), "num-rounds": 2}, elsewhere)


def test_given_a_folder_from_elsewhere_when_resumed_then_modules_are_named(folder: Path) -> None:
    shutil.copytree(folder / "run", folder / "copied")
    words = {"resume": "copied", "num-rounds": 2}
    with refuses("module-not-trusted"):
        resolve(words, folder)
    assert resolve({**words, "model": OWN}, folder).model == OWN
    assert resolve({**words, "resume": "run"}, folder).model == OWN
    assert not ran(folder)
