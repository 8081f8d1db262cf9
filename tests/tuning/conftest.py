"""The miniature table of digits, with a search of three trials for its two methods."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reproduction.conftest import place as table

__all__ = ["place", "table"]

SEARCH = """
trials = 3
reduction-factor = 2
rungs = 1

[space]
step = [{ learning-rate = 0.01 }, { learning-rate = 1e-6 }]
decay = [{ weight-decay = 0.0 }, { weight-decay = 1e-3 }]
"""


@pytest.fixture
def place(table: Path) -> Path:
    """A working directory with the table, its search, and a page to render to."""
    (table / "experiments" / "search.toml").write_text(SEARCH)
    return table
