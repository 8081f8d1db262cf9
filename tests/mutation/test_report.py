"""What `make mutants` counts, names and fails for; mutmut itself runs in none of these tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import __main__ as mutation

FILE = "package/module.py"
MUTATED = '''
def double(x):
    pass

def x_double__mutmut_orig(x):
    """Twice x."""
    y = x * 2.0
    return y

def x_double__mutmut_1(x):
    """Twice x."""
    y = x / 2.0
    return y

def x_double__mutmut_2(x):
    """Twice x."""
    y = x * 2.00
    return y

def x_double__mutmut_3(x):
    """Twice x."""
    y = None
    return y
'''
DIVIDED, NOTHING = "double: y = x * 2.0 -> y = x / 2.0", "double: y = x * 2.0 -> y = None"


@pytest.fixture
def good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """``good(codes, listed) -> (whether the piece is good, what was printed)``."""
    monkeypatch.setattr(mutation, "RESULTS", tmp_path)
    place = tmp_path / "piece" / "mutants" / FILE
    place.parent.mkdir(parents=True)
    place.write_text(MUTATED)

    def report(codes: list[int | None], **listed: Any) -> tuple[bool, str]:
        keys = {f"package.module.x_double__mutmut_{i}": code for i, code in enumerate(codes, 1)}
        Path(f"{place}.meta").write_text(json.dumps({"exit_code_by_key": keys}))
        return mutation.report("piece", [FILE], listed), capsys.readouterr().out

    return report


def listed(mutant: str) -> list[dict[str, Any]]:
    return [{"file": FILE, "reason": "…", "mutants": [mutant]}]


def test_all_killed_is_good_and_what_changes_nothing_does_not_count(good: Any) -> None:
    # The second mutant writes the same number in another way.
    assert good([1, 0, 1]) == (
        True,
        "piece: 2 mutants, 2 killed, 0 survived, 0 the same program; 100.0 %\n",
    )


@pytest.mark.parametrize("code", [0, 5, 33])  # tests passed, or there was none
def test_a_survivor_that_is_not_listed_is_named(good: Any, code: int) -> None:
    found, text = good([code, 0, 1])
    assert not found
    assert "2 mutants, 1 killed, 1 survived, 0 the same program; 50.0 %" in text
    assert f"not listed: {FILE}\n    {json.dumps(DIVIDED)},\n" in text


def test_the_same_program_is_left_out_of_the_share(good: Any) -> None:
    for lists in ({"same": listed(DIVIDED)}, {"rule": [{"change": r"\* 2.0 -> y = x /"}]}):
        found, text = good([0, 0, 1], **lists)
        assert found
        assert "2 mutants, 1 killed, 0 survived, 1 the same program; 100.0 %" in text


def test_an_accepted_survivor_counts_against_the_bar(
    good: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not good([0, 0, 1], accepted=listed(DIVIDED))[0]  # 50 %
    monkeypatch.setattr(mutation, "BAR", 0.5)
    assert good([0, 0, 1], accepted=listed(DIVIDED))[0]


@pytest.mark.parametrize("kind", ["same", "accepted"])
def test_a_listed_mutant_that_is_killed_has_to_leave_the_list(good: Any, kind: str) -> None:
    found, text = good([1, 0, 1], **{kind: listed(NOTHING)})
    assert not found
    assert f"listed, but no survivor: {FILE}\n    {json.dumps(NOTHING)},\n" in text


def test_an_unknown_piece_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutation.main(["surrogat"]) == 2
    assert "No piece surrogat; there are surrogate, " in capsys.readouterr().out


def test_changes_are_named_with_some_of_what_surrounds_them() -> None:
    long = "a" * 100
    assert mutation.change(f"{long}+{long}", f"{long}-{long}") == (
        f"{'a' * 30}+{'a' * 30} -> {'a' * 30}-{'a' * 30}"
    )
