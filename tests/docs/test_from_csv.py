"""The page from a CSV to a checked folder does what it says, block by block."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from tests.docs.test_tutorials import BLOCK

PAGE = Path(__file__).parents[2] / "docs" / "from-csv.md"


def test_given_the_page_as_written_then_it_ends_with_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    printed = ""
    for language, title, text in BLOCK.findall(page):
        if title:
            (tmp_path / title).write_text(text, encoding="cp1252")
        elif language == "python":
            exec(text, {})
        else:
            for line in text.replace("\\\n", " ").splitlines():
                result = CliRunner().invoke(app, shlex.split(line)[1:])
                assert result.exit_code == 0, result.output
                printed += result.output
    assert printed.splitlines()[-1] == "Ready."
    shown = re.findall(r"^    (.+)$", page, re.MULTILINE)
    report = [line for line in shown if not line.startswith(("-c ", "rows.to_csv", "…"))]
    assert len(report) > 10
    assert [line for line in report if line not in printed.splitlines()] == []
    assert "2024-01.csv, 2024-02.csv: separated by ;, decimal comma" in printed
