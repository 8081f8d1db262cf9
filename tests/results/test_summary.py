"""The summaries that are printed when runs have ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedul_flwr.results.printed_summary import print_comparison


def test_comparison_of_the_demo_says_by_which_data_each_round_was_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    outputs = {"fedul": tmp_path / "fedul", "supervised": tmp_path / "supervised"}
    selections = ("heldout", "validation")
    for (_, output), selection in zip(outputs.items(), selections, strict=True):
        output.mkdir()
        summary = {"test_error": 2.5, "best_round": 7, "rounds": 30, "selection": selection}
        (output / "summary.json").write_text(json.dumps(summary))
    print_comparison(outputs, 12.0)
    fedul, supervised = (line for line in capsys.readouterr().out.splitlines() if "7 of 30" in line)
    assert "fedul" in fedul
    assert "2.50 %" in fedul
    assert "held-out loss" in fedul
    assert "supervised" in supervised
    assert "validation labels" in supervised
