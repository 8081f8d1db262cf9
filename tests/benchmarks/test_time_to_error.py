"""Time to the paper's error: how the sides and the bars follow from what was run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import time_to_error
from benchmarks.time_to_error import LOOP, OURS, PAPER, Way


def test_given_runs_that_reach_the_target_then_the_loop_is_counted_by_its_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(settings: Mapping[str, Any], target: float) -> Way:
        del target
        seconds = {11: 40.0, 12: 20.0, 13: 30.0, 14: 25.0, 15: 60.0}[int(settings["seed"])]
        return Way([(seconds / 2, 4.0), (seconds, 2.9)], True)

    monkeypatch.setattr(time_to_error, "data_folder", Path)
    monkeypatch.setattr(time_to_error, "mnist_like", lambda: (Path("mnist"), "MNIST"))
    monkeypatch.setattr(time_to_error, "_run", run)
    monkeypatch.setattr(time_to_error, "_loop_seconds", lambda column: 45.0)
    outcome = time_to_error.measure(quick=False)
    rows = {row[:2]: row[2:] for row in outcome.rows}
    target = "Non-IID, 2.98 %"
    # (40 + 20 + 30 + 25 + 60) / 5 = 35
    assert rows[target, OURS] == ("5", "5 of 5", "35", "40, 20, 30, 25, 60", "2, 2, 2, 2, 2")
    assert rows[target, PAPER] == ("1", "1 of 1", "40", "40", "2")
    # Two rounds of 45 s.
    assert rows[target, LOOP] == ("1", "2 rounds", "90", "45.0 a round", "2")
    # The slowest of ours takes 60 s, the median one 30 s; the loop three times as long as that.
    assert [bar.value for bar in outcome.bars] == [60.0, 3.0]
