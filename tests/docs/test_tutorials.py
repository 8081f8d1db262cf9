"""Tutorials, and the page from a CSV to a checked folder, do what they say, block by block."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedul_flwr.cli.main import app

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', flags=re.DOTALL | re.MULTILINE)


def run_commands(script: str) -> None:
    for line in script.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "fedul-flwr"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output


LONG = ("bi-objective", "compare", "fedmatch", "xclp-training")
"""They train for ten seconds to half a minute each."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page in LONG else page
        for page in sorted(path.stem for path in TUTORIALS.glob("[!i]*.md"))
    ],
)
def test_tutorial(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, title, text in BLOCK.findall((TUTORIALS / f"{page}.md").read_text()):
        if title:
            (tmp_path / title).write_text(text)
        elif language == "python":
            exec(text, names)
        else:
            run_commands(text)


def test_given_the_page_then_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (TUTORIALS.parent / "from-csv.md").read_text()
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
