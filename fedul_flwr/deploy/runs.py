"""``fedul-flwr deploy runs``: an owner's decisions on runs, in the folder of ``deploy init``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedul_flwr.errors import UserError
from fedul_flwr.federated.owner.ledger import Approvals, Decision, changes
from fedul_flwr.secure.identities import OWNERS_FILE, PRIVATE_FILE, read_identities

_LEDGERS = "*.ledger"


def approvals_of(directory: Path) -> Approvals:
    """Requests and decisions in an owner's folder, signed with its key if it has one."""
    ledgers = sorted(directory.rglob(_LEDGERS))
    if len(ledgers) != 1:
        raise UserError(
            f"{directory} has {len(ledgers)} files {_LEDGERS}, which an owner's client writes when "
            "the server first asks it: name the owner's folder, or the folder of its LOG.",
            "folder-missing",
        )
    log = ledgers[0].with_suffix(".csv")
    identities = None
    if (directory / PRIVATE_FILE).exists() and (directory / OWNERS_FILE).exists():
        identities = read_identities(str(directory), _own_number(directory))
    return Approvals(ledgers[0], identities, log if log.exists() else None)


def _own_number(directory: Path) -> int:
    """Number of the owner whose private key is in the folder; −1 if it is not in the list."""
    mine = load_ssh_private_key((directory / PRIVATE_FILE).read_bytes(), password=None).public_key()
    for line in (directory / OWNERS_FILE).read_bytes().splitlines():
        number, _, key = line.partition(b" ")
        if key and load_ssh_public_key(key) == mine:
            return int(number)
    return -1


def listed(approvals: Approvals) -> Iterator[str]:
    """A line for each run: when it was asked, the digest, the method, what is decided."""
    runs = approvals.runs()
    if not runs:
        yield "The server has not asked for a run yet that needs approval."
    for digest, (asked, about) in runs.items():
        state, because = approvals.standing(digest)
        why = f": {because}" if because else ""
        yield f"{asked}  {digest[:12]}  {about['settings']['method']}  {state}{why}"


def shown(approvals: Approvals, text: str) -> Iterator[str]:
    """All about a run, and how it differs from the last one that was approved."""
    runs, digest = approvals.runs(), approvals.find(text)
    asked, about = runs[digest]
    state, because = approvals.standing(digest)
    yield f"Run {digest}, asked for at {asked}: {state}{f': {because}' if because else ''}"
    yield "Settings:"
    yield from (f"  {key} = {value!r}" for key, value in about["settings"].items())
    yield "Columns, classes and shapes:"
    yield from (f"  {key} = {value}" for key, value in about["setup"].items())
    yield "Code, SHA-256:"
    yield from (f"  {key} {value}" for key, value in about["code"].items())
    yield "Would leave this machine:"
    yield from (f"  {one}" for one in about["sent"])
    yield "Owners who may take part, with a digest of each one's key:"
    yield from (f"  {one}" for one in about["owners"] or ["not known: node config has no identity"])
    before = [one for one in runs if one != digest and approvals.standing(one).state == "approved"]
    if before:
        yield f"Differs from run {before[-1][:12]}, which is approved, in:"
        yield from (f"  {line}" for line in changes(runs[before[-1]][1], about))


_TELLS = {
    "SummedUpdates": "what it has learned in a round, near to exactly",
    "Heads": "sums of its points' features by class, which of few points tell the points",
    "ColumnScaling": "mean and variance of each of its columns",
    "ClassPriors": "how many points of each class it has",
    "HeldOut": "the loss of a model on its points",
}
"""What two groups tell of an owner who is in one alone, by the kind of sums."""


def regrouped(approvals: Approvals) -> Iterator[str]:
    """Let the next secure sums be over another group of owners; say what that can tell of whom."""
    groups = approvals.regroup()
    for kind, clients in groups.items():
        part = _TELLS.get(kind, "its part")
        yield (
            f"{kind}: summed over owners {', '.join(map(str, clients))} until now. Of an owner who "
            f"is in only one of this group and the next, the server can compute {part}."
        )
    if not groups:
        yield "Nothing of this owner's data was in a secure sum yet."


def decide(
    approvals: Approvals,
    text: str,
    decision: Decision,
    *,
    until: date | None = None,
    because: str = "",
) -> Iterator[str]:
    """Note a decision on a run."""
    digest = approvals.find(text)
    approvals.decide(digest, decision, until=until, because=because)
    yield f"Run {digest[:12]} is {decision}{f' until {until}' if until else ''}."
