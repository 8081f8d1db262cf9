"""Who failed or was away in a run, and how a run's end says it."""

from __future__ import annotations

from typing import Any

from fedul_flwr.data.run_files.records import incident_rows, incidents, incidents_in_words

LINES: list[dict[str, Any]] = [
    {"round": 1},
    {"round": 2, "failed": ["Client 3 (st-mary)", "Client 0"]},
    {"round": 3, "failed": ["Client 3 (st-mary)"], "away": ["Client 1"]},
    {"round": 4, "away": ["Client 1"]},
    {"round": 6, "failed": ["Client 3 (st-mary)"]},
]


def test_given_incidents_then_rows_and_a_sentence() -> None:
    failed = "Client 3 (st-mary) (rounds 2-3, 6), Client 0 (round 2)"
    away = "Client 1 (rounds 3-4)"
    assert incident_rows(incidents(LINES)) == {"failed": failed, "away": away}
    said = f"clients that failed: {failed}; clients that were away: {away}"
    assert incidents_in_words(incidents(LINES)) == said


def test_given_a_run_without_incidents_then_nothing_is_said() -> None:
    assert incident_rows(incidents(LINES[:1])) == {}
    assert incidents_in_words(incidents(LINES[:1])) == ""
    assert incidents_in_words({}) == ""  # a summary of an earlier version
