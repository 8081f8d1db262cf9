"""Flower's program ``flwr``, as runs among owners use it."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedul_flwr.engine import flower_run
from fedul_flwr.engine.flower_run import FlowerProgram, start_run
from tests.support.refusals import refuses

# Flower's and typer's own, about libraries that they call.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PROJECT = """
[project]
name = "miniapp"
version = "0.1.0"

[tool.flwr.app]
publisher = "tests"
fab-include = ["**/*.py"]

[tool.flwr.app.components]
serverapp = "miniapp.apps:server"
clientapp = "miniapp.apps:client"
"""


@pytest.fixture
def nobody(tmp_path: Path) -> FlowerProgram:
    """The program with a SuperLink that does not answer, as in a notebook."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        '[superlink]\ndefault = "none"\n\n'
        '[superlink.none]\naddress = "127.0.0.1:9"\ninsecure = true\n'
    )
    colors = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}
    return FlowerProgram({**os.environ, **colors, "FLWR_HOME": str(tmp_path / "home")})


def test_given_no_superlink_or_an_app_that_flower_does_not_take_then_the_reason_is_told(
    tmp_path: Path, nobody: FlowerProgram
) -> None:
    app = tmp_path / "app"
    (app / "miniapp").mkdir(parents=True)
    (app / "miniapp" / "apps.py").write_text("server = client = None\n")
    with refuses("flower-failed", match="packed"):
        start_run(nobody, app, {}, "none")
    (app / "pyproject.toml").write_text(PROJECT)
    with refuses("flower-failed", match="Connection"):
        start_run(nobody, app, {}, "none")
    (app / "pyproject.toml").write_text(PROJECT.replace('publisher = "tests"', ""))
    with refuses("flower-failed", match='refused(?s:.*)"publisher"'):
        start_run(nobody, app, {}, "none")


def test_given_a_command_that_runs_when_the_program_is_closed_then_the_command_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Callable[[], set[int]]
) -> None:
    flwr = tmp_path / "flwr"
    flwr.write_text(f"#!{sys.executable} -S\nimport time\nprint('a line')\ntime.sleep(600)\n")
    flwr.chmod(0o755)
    monkeypatch.setattr(flower_run, "scripts_directory", lambda: tmp_path)
    program = FlowerProgram(os.environ)
    lines = program.lines("log", "7", "--stream")
    assert next(lines) == "a line\n"
    program.close()
    assert list(lines) == []
