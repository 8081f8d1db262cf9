"""The level of Flower's log comes back."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from fedul_flwr.engine.flower_logs import flower_logs


def test_given_a_file_then_it_has_all_and_the_rest_shows_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flower = logging.getLogger("flwr")
    before = flower.level, [handler.level for handler in flower.handlers]
    shown = logging.StreamHandler(sys.stdout)
    flower.addHandler(shown)
    try:
        with flower_logs(logging.ERROR, tmp_path / "log"):
            flower.info("round %s", 1)
            flower.error("lost")
        flower.error("later")
    finally:
        flower.removeHandler(shown)
    assert (tmp_path / "log").read_text() == "INFO :      round 1\nERROR :      lost\n"
    assert capsys.readouterr().out == "lost\nlater\n"
    assert (flower.level, [handler.level for handler in flower.handlers]) == before


def test_given_a_program_without_flower_then_its_log_is_not_shown(tmp_path: Path) -> None:
    code = (
        "import logging, pathlib, sys\n"
        "from fedul_flwr.engine.flower_logs import flower_logs\n"
        "with flower_logs(logging.ERROR, pathlib.Path(sys.argv[1])):\n"
        "    from flwr.common import log\n"
        "    log(logging.INFO, 'round')\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "log").read_text() == "INFO :      round\n"
