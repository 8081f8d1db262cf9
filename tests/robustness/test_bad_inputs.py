"""Some of the inputs of ``python -m robustness.faults bad-inputs``: one sentence, nothing begun."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import StorageError
from robustness import bad_files
from robustness.bad_tables import FORMS, write_tables
from tests.support.error_line import error_line
from tests.support.refusals import refuses

RUN = ("run", "--engine", "in-process", "--num-supernodes", "2", "-c", "model='mlp' num-rounds=1")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The attack's files, without its runs."""
    place = tmp_path_factory.mktemp("bad")
    bad_files.modules(place)
    bad_files.settings_files(place)
    bad_files.data_sets(place / "data")
    write_tables(place / "tables")
    bad_files.images(place / "images")
    bad_files.owners(place / "owners")
    return place


@pytest.fixture
def here(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(root)
    monkeypatch.setenv("FEDUL_PATH", str(root))
    monkeypatch.syspath_prepend(root)
    return root


@pytest.mark.parametrize("name", FORMS)
def test_given_a_bad_table_then_one_sentence_refuses_it(name: str, here: Path) -> None:
    said = sentence(*RUN, "-c", f"dataset='{name}'")
    assert re.search(r"\. \[[a-z0-9-]+\]$", said), said
    assert "Traceback" not in said


def sentence(*arguments: str) -> str:
    """The only line of an error; it is said once, and no traceback is beside it."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 1, result.output
    return error_line(result.output)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (f"seed={'9' * 5000}", "…: must be a whole number."),
        ("fedul.num-sets=1000000000", "must be at most 1000000"),
        ("output='loop'", "loop"),
        (f"dataset='/{'x' * 5000}'", "cannot be used as a path: File name too long"),
        ("dataset='data/huge'", "more memory than there is"),
        ("dataset='data/fifos'", "holds no data set"),
        ("model='own_raises:f'", "raises ValueError: at import (line 1 of"),
        ("model='own_builders:exiting'", "raises SystemExit: 0"),
        ("client-data='owners/clients'", "failed in round 1: "),
        ("init-scale=1e30", "The local loss is no longer finite"),
        ("fifo.toml", "it is a pipe or a device, not a file"),
        ("loop.toml", "loop.toml"),
        ("deep.toml", "nested too deeply"),
    ],
)
def test_given_bad_settings_then_a_sentence_says(here: Path, setting: str, said: str) -> None:
    assert said in sentence(*RUN, "-c", setting)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("dataset='digts'", "did you mean 'digits'?"),
        ("device='cuda'", "this machine has no usable CUDA device"),
        ("model='lenet'", "needs images of at least 12 x 12 pixels"),
        ("start-from='nowhere'", "there is no such file or directory"),
    ],
)
def test_given_a_run_that_cannot_begin_then_flower_is_not_started_and_no_folder_is_made(
    here: Path, setting: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("Flower was started")

    def not_reached(name: str, config: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr("fedul_flwr.engine.simulate.run_here", start)
    monkeypatch.setattr("datasets.load_dataset", not_reached)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    before = sorted(here.iterdir())
    assert said in sentence("run", "-c", setting)
    assert sorted(here.iterdir()) == before


def test_given_a_pipe_or_a_dead_link_then_it_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        with refuses("file-not-writable", StorageError, match="something"):
            write_atomically(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "pipe"]
