"""Who may write to a run's directory: one command, and the one server app that it started.

Both hold a lock while they live; the operating system releases it when a process ends in any way.
On Ray ``fedul-flwr run`` starts the server app as another process, so that there are two locks.
Plain ``flwr run`` has the server app alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from fedul_flwr.config.user_files import read_object
from fedul_flwr.data.safe_files import write_atomically
from fedul_flwr.errors import StorageError, UserError

LOCKS = ".lock"
"""Folder of the locks in a run's directory."""

Role = Literal["command", "server"]


class DirectoryLockedError(UserError):
    """A directory to which another process writes."""

    code = "run-in-use"


@dataclass(frozen=True)
class _Holder:
    """The process that holds a lock."""

    process: int
    host: str
    start: str


@contextlib.contextmanager
def locked(directory: Path, role: Role) -> Iterator[Callable[[], None]]:
    """Create ``directory`` if necessary, and let nobody else write to it within this context.

    Parameters
    ----------
    role : ``"command"`` starts a run, in this process or one below it; ``"server"`` writes its
        results.

    Yields
    ------
    A function that raises a :class:`StorageError` if the directory was deleted since.
    """
    folder = directory / LOCKS
    other: Role = "server" if role == "command" else "command"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder, role, directory):
            # Tried while one's own is held: of two processes that try, one is first.
            if not _is_ours(_holder(folder, other)):
                with _lock(folder, other, directory):
                    pass
            started = time.strftime("%Y-%m-%d %H:%M:%S")
            holder = _Holder(os.getpid(), socket.gethostname(), started)
            write_atomically(folder / f"{role}.json", json.dumps(asdict(holder)))
            mark = (folder / role).stat()

            def check() -> None:
                with contextlib.suppress(OSError):
                    if os.path.samestat((folder / role).stat(), mark):
                        return
                raise StorageError(
                    f"{directory} was deleted while the run wrote to it.", "folder-missing"
                )

            try:
                yield check
            finally:
                with contextlib.suppress(OSError):
                    (folder / f"{role}.json").unlink()
    except OSError as error:
        if error.filename is None or not str(error.filename).startswith(str(directory)):
            raise
        raise StorageError(f"Cannot write to {directory} ({error.strerror or error}).") from error


def require_unlocked(directory: Path) -> None:
    """Refuse a directory to which a run writes; it need not exist."""
    if (directory / LOCKS).is_dir():
        with locked(directory, "command"):
            pass


def lock_directory(path: Path) -> Path:
    """Create a directory ``path`` or, if it exists, with ``-2``, ``-3``, … behind its name."""
    number, candidate = 1, path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with contextlib.suppress(FileExistsError):
                candidate.mkdir()
                return candidate
            number += 1
            candidate = path.with_name(f"{path.name}-{number}")
    except OSError as error:
        raise StorageError(f"Cannot create {candidate} ({error.strerror or error}).") from error


@contextlib.contextmanager
def _lock(folder: Path, role: Role, directory: Path) -> Iterator[None]:
    lock = FileLock(folder / role)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise DirectoryLockedError(_who(directory, _holder(folder, role))) from None
    try:
        yield
    finally:
        lock.release()


def _holder(folder: Path, role: Role) -> _Holder | None:
    try:
        holder = read_object(folder / f"{role}.json") or {}
        return _Holder(**{name: holder[name] for name in _Holder.__dataclass_fields__})
    except (UserError, KeyError):
        return None


def _is_ours(holder: _Holder | None) -> bool:
    """Whether the holder of the other lock is this process, or the command that started it."""
    if holder is None or holder.host != socket.gethostname():
        return False
    return holder.process in (os.getpid(), os.getppid())


def _who(directory: Path, holder: _Holder | None) -> str:
    if holder is None:
        return f"Another process runs in {directory}: wait for its end, or name another output."
    return (
        f"Process {holder.process} on {holder.host} runs in {directory} since {holder.start}: "
        "wait for its end, or name another output."
    )
