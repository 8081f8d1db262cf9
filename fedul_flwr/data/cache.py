"""Decoded data on disk: built once, then memory-mapped by every process."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedul_flwr.config.user_files import reason
from fedul_flwr.errors import UserError

IN_MEMORY = "given"
"""Folder of data that a program gave in memory."""
NAME = "data"
"""Name of the folder of such data, which titles show."""
NETWORKS = "networks"
KINDS = (IN_MEMORY, "owned", "sources", "splits", NETWORKS)
"""Folders of the cache; that of networks holds facts about them, and no data."""
FORMAT_VERSION = 5
"""Part of every key: increase it whenever the format of the cached files changes, or values that
were decoded wrongly."""


def cache_directory() -> Path:
    """Return the folder for decoded data: ``$FEDUL_CACHE``, else ``~/.cache/fedul-flwr``."""
    named = os.environ.get("FEDUL_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "fedul-flwr"


def cache_key(identity: object, files: Iterable[Path] = ()) -> str:
    """Return a folder name for data built from ``identity`` (JSON values) and ``files``."""
    digest = hashlib.sha256(json.dumps([FORMAT_VERSION, identity]).encode())
    for file in files:
        try:
            status = file.stat()
        except OSError as error:  # a link to nothing
            raise UserError(
                f"{file} cannot be read: {reason(error)}.", "file-not-readable"
            ) from error
        line = f"\0{file}\0{status.st_size}\0{status.st_mtime_ns}"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()[:24]


def build_once(directory: Path, build: Callable[[Path], None], *, private: bool = False) -> Path:
    """Return ``directory``; build it first if it does not exist.

    ``build`` fills an empty folder, which is renamed to ``directory`` once it is complete. Of
    several processes one builds while the others wait; leftovers of an interrupted build are
    removed by the next one. Only this user can open a ``private`` folder.
    """
    if directory.is_dir():
        return directory
    from filelock import FileLock  # only needed to build

    partial = directory.with_name(directory.name + ".partial")
    with _writing(directory.parent):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(directory.with_name(directory.name + ".lock")):
            if directory.is_dir():
                return directory
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700 if private else 0o777)
            try:
                build(partial)
                # Atomic: a reader sees the whole folder or none.
                partial.replace(directory)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return directory


def build_by_content(kind: str, write: Callable[[Path], None]) -> Path:
    """A private folder of this kind with the files that ``write`` puts into an empty one.

    It is named by their content, so that the same data are kept once.
    """
    root = cache_directory() / kind
    with _writing(root):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="writing-", dir=root) as writing:
            written = Path(writing) / NAME
            written.mkdir()
            write(written)
            files = sorted(path for path in written.rglob("*") if path.is_file())
            content = [[str(file.relative_to(written)), _digest(file)] for file in files]

            def build(folder: Path) -> None:
                written.rename(folder / NAME)

            return build_once(root / cache_key(content), build, private=True) / NAME


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Cannot write decoded data to {folder} ({error.strerror or error}); "
            "set FEDUL_CACHE to a folder that is writable and has room.",
            "file-not-writable",
        ) from error


class CacheUse(NamedTuple):
    """Number of decoded data sets and splits in the cache, and size of all that is cached."""

    entries: int
    num_bytes: int


def measure_cache() -> CacheUse:
    """Number and size of this user's cached data."""
    entries = list(_entries())
    files = (file for entry in entries for file in entry.rglob("*") if file.is_file())
    data = [entry for entry in entries if entry.parent.name != NETWORKS]
    return CacheUse(len(data), sum(file.stat().st_size for file in files))


def clear_cache() -> CacheUse:
    """Delete all cached data; returns what was deleted. A run that is using them goes on."""
    use = measure_cache()
    try:
        for entry in _entries():
            shutil.rmtree(entry)
    except OSError as error:
        raise UserError(
            f"Cannot delete {error.filename}: {error.strerror or error}.", "file-not-writable"
        ) from error
    return use


def _entries() -> Iterator[Path]:
    """Complete folders of the cache, and nothing else that may lie beside them."""
    for kind in KINDS:
        folder = cache_directory() / kind
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if re.fullmatch(r"[0-9a-f]{24}(-[a-z]+)?", path.name) and not path.is_symlink():
                yield path
