"""``fedul-flwr deploy backup``: what a consortium's server needs to come back, in one file."""

from __future__ import annotations

import sqlite3
import tarfile
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from fedul_flwr.data.safe_files import replace_file
from fedul_flwr.deploy.status import server_of
from fedul_flwr.errors import UserError

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
