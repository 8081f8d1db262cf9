"""Clients that failed or were away in a run, from its metrics lines: who, and in which rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

FAILED, AWAY = "failed", "away"
"""Keys of a metrics line, names of the clients that failed in the round or were not connected; and
of a summary, these clients' rounds."""
_MOST_CLIENTS = 10
"""Most clients that a text names."""

Rounds = Mapping[str, Sequence[int]]
"""Rounds by client."""


def incidents(lines: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """Rounds in which clients failed, and in which they were away, by client.

    Returns
    -------
    ``{"failed": {"Client 3 (st-mary)": [2, 5]}, "away": {}}``, clients in the order of their first
    incident.
    """
    found: dict[str, dict[str, list[int]]] = {FAILED: {}, AWAY: {}}
    for line in lines:
        for kind, by_client in found.items():
            for client in line.get(kind, ()):
                by_client.setdefault(client, []).append(line["round"])
    return found


def incident_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """Text of a summary's incidents by their kind; empty without any."""
    return {kind: _enumerated(summary[kind]) for kind in (FAILED, AWAY) if summary.get(kind)}


def incidents_in_words(summary: Mapping[str, Any]) -> str:
    """A sentence with a summary's incidents, such as ``Client 3 failed (rounds 2, 5-7).``"""
    parts = [
        f"{words}: {_enumerated(summary[kind])}"
        for kind, words in (
            (FAILED, "clients that failed"),
            (AWAY, "clients that were away"),
        )
        if summary.get(kind)
    ]
    return "; ".join(parts)


def _enumerated(rounds_of: Rounds) -> str:
    shown = [f"{client}{_rounds(rounds)}" for client, rounds in rounds_of.items()]
    more = len(shown) - _MOST_CLIENTS
    return ", ".join(shown[:_MOST_CLIENTS]) + (f" and {more} more" if more > 0 else "")


def _rounds(rounds: Sequence[int]) -> str:
    """`` (round 2)``, `` (rounds 2, 5-7)``, or nothing for a run without rounds."""
    if not any(rounds):
        return ""
    ordered = sorted(set(rounds))
    starts = [ordered[0], *(b for a, b in pairwise(ordered) if b != a + 1)]
    ends = [*(a for a, b in pairwise(ordered) if b != a + 1), ordered[-1]]
    spans = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
    return f" (round{'s' * (len(ordered) > 1)} {', '.join(spans)})"
