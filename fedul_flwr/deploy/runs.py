"""``fedul-flwr deploy runs``: an owner's decisions on runs, in the folder of ``deploy init``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedul_flwr.config.node_config import NodeConfig, OwnerLimits
from fedul_flwr.config.run_config import parse_flat
from fedul_flwr.config.user_files import read_object
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import UserError
from fedul_flwr.federated.flower_internals import parse_config_args
from fedul_flwr.federated.owner.ledger import Approvals, Decision, changes, ledger_file
from fedul_flwr.secure.identities import OWNERS_FILE, PRIVATE_FILE

NODE_ENV = "node.env"
"""File of an owner's folder with its settings."""


def own_node(path: Path) -> NodeConfig:
    """The node config of an owner: of its folder of ``deploy init``, or of a .toml file."""
    if path.is_file():
        return NodeConfig.parse(dict(parse_config_args([str(path)])))
    try:
        text = (path / NODE_ENV).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(
            f"{path / NODE_ENV} cannot be read: {error.strerror}. Name the owner's folder that "
            "deploy init made, or a .toml file with its node config.",
            "folder-missing",
        ) from None
    words = shlex.split(text, comments=True)
    values = dict(word.split("=", 1) for word in words if "=" in word)
    if not values.get("DATA"):
        raise UserError(f"DATA in {path / NODE_ENV} is empty.", "folder-missing")
    node = dict(parse_config_args([values.get("LIMITS") or ""]))
    node |= {"data": values["DATA"], "ledger": values.get("LEDGER", "")}
    node["log"] = values.get("LOG") or str(path / "log" / "messages.csv")
    if (path / PRIVATE_FILE).exists() and (path / OWNERS_FILE).exists():
        node |= {"identity": str(path), "partition-id": _own_number(path)}
    return NodeConfig.parse(node)


def approvals_of(path: Path) -> Approvals:
    """Requests and decisions of an owner, signed with its key if it has one."""
    node = own_node(path)
    if (file := ledger_file(node)) is None or not file.exists():
        raise UserError(
            f"There is no ledger {file} yet: an owner's client writes it when the server first "
            "asks for something of its data.",
            "folder-missing",
        )
    return Approvals.of_node(node)


def _own_number(directory: Path) -> int:
    """Number of the owner whose private key is in the folder."""
    mine = load_ssh_private_key((directory / PRIVATE_FILE).read_bytes(), password=None).public_key()
    for line in (directory / OWNERS_FILE).read_bytes().splitlines():
        number, _, key = line.partition(b" ")
        if key and load_ssh_public_key(key) == mine:
            return int(number)
    raise UserError(
        f"{directory / PRIVATE_FILE} is the key of nobody in {OWNERS_FILE}.", "key-file-wrong"
    )


def listed(approvals: Approvals) -> Iterator[str]:
    """A line for each run: when it was asked, the digest, the method, what is decided."""
    runs = approvals.runs()
    if not runs:
        yield "The server has not asked for a run yet that needs approval."
    for digest, (asked, about) in runs.items():
        state, because = approvals.standing(digest)
        why = f": {because}" if because else ""
        yield f"{asked}  {digest[:12]}  {about['settings']['method']}  {state}{why}"


