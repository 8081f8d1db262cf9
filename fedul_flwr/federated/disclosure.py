"""What leaves a client, declared where the client is: for ``fedul-flwr deploy check``.

Every client class says in ``sends`` what it sends under given settings. A test compares that with
transcripts of runs: nothing else is sent, and nothing is declared that is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fedul_flwr.federated.messages import CONFIG

EVALUATE, HELLO, PREPARE, TRAIN = "evaluate", "hello", "prepare", "train"
"""Messages that every method may have, beside phases of its own."""

ONCE = "once, before round 1"
EVERY_ROUND = "every round that it trains in"

SERVER = "the server"
AVERAGED = "the server; all clients get the mean"


@dataclass(frozen=True)
class Sent:
    """One thing that leaves a client.

    Attributes
    ----------
    phase : the message it answers.
    names : of values or arrays in the answer; ``*`` stands for any characters.
    what : it in words.
    record : the record of the answer that has them.
    often : when it is sent.
    reader : who can read it.
    """

    phase: str
    names: tuple[str, ...]
    what: str
    record: str = CONFIG
    often: str = ONCE
    reader: str = SERVER

    def covers(self, phase: str, record: str, name: str) -> bool:
        """Whether a value or array of an answer is part of it."""
        known = any(fnmatchcase(name, pattern) for pattern in self.names)
        return known and (phase, record) == (self.phase, self.record)


def without(phase: str, sent: Iterable[Sent]) -> list[Sent]:
    """``sent`` but for answers to ``phase``."""
    return [entry for entry in sent if entry.phase != phase]
