"""The measure of a trial in the round that its run keeps."""

import math
from typing import Any

import pytest

from fedul_flwr.config.run_config import RunConfig, parse_flat
from fedul_flwr.experiments.search_space import Criterion, make_criterion
from tests.support.refusals import refuses

LINES = [
    {"round": 1, "validation_error": 9.0, "heldout_loss": 0.9, "test_error": 1.0},
    {"round": 2, "validation_error": 5.0, "heldout_loss": 0.7, "test_error": 1.0},
    {"round": 3, "validation_error": None, "heldout_loss": 0.1, "test_error": 1.0},
    {"round": 4, "validation_error": 5.0, "heldout_loss": 0.5, "test_error": 1.0},
    {"round": 5, "validation_error": 7.0, "heldout_loss": 0.8, "test_error": 1.0},
]
for _line, _error in zip(LINES, (40.0, 30.0, None, 35.0, 20.0), strict=True):
    _line["validation_balanced_error"] = _error
LINES[3]["known_error"], LINES[4]["known_error"] = 15.0, 16.0


def config(**overrides: Any) -> RunConfig:
    return parse_flat({key.replace("_", "-"): value for key, value in overrides.items()})


@pytest.mark.parametrize(
    ("name", "selection", "kept"),
    [
        ("validation", "validation", (2, 5.0)),  # the first of equals
        ("validation", "heldout", (4, 5.0)),  # of rounds with both figures
        ("balanced", "balanced", (5, 20.0)),
        ("heldout", "heldout", (3, 0.1)),
        ("shares", "shares", (4, 15.0)),
    ],
)
def test_the_measure_of_the_kept_round(name: Any, selection: str, kept: tuple[int, float]) -> None:
    assert Criterion(name, selection).chosen(LINES) == kept


def test_given_rounds_without_a_number_then_they_are_ignored() -> None:
    lines = [{"round": 1, "heldout_loss": math.nan}, {"round": 2, "heldout_loss": 3.0}]
    assert Criterion("heldout", "heldout").chosen(lines) == (2, 3.0)
    assert Criterion("heldout", "heldout").chosen(lines[:1]) is None
    assert Criterion("validation", "validation").chosen([]) is None


@pytest.mark.parametrize(
    ("name", "settings", "selection"),
    [
        ("validation", {"selection": "balanced"}, "balanced"),
        ("balanced", {}, "balanced"),
        ("balanced", {"selection": "heldout"}, "heldout"),
        ("heldout", {"selection": "last"}, "last"),
        ("shares", {}, "shares"),
        ("shares", {"method": "fedllp"}, "shares"),
        ("shares", {"method": "closed-form", "validation_fraction": 0.0}, "shares"),
    ],
)
def test_given_heldout_then_no_label_chooses_the_round_and_else_the_runs_own_selection(
    name: Any, settings: dict[str, Any], selection: str
) -> None:
    found = make_criterion(name, config(**settings), config(**settings))
    assert (found.name, found.selection) == (name, selection)
    measured = name if name in ("heldout", "shares") else selection
    assert found.settings() == {"selection": measured, "measure-test-error": False}


def test_given_validation_points_of_trials_alone_then_runs_choose_their_round_as_before() -> None:
    own = config(method="supervised", validation_fraction=0.0)
    trial = config(method="supervised", validation_fraction=0.1)
    assert make_criterion("validation", own, trial).selection == "last"
    assert make_criterion("balanced", own, trial).selection == "last"
    for name in ("validation", "balanced"):
        with refuses("setting-needs-labels"):
            make_criterion(name, own, own)


def test_given_a_method_without_the_measure_then_it_is_refused() -> None:
    supervised = config(method="supervised")
    for name in ("heldout", "shares"):
        with refuses("method-mismatch"):
            make_criterion(name, supervised, supervised)
    labeling = config(method="xclp-predict")
    with refuses("nothing-to-search"):
        make_criterion("validation", labeling, labeling)