def shown(approvals: Approvals, text: str, *, whole: bool = False) -> Iterator[str]:
    """What a person decides on, on one screen: purpose, columns, what leaves, to whom, and where it
    protects less than the last run that was approved; with ``whole`` all that makes the run."""
    runs, digest = approvals.runs(), approvals.find(text)
    asked, about = runs[digest]
    flat, setup = about["settings"], about["setup"]
    state, because = approvals.standing(digest)
    yield f"Run {digest}, asked for at {asked}: {state}{f': {because}' if because else ''}"
    yield f"Purpose: {flat['study.title'] or 'not said (study.title)'}"
    yield f"Contact: {flat['study.contact'] or 'not said (study.contact)'}"
    yield f"Method: {flat['method']}, {flat['num-rounds']} round(s)"
    yield f"Learns from: {_points_of(setup)}"
    yield "Would leave this machine:"
    yield from (f"  {one}" for one in about["sent"])
    yield "Not protected:"
    yield from (f"  {one}" for one in about["unprotected"])
    yield "Owners who may take part, with a digest of each one's key:"
    yield from (f"  {one}" for one in about["owners"] or ["not known: node config has no identity"])
    before = [one for one in runs if one != digest and approvals.standing(one).state == "approved"]
    if before:
        last = runs[before[-1]][1]
        less = protects_less(last, about)
        yield (
            f"PROTECTS LESS than run {before[-1][:12]}, which is approved:"
            if less
            else (f"Protects no less than run {before[-1][:12]}, which is approved.")
        )
        yield from (f"  {line}" for line in less)
        yield "Differs from it in:"
        yield from (f"  {line}" for line in changes(last, about))
    if not whole:
        yield f"--all shows its {len(flat)} settings, the setup, and digests of the code."
        return
    yield "Settings:"
    yield from (f"  {key} = {value!r}" for key, value in flat.items())
    yield "Columns, classes and shapes:"
    yield from (f"  {key} = {value}" for key, value in setup.items())
    yield "Code, SHA-256:"
    yield from (f"  {key} {value}" for key, value in about["code"].items())


def _points_of(setup: Mapping[str, Any]) -> str:
    """What a run reads of points, in words: columns by name, or their shape; and classes."""
    parts = []
    if text := setup.get("columns"):
        columns = (column["name"] for column in json.loads(text)["columns"])
        parts.append(f"columns {', '.join(columns)}")
    elif shape := setup.get("input-shape"):
        parts.append(f"points of shape {'x'.join(map(str, shape))}")
    if names := setup.get("class-names"):
        parts.append(f"classes {', '.join(names)}")
    return "; ".join(parts) or "not said"


def protects_less(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In what a run protects an owner less than an earlier one, a line each.

    That is what the strictest limits that the earlier one keeps would refuse, what leaves beside
    what left then, and what only now is not protected.
    """
    try:
        limits = OwnerLimits.kept_by(parse_flat(then["settings"]))
        lines = limits.broken_by(parse_flat(now["settings"]))
    except UserError:  # of a module that is not there any more
        lines = ["its settings, of which this program cannot tell: read what differs"]
    new = [one for key in ("unprotected", "sent") for one in now[key] if one not in then[key]]
    return list(dict.fromkeys([*lines, *new]))


_TELLS = {
    "SummedUpdates": "what it has learned in a round, near to exactly",
    "Heads": "sums of its points' features by class, which of few points tell the points",
    "ColumnScaling": "mean and variance of each of its columns",
    "ClassPriors": "how many points of each class it has",
    "HeldOut": "the loss of a model on its points",
    "KnowsError": "how often the model says each class of its points, by class",
}
"""What two groups tell of an owner who is in one alone, by the kind of sums."""


def leave(approvals: Approvals, output: Path) -> Iterator[str]:
    """Write the owner's statement that it leaves; say what the server can then compute of it."""
    if output.exists():
        raise UserError(f"{output} exists: name a new file, or delete it.", "file-exists")
    statement = approvals.leave()
    write_atomically(output, json.dumps(statement, indent=1) + "\n")
    yield (
        f"{output}: owner {statement['owner']} leaves, and lets the others be summed without it. "
        "A server that has kept the sums with this owner can subtract: it then has of this owner "
        "alone"
    )
    yield from (f"  {_TELLS.get(kind, 'its part')}" for kind in approvals.groups())
    yield "Send the file to the others, if you agree. Nothing else lets them be summed so."


def regrouped(approvals: Approvals, statement: Path | None = None) -> Iterator[str]:
    """Let the next secure sums be over another group of owners; say what that can tell of whom.

    Parameters
    ----------
    statement : of an owner who leaves; the next group is then the last one without that owner.
    """
    if statement is not None:
        owner, groups = approvals.without_signer(read_object(statement) or {})
        for kind, clients in groups.items():
            yield f"{kind}: summed over owners {', '.join(map(str, clients))} from now on."
        yield f"Owner {owner} has signed that the server may compute its part in earlier sums."
        return
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
