"""The summaries that are printed when runs have ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedul_flwr.results.printed_summary import print_comparison, prior_fit_in_words


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


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, ""),
        ({"sets": 50, "misfits": 0, "told_distance": 0.0, "found_distance": 0.03}, ""),
        ({"sets": 6, "misfits": 0}, ""),
        ({"sets": 6, "misfits": 2}, "2 of 6 do not fit the model's predictions"),
        (
            {"sets": 50, "misfits": 0, "told_distance": 0.3, "found_distance": 0.0456},
            "0 of 50 do not fit the model's predictions; mean distance to the truth 0.300 as told, "
            "0.046 as predicted",
        ),
    ],
)
def test_class_priors_of_sets_are_mentioned_if_some_are_wrong(
    found: dict[str, float], words: str
) -> None:
    assert prior_fit_in_words({"prior_fit": found}) == words
