"""What an owner has answered and spent, over all runs with its data: a file that it keeps.

A server can begin a run anew, and a restarted SuperNode has forgotten the one before. What must
hold beyond a process, and beyond a run, is therefore on the owner's disk: SQLite's journal
makes each entry whole or absent, also if two processes answer at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.trusted_modules import named_modules
from fedul_flwr.data.safe_files import require_regular_file
from fedul_flwr.data.types import Arrays, Value
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.messages import ARRAYS, FORGETFUL, SETTINGS
from fedul_flwr.learning.variates import USED_ROUND
from fedul_flwr.propagation.privacy import gaussian_epsilon

DELTA = 1e-5
"""δ of all epsilons here."""

_TABLES = """
CREATE TABLE IF NOT EXISTS answered (run TEXT PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS lists (question BLOB PRIMARY KEY, clients TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spent (what TEXT PRIMARY KEY, releases INTEGER, mu_squared REAL);
CREATE TABLE IF NOT EXISTS asked (digest TEXT PRIMARY KEY, about TEXT, time TEXT);
CREATE TABLE IF NOT EXISTS decided
    (digest TEXT PRIMARY KEY, decision TEXT, until TEXT, because TEXT, time TEXT, signature BLOB);
"""


def ledger_file(node: NodeConfig) -> Path | None:
    """The file beside the owner's log, or beside its data if it has none; ``None`` without data."""
    if not node.data:
        return None
    if node.log:
        return Path(node.log).expanduser().resolve().with_suffix(".ledger")
    folder = Path(node.data).expanduser().resolve()
    return folder.with_name(f"{folder.name}.ledger")


def spender(node: NodeConfig) -> Callable[[str, float], None]:
    """Notes releases of a client's data, see :meth:`Ledger.spend`; not those of a simulation."""
    file = ledger_file(node)
    if file is None:
        return lambda *_: None
    return lambda what, mu_squared: Ledger(file).spend(what, mu_squared, node.max_epsilon)


def _epsilon(mu_squared: float) -> float:
    return gaussian_epsilon(math.sqrt(mu_squared), DELTA) if mu_squared < math.inf else math.inf


class Ledger:
    """An owner's entries."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def last_answer(self, run: int) -> int:
        """Number of the last sum that was answered in a run of Flower's id; 0 if there is none."""
        with self._open() as entries:
            rows = entries.execute("SELECT number FROM answered WHERE run = ?", (str(run),))
            return next((int(number) for (number,) in rows), 0)

    def answer(self, run: int, number: int) -> bool:
        """Note the answer to a sum; whether it is the first to this one or a later one."""
        with self._open() as entries:
            done = entries.execute(
                "INSERT INTO answered VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET "
                "number = excluded.number WHERE number < excluded.number",
                (str(run), number),
            )
            return done.rowcount > 0

    def clients_of(self, question: bytes) -> list[int] | None:
        """Over whom the answers to a question were summed before; ``None`` if they were not."""
        with self._open() as entries:
            rows = entries.execute("SELECT clients FROM lists WHERE question = ?", (question,))
            return next((json.loads(clients) for (clients,) in rows), None)

    def sign(self, question: bytes, clients: Iterable[int]) -> None:
        """Note over whom the answers to a question are summed; the latest counts."""
        with self._open() as entries:
            row = (question, json.dumps(sorted(clients)))
            entries.execute("INSERT OR REPLACE INTO lists VALUES (?, ?)", row)

    def spend(self, what: str, mu_squared: float, max_epsilon: float) -> None:
        """Note a release with noise, before it is sent."""
        with self._open() as entries:
            entries.execute("INSERT OR IGNORE INTO spent VALUES (?, 0, 0.0)", (what,))
            change = "UPDATE spent SET releases = releases + 1, mu_squared = mu_squared + ?"
            entries.execute(f"{change} WHERE what = ?", (mu_squared, what))
            [(after,)] = entries.execute("SELECT mu_squared FROM spent WHERE what = ?", (what,))
            if max_epsilon and _epsilon(after) > max_epsilon:
                raise UserError(
                    f"The node's owner allows max-epsilon = {max_epsilon:g}, which this release of "
                    f"{what} would exceed, with all runs before.",
                    "privacy-budget",
                    limit="max-epsilon",
                )

    def ask(self, digest: str, about: str, time: str) -> None:
        """Note a run that waits for approval; the first time counts."""
        with self._open() as entries:
            entries.execute("INSERT OR IGNORE INTO asked VALUES (?, ?, ?)", (digest, about, time))

    def asked(self) -> list[tuple[str, str, str]]:
        """Digests of these runs, when each was asked first, and what it is, in this order."""
        with self._open() as entries:
            return [*entries.execute("SELECT digest, time, about FROM asked ORDER BY time, digest")]

    def decide(self, digest: str, said: tuple[str, str, str, str], signature: bytes) -> None:
        """Note a decision about a run; the latest counts.

        Parameters
        ----------
        said : the decision, its last day or nothing, the reason, and when.
        """
        with self._open() as entries:
            row = (digest, *said, signature)
            entries.execute("INSERT OR REPLACE INTO decided VALUES (?, ?, ?, ?, ?, ?)", row)

    def decision(self, digest: str) -> tuple[str, str, str, str, bytes] | None:
        """The decision about a run, as of :meth:`decide`, with its signature."""
        columns = "decision, until, because, time, signature"
        with self._open() as entries:
            rows = entries.execute(f"SELECT {columns} FROM decided WHERE digest = ?", (digest,))
            return next(iter(rows), None)

    def spent(self) -> list[str]:
        """A sentence for each account."""
        with self._open() as entries:
            rows = [*entries.execute("SELECT what, releases, mu_squared FROM spent ORDER BY what")]
        return [
            f"Spent on {what}: {releases} release(s), epsilon = {_epsilon(mu_squared):.4g} at "
            f"delta = {DELTA:g}."
            for what, releases, mu_squared in rows
        ]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            require_regular_file(self.file)
            self.file.touch(mode=0o600)
            with closing(sqlite3.connect(self.file, timeout=60)) as entries:
                entries.executescript(_TABLES)
                entries.execute("BEGIN IMMEDIATE")  # another process waits, and sees this entry
                with entries:  # undone after an error
                    yield entries
        except (OSError, sqlite3.Error) as error:
            raise OwnDataError(
                f"{self.file}, which keeps what was answered and spent, cannot be read and "
                f"written: {error}.",
                "file-not-writable",
            ) from None


# Everything that a server says on which an owner's answer in a secure sum depends, as one digest.


@dataclass(frozen=True)
class Asked:
    """What came with a request for numbers: they are computed from nothing else of the server's.

    Attributes
    ----------
    alone : records for this client alone, which others have put under masks for it.
    """

    records: Mapping[str, Arrays]
    values: Mapping[str, Any]
    alone: frozenset[str] = field(default=frozenset())

    @cached_property
    def digest(self) -> bytes:
        """32 bytes of all that every client of the sum gets alike."""
        apart = {ARRAYS, *self.alone}
        records = {name: arrays for name, arrays in self.records.items() if name not in apart}
        values = {key: value for key, value in self.values.items() if key != USED_ROUND}
        together = b"fedul-flwr asked 1" + self.model + _digest(records) + _text(values)
        return hashlib.sha256(together).digest()

    @cached_property
    def model(self) -> bytes:
        """32 bytes of the model alone."""
        return _digest({ARRAYS: self.records.get(ARRAYS, {})})


def _digest(records: Mapping[str, Arrays]) -> bytes:
    sha = hashlib.sha256(b"fedul-flwr arrays 1")
    for record in sorted(records):
        for name in sorted(records[record]):
            array = records[record][name]
            sha.update(repr((record, name, array.dtype.str, array.shape)).encode())
            sha.update(np.ascontiguousarray(array).data)
    return sha.digest()


def _text(values: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(values), sort_keys=True, default=bytes.hex).encode()


def question(
    run: int,
    setup: Mapping[str, Value],
    of: str,
    server_round: int,
    largest: float,
    asked: bytes,
) -> bytes:
    """32 bytes of all that a client's numbers in a sum are computed from, but its own."""
    common = {key: value for key, value in setup.items() if key != FORGETFUL}
    named = named_modules(json.loads(str(setup.get(SETTINGS, "{}"))))
    code = code_digest(*(name.partition(":")[0] for name in named))
    fields = {"run": run, "setup": common, "of": of, "round": server_round, "largest": largest}
    fields |= {"asked": asked, "code": code}
    return hashlib.sha256(b"fedul-flwr question 1" + _text(fields)).digest()


@cache
def code_digest(*modules: str) -> str:
    """SHA-256 of this program's sources, and of ``modules`` of somebody's own."""
    root = Path(__file__).parents[1]
    files = sorted(
        Path(folder, name)
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
        if name.endswith(".py")
    )
    files += [Path(spec.origin) for name in modules if (spec := find_spec(name)) and spec.origin]
    sha = hashlib.sha256()
    for file in files:
        name = file.relative_to(root) if file.is_relative_to(root) else file.name
        sha.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return sha.hexdigest()
