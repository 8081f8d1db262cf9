"""``fedul-flwr deploy backup`` and ``restore``: what a consortium's server needs to come back."""

from __future__ import annotations

import sqlite3
import tarfile
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from fedul_flwr.config.user_files import reason, regular_file
from fedul_flwr.data.safe_files import replace_file
from fedul_flwr.deploy.init import ABOUT
from fedul_flwr.deploy.status import server_of
from fedul_flwr.errors import UserError

DATABASE = "state/superlink.db"
"""The SuperLink's database, in the server's folder: registered keys, and runs."""
_LEFT_OUT = ("flower", "state")
"""Folders of the server that are not copied: apps of runs, and the database, which is read as a
whole while it is written to."""


def backup(root: Path, file: Path) -> None:
    """Write the server's folder with all keys into one new file that its user alone can read.

    The SuperLink may run meanwhile. The authority's key and owners' folders are not in it. Raises a
    UserError if the file exists, lies in that folder or cannot be written.
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
            for entry in sorted(server.rglob("*")):
                name = entry.relative_to(server)
                if name.parts[0] not in _LEFT_OUT:
                    with suppress(FileNotFoundError):  # of a run
                        archive.add(entry, str(name), recursive=False)
            if (server / DATABASE).exists():
                with (
                    closing(sqlite3.connect(server / DATABASE)) as there,
                    closing(sqlite3.connect(copy := Path(scratch) / "copy.db")) as here,
                ):
                    there.backup(here)
                archive.add(copy, DATABASE)

    try:
        replace_file(file, write)
    except sqlite3.Error as error:
        raise UserError(f"{server / DATABASE} cannot be copied: {error}.", "file-damaged") from None


def restore(file: Path, root: Path) -> None:
    """Write the server's folder of a backup as ``server/`` into a folder that has none.

    Raises a UserError if it has one, the file is no backup, or nothing can be written.
    """
    server = root / "server"
    if server.exists():
        raise UserError(
            f"{server} exists: name another folder, nothing is overwritten.", "file-exists"
        )
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=root) as scratch:
            draft = Path(scratch) / "server"
            with tarfile.open(regular_file(file), "r:gz") as archive:
                archive.extractall(draft, filter="data")
            if not (draft / ABOUT).is_file():
                raise UserError(f"{file} is no file of deploy backup.", "file-damaged")
            for name in _LEFT_OUT:
                (draft / name).mkdir(mode=0o700, exist_ok=True)
            draft.chmod(0o700)
            draft.rename(server)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise UserError(
            f"{file} cannot be restored to {server}: {reason(error)}.", "file-damaged"
        ) from None
