"""A miniature table of digits: two methods and two columns."""

from __future__ import annotations

from pathlib import Path

import pytest

FILE = Path("experiments/mini/table-1.toml")
TABLE = """
title = "Digits"
source = "A paper, table 1"
measures = ["test-error"]
clients = 3
rows = "methods.toml"

[settings]
dataset = "digits"
points-per-client = 150
num-rounds = 2
model = "mlp"

[matrix.sets]
"M=10" = { fedul.num-sets = 10 }
"M=12" = { fedul.num-sets = 12 }

[paper.test-error]
"M=10" = { FedUL = [2.5, 0.5] }
"""
METHODS = '[FedUL]\nmethod = "fedul"\n\n["all labels"]\nmethod = "supervised"\n'


def change_table(old: str, new: str) -> None:
    """Replace a part of the table's file, which must be there once."""
    text = FILE.read_text()
    assert text.count(old) == 1
    FILE.write_text(text.replace(old, new))


def start_from_another(setting: str = "") -> None:
    """Let column M=10 start from the model of a supervised run, with one setting of its own."""
    change_table("{ fedul.num-sets = 10 }", f'{{ fedul.num-sets = 10, start-from = "{START}" }}')
    FILE.write_text(FILE.read_text() + f'\n[start]\nmethod = "supervised"\n{setting}\n')


START = "runs/mini/table-1/base"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the miniature table and a page to render to."""
    monkeypatch.chdir(tmp_path)
    FILE.parent.mkdir(parents=True)
    FILE.write_text(TABLE)
    (FILE.parent / "methods.toml").write_text(METHODS)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text(
        "before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n"
    )
    return tmp_path
