"""Runs that an owner approves one by one (`approve = "each-run"`): what is asked, what was decided.

A run is known by its *digest*: of all its settings, the code that would run, what would leave the
owner, and who else takes part. Whatever of these changes makes another run. The owner's client
notes it when the server asks, and the owner's person decides (``fedul-flwr deploy runs``). Both are
in the owner's ledger; a decision is signed with the owner's key and stands in the owner's log, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.trusted_modules import BUILT_IN
from fedul_flwr.data.user_content import user_content
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.disclosure import disclosures, note_decision
from fedul_flwr.federated.ledger import Ledger, code_digest, ledger_file
from fedul_flwr.federated.messages import APPROVAL, BECAUSE, DIGEST, WAITING, printable
from fedul_flwr.secure.identities import OWNERS_FILE, Identities, Purpose, read_identities

Decision = Literal["approved", "refused", "withdrawn"]
NOT_OF_A_RUN = ("output", "resume")
"""Settings that say where the server has its results, and whether it goes on."""
_SHOWN = 12
"""First digits of a digest by which people talk of it."""


class Standing(NamedTuple):
    """What is decided of a run, :data:`WAITING` if nothing is, and why."""

    state: str
    because: str = ""

    def values(self, digest: str) -> dict[str, str]:
        """What the server gets in place of a registration."""
        return {APPROVAL: self.state, DIGEST: digest, BECAUSE: self.because}


def describe_run(settings: RunConfig, node: NodeConfig) -> dict[str, Any]:
    """All that makes a run the same one, in a form that JSON has.

    Its keys are ``settings``, ``code`` (SHA-256 of the program and of own modules), ``sent`` (what
    would leave, to whom, how often) and ``owners`` (numbers and digests of their public keys).
    """
    flat = {key: value for key, value in settings.to_flat().items() if key not in NOT_OF_A_RUN}
    modules = user_content(settings, only=BUILT_IN)
    return {
        "settings": flat,
        "code": {"fedul-flwr": code_digest(), **modules},
        "sent": [f"{one.what}: to {one.reader}; {one.often}" for one in disclosures(settings)],
        "owners": _others(node),
    }


def digest_of(about: Mapping[str, Any]) -> str:
    """SHA-256 of a run as :func:`describe_run` has it, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two runs, a line each."""
    lines = []
    for part in ("settings", "code"):
        before, after = then[part], now[part]
        lines += [
            f"{key}: {before.get(key, 'nothing')} before, {after.get(key, 'nothing')} now"
            for key in sorted({*before, *after})
            if before.get(key) != after.get(key)
        ]
    for part in ("sent", "owners"):
        lines += [f"{part}, new: {one}" for one in now[part] if one not in then[part]]
        lines += [f"{part}, gone: {one}" for one in then[part] if one not in now[part]]
    return lines


def ask(settings: RunConfig, node: NodeConfig) -> dict[str, str]:
    """What the server is answered in place of a registration; empty if the run is approved.

    The owner's person finds the run in the ledger.
    """
    about = describe_run(settings, node)
    digest = digest_of(about)
    approvals = Approvals.of_node(node)
    approvals.note(digest, about)
    standing = approvals.standing(digest)
    return {} if standing.state == "approved" else standing.values(digest)


def require_approval(settings: RunConfig, node: NodeConfig) -> None:
    """Refuse a message of a run that the owner has not approved, or no longer approves."""
    digest = digest_of(describe_run(settings, node))
    state, because = Approvals.of_node(node).standing(digest)
    if state != "approved":
        raise UserError(
            f"The node's owner has not approved this run ({digest[:_SHOWN]}, {state})"
            + (f": {because}" if because else "."),
            "run-not-approved",
        )


@dataclass(frozen=True)
class Approvals:
    """Requests and decisions of an owner.

    Attributes
    ----------
    ledger : the owner's.
    identities : whose key signs decisions; None leaves them unsigned.
    log : the owner's log; None without one.
    """

    ledger: Ledger
    identities: Identities | None = None
    log: Path | None = None

    @classmethod
    def of_node(cls, node: NodeConfig) -> Approvals:
        """Those of the owner of a node with data."""
        file = ledger_file(node)
        assert file is not None  # `approve` needs data
        return cls(
            Ledger(file),
            read_identities(node.identity, node.partition_id),
            Path(node.log) if node.log else None,
        )

    def note(self, digest: str, about: Mapping[str, Any]) -> None:
        """Note that the server has asked for a run."""
        self.ledger.ask(digest, json.dumps(about, sort_keys=True), _now())

    def runs(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """When the server first asked, and what, by digest; the latest last."""
        return {digest: (asked, json.loads(about)) for digest, asked, about in self.ledger.asked()}

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
        self.ledger.decide(digest, said, self._signed(digest, said))
        if self.log is not None:
            words = decision + (f" until {last}" if last else "")
            words += f": {because}" if because else ""
            note_decision(self.log, digest, words)

    def standing(self, digest: str) -> Standing:
        """What is decided of a run now."""
        row = self.ledger.decision(digest)
        if row is None:
            return Standing(WAITING)
        *said, signature = row
        if self.identities is not None:
            self._check(digest, tuple(said), signature)
        decision, until, because, _ = said
        today = datetime.now(UTC).date()
        if decision == "approved" and until and today > date.fromisoformat(until):
            return Standing(WAITING, f"its approval ended on {until}")
        return Standing(decision, because)

    def _signed(self, digest: str, said: tuple[str, ...]) -> bytes:
        if self.identities is None:
            return b""
        return self.identities.sign(_PURPOSE, _text(digest, said)).tobytes()

    def _check(self, digest: str, said: tuple[str, ...], signature: bytes) -> None:
        assert self.identities is not None
        try:
            client, stored = self.identities.client, np.frombuffer(signature, np.uint8)
            self.identities.check(client, _PURPOSE, _text(digest, said), stored)
        except UserError:
            raise OwnDataError(
                f"The decision about run {digest[:_SHOWN]} in {self.ledger.file} is not signed "
                "with this owner's key: decide again with fedul-flwr deploy runs.",
                "signature-wrong",
            ) from None


_PURPOSE = Purpose("approval", 0, 0, b"")


def _text(digest: str, said: tuple[str, ...]) -> bytes:
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
