"""The measure of a trial in the round that its run keeps."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig, parse_flat
from fedul_flwr.experiments.search_space import Criterion, is_diverged, make_criterion

LINES = [
    {"round": 1, "validation_error": 9.0, "heldout_loss": 0.9, "test_error": 1.0},
    {"round": 2, "validation_error": 5.0, "heldout_loss": 0.7, "test_error": 1.0},
    {"round": 3, "validation_error": None, "heldout_loss": 0.1, "test_error": 1.0},
    {"round": 4, "validation_error": 5.0, "heldout_loss": 0.5, "test_error": 1.0},
    {"round": 5, "validation_error": 7.0, "heldout_loss": 0.8, "test_error": 1.0},
]
for _line, _error in zip(LINES, (40.0, 30.0, None, 35.0, 20.0), strict=True):
    _line["validation_balanced_error"] = _error


def config(**overrides: Any) -> RunConfig:
    return parse_flat({key.replace("_", "-"): value for key, value in overrides.items()})


@pytest.mark.parametrize(
    ("name", "selection", "kept"),
    [
        ("validation", "validation", (2, 5.0)),  # the first of equals
        ("validation", "last", (5, 7.0)),
        ("validation", "heldout", (4, 5.0)),  # of rounds with both figures
        ("balanced", "balanced", (5, 20.0)),
        ("balanced", "heldout", (4, 35.0)),
        ("heldout", "heldout", (3, 0.1)),
        ("heldout", "last", (5, 0.8)),
    ],
)
def test_given_a_selection_then_the_measure_is_that_of_the_round_the_run_keeps(
    name: Any, selection: str, kept: tuple[int, float]
) -> None:
    assert Criterion(name, selection).chosen(LINES) == kept


def test_given_a_loss_that_is_not_finite_then_the_run_has_diverged() -> None:
    for key in ("loss", "surrogate_loss", "heldout_loss", "validation_loss"):
        for value in (math.nan, math.inf):
            assert is_diverged({"round": 1, key: value, "validation_error": 90.0}), (key, value)
    assert not is_diverged({"round": 1, "loss": 2.0, "heldout_loss": None, "test_error": math.nan})


@pytest.mark.parametrize(
    ("name", "settings", "selection"),
    [
        ("validation", {"selection": "last"}, "last"),
        ("validation", {"selection": "balanced"}, "balanced"),
        ("balanced", {"selection": "validation"}, "balanced"),
        ("balanced", {"selection": "heldout"}, "heldout"),
        ("heldout", {"selection": "validation"}, "heldout"),
    ],
)
def test_given_heldout_then_no_label_chooses_the_round_and_else_the_runs_own_selection(
    name: Any, settings: dict[str, Any], selection: str
) -> None:
    found = make_criterion(name, config(**settings), config(**settings))
    assert (found.name, found.selection) == (name, selection)
    measured = "heldout" if name == "heldout" else selection
    assert found.settings() == {"selection": measured, "measure-test-error": False}
