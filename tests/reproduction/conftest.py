"""A miniature table of digits: two methods and two columns."""

from __future__ import annotations

from pathlib import Path

import pytest

TABLE = """
title = "Digits"
source = "A paper, table 1"
measures = ["test-error"]
clients = 3
runs = "../methods.toml"

[columns."M=10"]
file = "m10.toml"
paper.test-error = { FedUL = [2.5, 0.5] }

[columns."M=12"]
file = "m12.toml"
"""
METHODS = '[FedUL]\nmethod = "fedul"\n\n["all labels"]\nmethod = "supervised"\n'
ROW = """
dataset = "digits"
points-per-client = 150
num-rounds = 2
model = "mlp"

[fedul]
num-sets = {}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the miniature table and a page to render to."""
    folder = tmp_path / "experiments" / "mini" / "table-1"
    (folder / "quick").mkdir(parents=True)
    (folder / "table.toml").write_text(TABLE)
    (folder.parent / "methods.toml").write_text(METHODS)
    for sets in (10, 12):
        for name in (f"m{sets}.toml", f"quick/m{sets}.toml"):
            (folder / name).write_text(ROW.format(sets))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text(
        "before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path
