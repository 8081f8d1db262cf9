"""Time to the paper's error: what is measured where a column has not been searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import time_to_error
from benchmarks.time_to_error import PAPER, SEARCHED, Way
from fedul_flwr.errors import UserError


def test_given_a_column_without_a_search_then_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sides(column: str, quick: bool) -> dict[str, Any]:
        if column == "IID":
            raise UserError("there is no search of it")
        return {SEARCHED: ({}, (11,)), PAPER: ({}, (11,))}

    monkeypatch.setattr(time_to_error, "data_folder", Path)
    monkeypatch.setattr(time_to_error, "mnist_like", lambda: (Path("mnist"), "MNIST"))
    monkeypatch.setattr(time_to_error, "_sides", sides)
    monkeypatch.setattr(time_to_error, "_run", lambda *_: Way([(20.0, 4.0), (40.0, 2.9)], True))
    monkeypatch.setattr(time_to_error, "_loop_seconds", lambda column: 30.0)
    outcome = time_to_error.measure(quick=False)
    assert outcome.notes == ["IID is left out: there is no search of it"]
    assert {row[0] for row in outcome.rows} == {"Non-IID, 2.98 %"}
    # Ours takes 40 s; the loop two rounds of 30 s, 1.5 times as long.
    assert [bar.value for bar in outcome.bars] == [40.0, 1.5]
