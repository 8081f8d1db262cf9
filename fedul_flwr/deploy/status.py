"""``fedul-flwr deploy status`` and ``backup``: nodes, and what a server needs to come back."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.x509 import load_pem_x509_certificate

from fedul_flwr.data.run_files.store import run_in_words
from fedul_flwr.data.safe_files import replace_file
from fedul_flwr.deploy.certificates import validity
from fedul_flwr.deploy.init import OWNERS
from fedul_flwr.deploy.runs import NODE_ENV, own_node
from fedul_flwr.engine.flower_run import FlowerProgram
from fedul_flwr.errors import UserError
from fedul_flwr.federated.nodes import read_owners
from fedul_flwr.federated.owner.ledger import Ledger, ledger_file

NODE = ".node"
"""Suffix of files in the server's ``owners/``: an owner's node id at the SuperLink, and its key, as
``deploy register`` writes them."""
LAST_RUN = "state/run.json"
"""File in the server's folder about the last run."""
OWN_CONNECTION = "here"
"""Name of the SuperLink's connection that :func:`connected` makes."""
UNREGISTERED = "unregistered"
"""State of a node whose key the SuperLink refuses for good."""
NONE = "–"


class OwnerState(NamedTuple):
    """One row: number of the client, name of its owner, its node's id and state, since when."""

    client: str
    owner: str
    node: str
    state: str
    since: str


def status(directory: Path) -> list[OwnerState]:
    """The state of every owner, and of nodes that belong to no known owner."""
    server = server_of(directory)
    nodes_of = {
        path.name.removesuffix(NODE): path.read_text().partition(" ")[0].strip()
        for path in (server / "owners").glob(f"*{NODE}")
    }
    with connected(server) as flower:
        nodes = flower.ask("supernode", "list", OWN_CONNECTION)["nodes"]
    return rows(read_owners(server / OWNERS), nodes_of, nodes)


def spent(directory: Path) -> list[str] | None:
    """What an owner has spent of its privacy, by the ledger of its data; ``None`` if the folder
    of ``deploy init`` is none of an owner."""
    if not (directory / NODE_ENV).is_file():
        return None
    file = ledger_file(own_node(directory))
    lines = Ledger(file).spent() if file and file.exists() else []
    return lines or ["Nothing that max-epsilon limits has been sent yet."]


def state_of_server(directory: Path) -> list[str]:
    """Lines about its last run, and until when its certificates are valid, if it has some."""
    server = server_of(directory)
    files = {"server": server / "server.pem", "authority": server / "ca.pem"}
    return [
        run_in_words(server / LAST_RUN),
        *(
            f"Certificate of the {name}: {validity(load_pem_x509_certificate(file.read_bytes()))}"
            for name, file in files.items()
            if file.is_file()
        ),
    ]


def server_of(directory: Path) -> Path:
    """The server's folder in the working folder of ``deploy init``, or itself; UserError if not."""
    server = directory / "server" if (directory / "server").is_dir() else directory
    if not (server / OWNERS).is_file():
        raise UserError(
            f"{directory} is no folder of a consortium's server: {OWNERS}, which deploy init "
            "writes into server/, is missing.",
            "folder-missing",
        )
    return server


def rows(
    owners: Mapping[str, int], nodes_of: Mapping[str, str], listed: Iterable[Mapping[str, Any]]
) -> list[OwnerState]:
    """Join owners and nodes."""
    nodes: dict[str | None, Mapping[str, Any]] = {str(node["node-id"]): node for node in listed}
    states = [
        OwnerState(
            str(number), name, nodes_of.get(name, NONE), *_state(nodes.get(nodes_of.get(name)))
        )
        for name, number in owners.items()
    ]
    shown = {row.node for row in states}
    states += [
        OwnerState(NONE, NONE, str(number), *_state(node))
        for number, node in nodes.items()
        if number not in shown and node["status"] != UNREGISTERED
    ]
    return states


def _state(node: Mapping[str, Any] | None) -> tuple[str, str]:
    if node is None or node["status"] == UNREGISTERED:
        return "not registered", NONE
    if node["status"] == "registered":
        return "registered, never connected", NONE
    return str(node["status"]), str(node.get(f"{node['status']}-at", NONE))


@contextmanager
def connected(server: Path) -> Iterator[FlowerProgram]:
    """Flower's program with the SuperLink of this folder as connection :data:`OWN_CONNECTION`."""
    with tempfile.TemporaryDirectory(prefix="fedul-status-") as folder:
        home = Path(folder)
        script = [str(server / "connection.sh"), OWN_CONNECTION]
        # Whatever the user's settings of Flower have.
        environment = {**os.environ, "FLWR_HOME": folder}
        entry = subprocess.run(script, capture_output=True, text=True, check=False, env=environment)
        if entry.returncode:
            raise UserError(f"{script[0]} failed: {entry.stderr.strip()}", "flower-failed")
        (home / "config.toml").write_text(entry.stdout, encoding="utf-8")
        yield FlowerProgram(environment)


# ``fedul-flwr deploy backup``: what a consortium's server needs to come back, in one file.

DATABASE = "state/superlink.db"
"""The SuperLink's database, in the server's folder: registered keys, and runs."""


def backup(root: Path, file: Path) -> None:
    """Write the server's folder as ``server/`` into a new ``.tar.gz`` for its user's eyes alone.

    The SuperLink may run: its database is read as a whole. The apps of runs, the authority's key
    and owners' folders stay out. Raises a UserError if the file is there or cannot be written.
    """
    server = server_of(root)
    if file.exists():
        raise UserError(f"{file} exists: name a new file, or delete it.", "file-exists")
    if file.is_relative_to(server):
        raise UserError(
            f"{file} lies in the folder that it would hold: name one elsewhere.", "path-not-usable"
        )

    def write(part: Path) -> None:
        part.touch(mode=0o600)
        with (
            tempfile.TemporaryDirectory(prefix="fedul-backup-") as scratch,
            tarfile.open(part, "w:gz") as archive,
        ):
            for entry in [server, *sorted(server.rglob("*"))]:
                name = entry.relative_to(server)
                if len(name.parts) < 2 or name.parts[0] not in ("flower", "state"):
                    with suppress(FileNotFoundError):  # of a run
                        archive.add(entry, f"server/{name}", recursive=False)
            if (server / DATABASE).exists():
                with (
                    closing(sqlite3.connect(server / DATABASE)) as there,
                    closing(sqlite3.connect(copy := Path(scratch) / "copy.db")) as here,
                ):
                    there.backup(here)
                archive.add(copy, f"server/{DATABASE}")

    try:
        replace_file(file, write)
    except sqlite3.Error as error:
        raise UserError(f"{server / DATABASE} cannot be copied: {error}.", "file-damaged") from None
