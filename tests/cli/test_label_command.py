"""``fedul-flwr label``: what it refuses and implies, its progress, and real runs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from tests.support.runs import summary

runner = CliRunner()
DIGITS = {"input_shape": [8, 8, 1], "num_classes": 10}
IN_THE_CLEAR = ("-c", 'xclp.secure="plaintext"')


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def label(*arguments: str) -> Any:
    return runner.invoke(
        app, ["label", "--engine", "in-process", "--num-supernodes", "3", *arguments]
    )


def write_model(directory: Path, **settings: Any) -> Path:
    """A run as far as --model looks at it."""
    directory.mkdir()
    saved = {"model": "mlp", "image-size": 0, "input-shape": "", "class-names": "", **settings}
    (directory / "config.json").write_text(json.dumps({"settings": saved, "data": DIGITS}))
    (directory / "model.safetensors").touch()
    return directory


def test_labels_across_clients_without_rounds(here: Path) -> None:
    done = label("--output", "out", "-c", "labels.total=60")
    assert done.exit_code == 0, done.output
    assert done.output.count("xclp-predict on digits: ") == 2
    assert "round" not in done.output
    assert summary(here / "out")["method"] == "xclp-predict"
    words = " ".join(done.output.split())
    assert re.search(r"across clients [\d.]+ % of 1,090 unlabeled points right, balanced ", words)
    assert "3 of 3 clients" in words
    assert f"{here}/out/clients/*/labels.csv" in words
    assert len(list((here / "out" / "clients").glob("*/labels.csv"))) == 3


def test_features_of_an_earlier_run(here: Path) -> None:
    first = 'method="labels-only" model="mlp" num-rounds=1 local-epochs=1'
    trained = ["run", "--engine", "in-process", "--num-supernodes", "3", "-c", first]
    trained += ["--output", "first"]
    assert runner.invoke(app, trained).exit_code == 0
    done = label("--model", "first", "--output", "out", *IN_THE_CLEAR)
    assert done.exit_code == 0, done.output
    saved = json.loads((here / "out" / "config.json").read_text())["settings"]
    assert saved["start-from"] == str(here / "first")
    assert (saved["model"], saved["xclp-predict.features"]) == ("mlp", "model")
    assert "itself" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-c", 'method="fedul"'], "method = 'fedul' trains a model: use fedul-flwr run."),
        (["--model", "none"], "the run holds no model.safetensors."),
        (["--model", "run", "-c", 'model="lenet"'], "model = 'lenet': --model means"),
        (["--model", "run", "-c", 'start-from="empty"'], "start-from = 'empty': --model means"),
    ],
)
def test_refused_in_one_sentence(arguments: list[str], words: str, here: Path) -> None:
    write_model(here / "run", **{"image-size": 16})
    (write_model(here / "none") / "model.safetensors").unlink()
    (here / "empty").mkdir()
    done = label(*arguments)
    assert done.exit_code == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (here / "runs").exists()
