"""Working folders as the command writes them, and a place for an owner's data."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``written("--insecure", owners=2)``: a folder whose path is awkward, for localhost:9123."""

    def write(*options: str, owners: int = 2) -> Path:
        folder = tmp_path_factory.mktemp("deploy") / "it's a $(folder)"
        named = ["--address", "localhost:9123", "--owners", str(owners)]
        done = CliRunner().invoke(app, ["deploy", "init", str(folder), *named, *options])
        assert done.exit_code == 0, done.output
        return folder

    return write


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that ``deploy check`` runs in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDUL_CACHE", str(tmp_path / "cache"))
    return tmp_path
