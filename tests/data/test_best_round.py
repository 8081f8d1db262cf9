"""The round that a run keeps, by hand: what liars and absent clients can do to it."""

from __future__ import annotations

from typing import Any

import pytest

from fedul_flwr.data.run_files.records import best_line, improves


def line(number: int, **losses: float) -> dict[str, Any]:
    """A line of round ``number``; clients are named ``c0``, ``c1`` … here."""
    pairs = [[int(name[1:]), loss] for name, loss in losses.items()]
    return {"round": number, "heldout_loss": 0.0, "heldout_losses": pairs}


def kept(*lines: dict[str, Any], by: str = "heldout") -> int | None:
    found = best_line(lines, by)
    return None if found is None else int(found["round"])


def test_given_honest_clients_then_the_round_that_most_prefer_is_kept() -> None:
    # From round 1 to 2 the losses change by -0.2, -0.1, +0.3, of which the median is -0.1.
    assert kept(line(1, c0=1.0, c1=5.0, c2=0.5), line(2, c0=0.8, c1=4.9, c2=0.8)) == 2
    # By +0.1, -0.1, +0.2: the median is +0.1.
    assert kept(line(1, c0=1.0, c1=5.0, c2=0.5), line(2, c0=1.1, c1=4.9, c2=0.7)) == 1


@pytest.mark.parametrize("lie", [-1e30, 0.0, 1e30])
@pytest.mark.parametrize("round_of_lie", [1, 2, 3])
def test_given_one_liar_of_three_then_it_does_not_pick_the_round(
    lie: float, round_of_lie: int
) -> None:
    honest = [(0.9, 2.0), (0.5, 1.5), (0.7, 1.8)]  # both honest clients are best in round 2
    lines = [
        line(number, c0=one, c1=other, c2=lie if number == round_of_lie else 1.0)
        for number, (one, other) in enumerate(honest, start=1)
    ]
    assert kept(*lines) == 2


def test_given_a_client_that_is_away_then_its_absence_wins_no_round() -> None:
    # Client 2 has ten times the loss of the others: without it every mean and median falls.
    one = line(1, c0=1.0, c1=1.0, c2=10.0)
    worse_without = line(2, c0=1.1, c1=1.1)
    better_without = line(3, c0=0.9, c1=0.9)
    assert kept(one, worse_without) == 1
    assert kept(one, worse_without, better_without) == 3


def test_given_no_client_in_common_then_the_round_kept_stays() -> None:
    assert not improves(line(2, c1=0.1), line(1, c0=9.0))


def test_given_rounds_without_a_measure_then_they_are_left_out() -> None:
    unmeasured = {"round": 1, "heldout_loss": None, "validation_error": None}
    assert kept(unmeasured) is None
    assert kept(unmeasured, line(2, c0=1.0), unmeasured | {"round": 3}) == 2
    assert kept(unmeasured, by="last") == 1


def test_given_lines_of_an_earlier_version_then_their_losses_are_compared() -> None:
    old = [{"round": number, "heldout_loss": loss} for number, loss in ((1, 2.0), (2, 1.0))]
    assert kept(*old) == 2


def test_given_validation_errors_then_the_least_is_kept_and_of_equals_the_first() -> None:
    errors = ((1, 3.0), (2, 2.0), (3, 2.0), (4, float("nan")))
    lines = [{"round": number, "validation_error": error} for number, error in errors]
    assert kept(*lines, by="validation") == 2
    assert kept(*lines, by="last") == 4


def test_given_class_priors_then_the_error_for_them_chooses_and_else_the_plain_error() -> None:
    lines = [
        {"round": 1, "validation_error": 10.0, "validation_prior_error": 60.0},
        {"round": 2, "validation_error": 30.0, "validation_prior_error": 20.0},
        {"round": 3, "validation_error": None, "validation_prior_error": None},
    ]
    assert kept(*lines, by="validation") == 2
    plain = [{key: one[key] for key in ("round", "validation_error")} for one in lines]
    assert kept(*plain, by="validation") == 1
