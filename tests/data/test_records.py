import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedul_flwr.data.run_files.label_files import write_labels
from fedul_flwr.data.run_files.records import (
    best_line,
    incident_rows,
    incidents,
    missing,
    missing_in_words,
)
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.data.types import Propagated
from tests.support.refusals import refuses
from tests.support.synthetic_results import write_run


def test_series_leaves_out_null_and_nan(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    rows = [
        {"round": 1, "test_error": 5.0},
        {"round": 2, "test_error": None},
        {"round": 3, "test_error": float("nan")},
        {"round": 4},
        {"round": 5, "test_error": 2},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "metrics.jsonl").write_text(lines)
    assert Run.read(directory).series("test_error") == ([1, 5], [5.0, 2.0])


def test_round_written_twice_counts_once(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    lines = '{"round": 1, "a": 1}\n{"round": 2, "a": 2}\n{"round": 2, "a": 3}\n'
    (directory / "metrics.jsonl").write_text(lines)
    assert Run.read(directory).lines == [{"round": 1, "a": 1}, {"round": 2, "a": 3}]


def test_unfinished_run_with_line_in_the_writing(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", rounds=3, finished=False)
    with (directory / "metrics.jsonl").open("ab") as file:
        # Cut within the two bytes of a character.
        file.write('{"round": 4, "note": "ä'.encode()[:-1])
    run = Run.read(directory)
    assert not run.finished
    assert [row["round"] for row in run.lines] == [0, 1, 2, 3]
    rounds, errors = run.series("validation_error")
    assert run.best_round() == rounds[errors.index(min(errors))]


def test_test_error_never_chooses_the_best_round(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", finished=False)
    (directory / "metrics.jsonl").write_text('{"round": 1, "test_error": 5.0}\n')
    assert Run.read(directory).best_round() is None


def test_directory_that_is_no_run(tmp_path: Path) -> None:
    with refuses("run-missing"):
        Run.read(tmp_path)
    with refuses("folder-missing"):
        Run.read(tmp_path / "missing")


def test_failed_write_leaves_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    target.mkdir()
    with refuses("file-not-writable"):
        write_atomically(target, "text")
    assert list(tmp_path.iterdir()) == [target]
    write_atomically(tmp_path / "file", "old")
    write_atomically(tmp_path / "file", "new ä")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new ä"


LINES: list[dict[str, Any]] = [
    {"round": 1},
    {"round": 2, "failed": ["Client 3 (st-mary)", "Client 0"]},
    {"round": 3, "failed": ["Client 3 (st-mary)"], "away": ["Client 1"]},
    {"round": 4, "away": ["Client 1"]},
    {"round": 6, "failed": ["Client 3 (st-mary)"]},
]


def test_given_incidents_then_rows_of_them() -> None:
    failed = "Client 3 (st-mary) (rounds 2-3, 6), Client 0 (round 2)"
    away = "Client 1 (rounds 3-4)"
    assert incident_rows(incidents(LINES)) == {"failed": failed, "away": away}
    # Nothing is said of a run without incidents.
    assert incident_rows(incidents(LINES[:1])) == {}


def line(number: int, **losses: float) -> dict[str, Any]:
    """A line of round ``number``; clients are named ``c0``, ``c1`` … here."""
    pairs = [[int(name[1:]), loss] for name, loss in losses.items()]
    return {"round": number, "heldout_loss": 0.0, "heldout_losses": pairs}


def kept(*lines: dict[str, Any], by: str = "heldout") -> int | None:
    found = best_line(lines, by)
    return None if found is None else int(found["round"])


UNMEASURED = {"round": 1, "heldout_loss": None, "validation_error": None}
ERRORS = [
    {"round": number, "validation_error": error}
    for number, error in ((1, 3.0), (2, 2.0), (3, 2.0), (4, float("nan")))
]
TWO = [
    {"round": 1, "validation_error": 10.0, "validation_prior_error": 60.0},
    {"round": 2, "validation_error": 30.0, "validation_prior_error": 20.0},
    {"round": 3, "validation_error": None, "validation_prior_error": None},
]
PLAIN = [{key: one[key] for key in ("round", "validation_error")} for one in TWO]
FIRST = line(1, c0=1.0, c1=5.0, c2=0.5)
# Client 2 has ten times the loss of the others: without it every mean and median falls.
WITH_2 = line(1, c0=1.0, c1=1.0, c2=10.0)


@pytest.mark.parametrize(
    ("lines", "by", "number"),
    [
        # From round 1 to 2 the losses change by -0.2, -0.1, +0.3, of which the median is -0.1.
        ([FIRST, line(2, c0=0.8, c1=4.9, c2=0.8)], "heldout", 2),
        # By +0.1, -0.1, +0.2: the median is +0.1.
        ([FIRST, line(2, c0=1.1, c1=4.9, c2=0.7)], "heldout", 1),
        ([WITH_2, line(2, c0=1.1, c1=1.1)], "heldout", 1),
        ([WITH_2, line(2, c0=1.1, c1=1.1), line(3, c0=0.9, c1=0.9)], "heldout", 3),
        ([line(1, c0=9.0), line(2, c1=0.1)], "heldout", 1),  # no client in common
        ([{"round": n, "heldout_loss": loss} for n, loss in ((1, 2.0), (2, 1.0))], "heldout", 2),
        ([UNMEASURED], "heldout", None),
        ([UNMEASURED, line(2, c0=1.0), UNMEASURED | {"round": 3}], "heldout", 2),
        ([UNMEASURED], "last", 1),
        (ERRORS, "validation", 2),  # of equals the first
        (ERRORS, "last", 4),
        (TWO, "validation", 2),  # the errors for the class priors of training
        (
            [{key: one[key] for key in ("round", "validation_error")} for one in TWO],
            "validation",
            1,
        ),
    ],
)
def test_the_round_that_is_kept(lines: list[dict[str, Any]], by: str, number: int | None) -> None:
    assert kept(*lines, by=by) == number


@pytest.mark.parametrize("lie", [-1e30, 0.0, 1e30])
@pytest.mark.parametrize("round_of_lie", [1, 2, 3])
def test_given_a_liar_of_three_then_it_picks_no_round(lie: float, round_of_lie: int) -> None:
    honest = [(0.9, 2.0), (0.5, 1.5), (0.7, 1.8)]  # both honest clients are best in round 2
    lines = [
        line(number, c0=one, c1=other, c2=lie if number == round_of_lie else 1.0)
        for number, (one, other) in enumerate(honest, start=1)
    ]
    assert kept(*lines) == 2


NAMES = ["7", 'a, "b".png', "ä/ö.png"]
FOUND = Propagated(np.array([1, -1, 0]), np.array([0.123456789, 0.0, 1.0]))


def test_a_file_by_hand(tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.csv", NAMES, FOUND, ["cat", "dog, small"])
    assert (tmp_path / "labels.csv").read_text(encoding="utf-8") == (
        "name,label,class,confidence\n"
        '7,1,"dog, small",0.123457\n'
        '"a, ""b"".png",-1,,0\n'
        "ä/ö.png,0,cat,1\n"
    )


def test_each_missing_client_has_one_reason_in_the_same_words() -> None:
    lines = [
        {"round": 1, "failed": ["A"], "reasons": {"A": "late"}},
        {"round": 2, "failed": ["B"], "away": ["A"], "reasons": {"A": "gone"}},
    ]
    assert missing(lines[1]) == {"A": "gone", "B": "failed"}
    assert missing_in_words(lines[1]) == "; A: gone; B: failed"
    assert missing_in_words({"round": 3}) == ""
    assert incident_rows(incidents(lines)) == {
        "failed": "A (round 1): gone, B (round 2)",
        "away": "A (round 2): gone",
    }
    many = {"away": [f"Client {n}" for n in range(12)]}
    assert missing_in_words(many).count(";") == 11
