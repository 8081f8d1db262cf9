"""What an owner has answered, spent and approved, over all runs with its data: a file beside them.

A server can begin a run anew, and a restarted SuperNode has forgotten the one before. What must
hold beyond a process, and beyond a run, is therefore on the owner's disk: SQLite's journal
makes each entry whole or absent, also if two processes answer at once.

Runs that an owner approves one by one (`approve = "each-run"`) are known by their *digest*: of all
settings, columns, classes and shapes, the code that would run, what would leave the owner, and who
else takes part. Whatever of these changes makes another run. The owner's client notes it when the
server asks, and the owner's person decides (``fedul-flwr deploy runs``). A decision is signed with
the owner's key and stands in the owner's log, too.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.trusted_modules import BUILT_IN
from fedul_flwr.data.safe_files import require_regular_file
from fedul_flwr.data.standardize import MEANS, SCALES
from fedul_flwr.data.user_content import user_content
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.asked import code_digest
from fedul_flwr.federated.declared import disclosures, unprotected
from fedul_flwr.federated.messages import (
    APPROVAL,
    BECAUSE,
    DIGEST,
    FORGETFUL,
    SETTINGS,
    SETUP_BEFORE,
    WAITING,
    printable,
)
from fedul_flwr.federated.owner.log import note_decision
from fedul_flwr.secure.identities import OWNERS_FILE, Identities, Purpose, read_identities
from fedul_flwr.secure.noise import gaussian_epsilon

LEDGER = "ledger.sqlite"
"""Its file. It has a folder of its own, as SQLite writes its journal beside it."""
DELTA = 1e-5
"""δ of all epsilons here."""

_TABLES = """
CREATE TABLE IF NOT EXISTS answered (run TEXT PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS lists (question BLOB PRIMARY KEY, clients TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS groups (kind TEXT PRIMARY KEY, clients TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spent (what TEXT PRIMARY KEY, releases INTEGER, mu_squared REAL);
CREATE TABLE IF NOT EXISTS asked (digest TEXT PRIMARY KEY, about TEXT, time TEXT);
CREATE TABLE IF NOT EXISTS decided
    (digest TEXT PRIMARY KEY, decision TEXT, until TEXT, because TEXT, time TEXT, signature BLOB);
"""


def ledger_file(node: NodeConfig) -> Path | None:
    """The file in the folder ``DATA.ledger`` beside the data, unless node config ``ledger`` names
    another folder; ``None`` without data.

    Whichever folder of settings or log a node has: the same data have the same ledger.
    """
    if not node.data:
        return None
    data = Path(node.data).expanduser().resolve()
    folder = Path(node.ledger).expanduser().resolve() if node.ledger else None
    return (folder or data.with_name(f"{data.name}.ledger")) / LEDGER


def spender(node: NodeConfig) -> Callable[[str, float], None]:
    """Notes releases of a client's data, see :meth:`Ledger.spend`; not those of a simulation."""
    file = ledger_file(node)
    if file is None:
        return lambda *_: None
    return lambda what, mu_squared: Ledger(file).spend(what, mu_squared, node.max_epsilon)


def epsilon_of(mu_squared: float) -> float:
    """ε at :data:`DELTA` of releases with this μ² together."""
    return gaussian_epsilon(math.sqrt(mu_squared), DELTA) if mu_squared < math.inf else math.inf


def _in_words(epsilon: float) -> str:
    if epsilon == math.inf:
        return "without bound, as there was no noise"
    return f"epsilon = {epsilon:.4g} at delta = {DELTA:g}; less protects more"


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

    def others(
        self, question: bytes, kind: str, clients: Iterable[int], *, fixed: bool, note: bool
    ) -> list[int]:
        """Clients of an earlier sum, if it forbids one over ``clients``; else empty.

        Two sums of the same data over two groups of clients tell the part of those who are in one
        alone. Whether it is the same question the server has a say in; so with ``fixed`` all sums
        of a kind are over one group, whatever is asked, in all runs.

        Parameters
        ----------
        question : of what is summed, a digest.
        kind : of what is summed, as the stage that declares it.
        note : note it as made, in the transaction in which it is looked up.
        """
        group = sorted(clients)
        with self._open() as entries:
            bound = [
                *entries.execute("SELECT clients FROM lists WHERE question = ?", (question,)),
                *entries.execute("SELECT clients FROM groups WHERE kind = ? AND ?", (kind, fixed)),
            ]
            before = [json.loads(listed) for (listed,) in bound]
            if note and all(one == group for one in before):
                text = json.dumps(group)
                entries.execute("INSERT OR REPLACE INTO lists VALUES (?, ?)", (question, text))
                entries.execute("INSERT OR REPLACE INTO groups VALUES (?, ?)", (kind, text))
        return next((one for one in before if one != group), [])

    def groups(self) -> dict[str, list[int]]:
        """The last group of each kind of sums."""
        with self._open() as entries:
            groups = dict(entries.execute("SELECT kind, clients FROM groups ORDER BY kind"))
        return {kind: json.loads(clients) for kind, clients in groups.items()}

    def regroup(self) -> dict[str, list[int]]:
        """Let the next sums be over any clients; returns the last group of each kind."""
        groups = self.groups()
        with self._open() as entries:
            entries.execute("DELETE FROM groups")
            entries.execute("DELETE FROM lists")
        return groups

    def without(self, client: int) -> dict[str, list[int]]:
        """Let the next sums be over the clients of the last ones but for one, and nobody else.

        Both sums together tell the part of that one alone. Returns the group of each kind.
        """
        with self._open() as entries:
            for table, key in (("lists", "question"), ("groups", "kind")):
                for name, text in [*entries.execute(f"SELECT {key}, clients FROM {table}")]:
                    rest = json.dumps([one for one in json.loads(text) if one != client])
                    entries.execute(f"UPDATE {table} SET clients = ? WHERE {key} = ?", (rest, name))
        return self.groups()

    def spend(self, what: str, mu_squared: float, max_epsilon: float) -> None:
        """Note a release with noise, before it is sent."""
        with self._open() as entries:
            entries.execute("INSERT OR IGNORE INTO spent VALUES (?, 0, 0.0)", (what,))
            change = "UPDATE spent SET releases = releases + 1, mu_squared = mu_squared + ?"
            entries.execute(f"{change} WHERE what = ?", (mu_squared, what))
            [(after,)] = entries.execute("SELECT mu_squared FROM spent WHERE what = ?", (what,))
            if max_epsilon and epsilon_of(after) > max_epsilon:
                raise UserError(
                    f"The node's owner allows max-epsilon = {max_epsilon:g}, which this release of "
                    f"{what} would exceed, with all runs before.",
                    "privacy-budget",
                    limit="max-epsilon",
                )

    def mu_squared(self, what: str) -> float:
        """μ² of all releases of a kind so far."""
        with self._open() as entries:
            rows = entries.execute("SELECT mu_squared FROM spent WHERE what = ?", (what,))
            return next((float(spent) for (spent,) in rows), 0.0)

    def spent(self) -> list[str]:
        """A sentence for each account."""
        with self._open() as entries:
            rows = [*entries.execute("SELECT what, releases, mu_squared FROM spent ORDER BY what")]
        return [
            f"Privacy spent on {what} in {releases} message(s): {_in_words(epsilon_of(spent))}."
            for what, releases, spent in rows
        ]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.file.parent.mkdir(mode=0o700, exist_ok=True)
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
                f"written: {error}. Let this user write to its folder, or name another one as "
                "ledger in the node config (LEDGER in node.env).",
                "file-not-writable",
            ) from None


# Runs that an owner approves one by one

Decision = Literal["approved", "refused", "withdrawn"]
NOT_OF_A_RUN = ("output", "resume")
"""Settings that say where the server has its results, and whether it goes on."""
_APART = (SETTINGS, SETUP_BEFORE, FORGETFUL, MEANS, SCALES)
"""Values of a setup that say nothing new of what is asked: settings, whether it came before, and
what clients' sums have said."""
_SHOWN = 12
"""First digits of a digest by which people talk of it."""


class Standing(NamedTuple):
    """What is decided of a run, :data:`WAITING` if nothing is, and why."""

    state: str
    because: str = ""

    def values(self, digest: str) -> dict[str, str]:
        """What the server gets in place of a registration."""
        return {APPROVAL: self.state, DIGEST: digest, BECAUSE: self.because}


def describe_run(settings: RunConfig, node: NodeConfig, setup: Mapping[str, Any]) -> dict[str, Any]:
    """All that makes a run the same one, in a form that JSON has.

    Its keys are ``settings``, ``setup`` (columns, classes, shapes: what comes beside the settings),
    ``code`` (SHA-256 of the program and of own modules), ``sent`` (what would leave, to whom, how
    often), ``unprotected`` (what the settings leave open) and ``owners`` (numbers and digests of
    their public keys).

    Parameters
    ----------
    setup : what the server has sent in message ``setup``.
    """
    flat = {key: value for key, value in settings.to_flat().items() if key not in NOT_OF_A_RUN}
    modules = user_content(settings, only=BUILT_IN)
    return {
        "settings": flat,
        "setup": {key: value for key, value in setup.items() if key not in _APART},
        "code": {"fedul-flwr": code_digest(), **modules},
        "sent": [*map(str, disclosures(settings))],
        "unprotected": [*unprotected(settings)],
        "owners": _others(node),
    }


def digest_of(about: Mapping[str, Any]) -> str:
    """SHA-256 of a run as :func:`describe_run` has it, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two runs, a line each."""
    lines = []
    for part in ("settings", "setup", "code"):
        before, after = then[part], now[part]
        lines += [
            f"{key}: {before.get(key, 'nothing')} before, {after.get(key, 'nothing')} now"
            for key in sorted({*before, *after})
            if before.get(key) != after.get(key)
        ]
    for part in ("sent", "unprotected", "owners"):
        lines += [f"{part}, new: {one}" for one in now[part] if one not in then[part]]
        lines += [f"{part}, gone: {one}" for one in then[part] if one not in now[part]]
    return lines


def ask(settings: RunConfig, node: NodeConfig, setup: Mapping[str, Any]) -> dict[str, str]:
    """What the server is answered in place of a registration; empty if the run is approved.

    The owner's person finds the run in the ledger.
    """
    about = describe_run(settings, node, setup)
    digest = digest_of(about)
    approvals = Approvals.of_node(node)
    approvals.note(digest, about)
    standing = approvals.standing(digest)
    return {} if standing.state == "approved" else standing.values(digest)


def require_approval(settings: RunConfig, node: NodeConfig, setup: Mapping[str, Any]) -> None:
    """Refuse a message of a run that the owner has not approved, or no longer approves."""
    digest = digest_of(describe_run(settings, node, setup))
    state, because = Approvals.of_node(node).standing(digest)
    if state != "approved":
        raise UserError(
            f"The node's owner has not approved this run ({digest[:_SHOWN]}, {state})"
            + (f": {because}" if because else "."),
            "run-not-approved",
        )


class Approvals(Ledger):
    """Requests and decisions of an owner.

    Parameters
    ----------
    identities : whose key signs decisions; None leaves them unsigned.
    log : the owner's log; None without one.
    """

    def __init__(self, file: Path, identities: Identities | None, log: Path | None) -> None:
        super().__init__(file)
        self._identities, self._log = identities, log

    @classmethod
    def of_node(cls, node: NodeConfig) -> Approvals:
        """Those of the owner of a node with data."""
        file = ledger_file(node)
        assert file is not None  # `approve` needs data
        identities = read_identities(node.identity, node.partition_id)
        return cls(file, identities, Path(node.log) if node.log else None)

    def note(self, digest: str, about: Mapping[str, Any]) -> None:
        """Note that the server has asked for a run; the first time counts."""
        with self._open() as entries:
            row = (digest, json.dumps(about, sort_keys=True), _now())
            entries.execute("INSERT OR IGNORE INTO asked VALUES (?, ?, ?)", row)

    def runs(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """When the server first asked, and what, by digest; the latest last."""
        with self._open() as entries:
            rows = entries.execute("SELECT digest, time, about FROM asked ORDER BY time, digest")
            return {digest: (time, json.loads(about)) for digest, time, about in rows}

    def find(self, text: str) -> str:
        """The digest that begins with ``text``."""
        matches = [digest for digest in self.runs() if digest.startswith(text.lower())]
        if len(matches) != 1 or not text:
            raise UserError(
                f"{text!r} begins {len(matches)} digests of runs; deploy runs list has all.",
                "unknown-name",
            )
        return matches[0]

    def decide(
        self, digest: str, decision: Decision, *, until: date | None = None, because: str = ""
    ) -> None:
        """Note a decision, which replaces earlier ones."""
        last = "" if until is None else until.isoformat()
        said = (decision, last, because, _now())
        signature = b""
        if self._identities is not None:
            signature = self._identities.sign(_APPROVAL, _row(digest, said)).tobytes()
        with self._open() as entries:
            row = (digest, *said, signature)
            entries.execute("INSERT OR REPLACE INTO decided VALUES (?, ?, ?, ?, ?, ?)", row)
        if self._log is not None:
            words = decision + (f" until {last}" if last else "")
            words += f": {because}" if because else ""
            note_decision(self._log, digest, words)

    def leave(self) -> dict[str, Any]:
        """This owner's signed statement that it leaves, and lets others be summed without it."""
        if self._identities is None:
            raise UserError(_NO_KEY, "options-contradict")
        about = {"owner": self._identities.client, "date": _now()[:10]}
        signature = self._identities.sign(_LEAVE, _left(about))
        return {**about, "signature": signature.tobytes().hex()}

    def without_signer(self, statement: Mapping[str, Any]) -> tuple[int, dict[str, list[int]]]:
        """The owner of such a statement, and :meth:`Ledger.without` it.

        Raises
        ------
        UserError
            If the owner, who must be in ``owners.pub`` still, has not signed it.
        """
        if self._identities is None:
            raise UserError(_NO_KEY, "options-contradict")
        try:
            owner, signature = int(statement["owner"]), bytes.fromhex(statement["signature"])
            signed = np.frombuffer(signature, np.uint8)
            self._identities.check(owner, _LEAVE, _left(statement), signed)
        except (KeyError, TypeError, ValueError, UserError):
            raise UserError(
                "The file is no statement of `fedul-flwr deploy runs leave` by an owner in "
                f"{OWNERS_FILE}: take the list from before it left.",
                "signature-wrong",
            ) from None
        return owner, self.without(owner)

    def standing(self, digest: str) -> Standing:
        """What is decided of a run now."""
        columns = "decision, until, because, time, signature"
        with self._open() as entries:
            rows = entries.execute(f"SELECT {columns} FROM decided WHERE digest = ?", (digest,))
            row = next(iter(rows), None)
        if row is None:
            return Standing(WAITING)
        *said, signature = row
        if self._identities is not None:
            self._check(self._identities, digest, tuple(said), signature)
        decision, until, because, _ = said
        today = datetime.now(UTC).date()
        if decision == "approved" and until and today > date.fromisoformat(until):
            return Standing(WAITING, f"its approval ended on {until}")
        return Standing(decision, because)

    def _check(
        self, identities: Identities, digest: str, said: tuple[str, ...], signature: bytes
    ) -> None:
        try:
            stored = np.frombuffer(signature, np.uint8)
            identities.check(identities.client, _APPROVAL, _row(digest, said), stored)
        except UserError:
            raise OwnDataError(
                f"The decision about run {digest[:_SHOWN]} in {self.file} is not signed "
                "with this owner's key: decide again with fedul-flwr deploy runs.",
                "signature-wrong",
            ) from None


_APPROVAL, _LEAVE = (Purpose(what, 0, 0, b"") for what in ("approval", "leave"))
_NO_KEY = "A statement to leave is signed with an owner's key, and this folder has none."


def _left(statement: Mapping[str, Any]) -> bytes:
    return json.dumps([statement["owner"], statement["date"]]).encode()


def _row(digest: str, said: tuple[str, ...]) -> bytes:
    return json.dumps([digest, *said]).encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _others(node: NodeConfig) -> list[str]:
    """All owners in the node's list, with a digest of the key of each."""
    if not node.identity:
        return []
    listed = (Path(node.identity).expanduser() / OWNERS_FILE).read_text(encoding="utf-8")
    owners = (line.split() for line in listed.splitlines() if line.strip())
    return [
        printable(f"{number} {' '.join(name)} {hashlib.sha256(key.encode()).hexdigest()[:16]}")
        for number, _, key, *name in owners
    ]
