"""The level of Flower's log comes back."""

import logging
import sys
from pathlib import Path

import pytest

from fedul_flwr.engine.flower_logs import flower_logs


def test_a_file_has_all_and_errors_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
