"""Where a run comes from, which one goes on, and who may write to its directory."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import psutil
from filelock import FileLock, Timeout

from fedul_flwr.config.run_config import METRICS
from fedul_flwr.config.user_files import read_object
from fedul_flwr.data.run_files.records import missing_in_words, read_metrics
from fedul_flwr.data.safe_files import storing, write_atomically
from fedul_flwr.errors import StorageError, UserError


def describe_environment() -> dict[str, Any]:
    """Versions, hardware and git commit, for ``environment.json``."""
    import torch

    packages = ("fedul-flwr", "flwr", "ray", "torch", "torchvision", "numpy", "scikit-learn")
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": _processor(),
        "cpu_count": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "versions": {name: _version(name) for name in packages},
        "git_commit": git_commit(),
    }


@cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@cache
def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


SOURCE = Path(__file__).parents[3]
"""Folder that has the source; a checkout, or where the package is installed."""
DIRTY = "-dirty"
"""Ending of the commit of source that was changed."""


def git_commit() -> str | None:
    """Commit of the running source, with :data:`DIRTY` if code of it was changed or added, which
    other files of a checkout do not count as; ``None`` if it is unknown."""
    if not (SOURCE / ".git").exists():
        return None  # it may be installed within another project's repository
    return _describe_commit(SOURCE)


@cache  # what this process has imported stays as it was
def _describe_commit(root: Path) -> str | None:
    code = [str(folder.resolve()) for folder in (root / "fedul_flwr").iterdir() if folder.is_dir()]
    commands = (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "fedul_flwr", *code])
    try:
        commit, changed = (
            subprocess.run(
                ["git", *command],
                cwd=root,
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + DIRTY if changed else commit


# Which run a SuperLink has begun last: where its files are, and whether its process lives.

CURRENT_RUN = "FEDUL_CURRENT_RUN"
"""Environment variable: the file of :func:`note_run`; nothing is noted without it."""


def note_run(directory: Path, num_rounds: int, state: str) -> None:
    """Note that this process's run is ``"training"``, ``"finished"``, ``"stopped"`` or
    ``"failed"``."""
    if file := os.environ.get(CURRENT_RUN):
        process = [os.getpid(), psutil.Process().create_time()]
        about = {"directory": str(directory), "rounds": num_rounds, "state": state}
        with suppress(UserError):  # a full disk stops no run
            write_atomically(Path(file), json.dumps({**about, "process": process}))


def noted_run(file: Path) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """What was noted last, and the run's lines; both empty without a run."""
    about = read_object(file)
    if about is None:
        return {}, []
    process, started = about["process"]
    try:
        of_run = psutil.Process(process)
        # One that was killed stays until its parent, the SuperLink, asks for its exit code.
        lives = of_run.create_time() == started and of_run.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        lives = False
    if about["state"] == "training" and not lives:
        about["state"] = "died"
    return about, read_metrics(Path(about["directory"]) / METRICS)


def run_in_words(file: Path) -> str:
    """One line about the last run: how far it is, and how to resume it if it ended early."""
    about, lines = noted_run(file)
    if not about:
        return "No run yet."
    last = lines[-1] if lines else {"clients": 0, "failures": 0}
    text = f"Run {about['directory']}: {about['state']}, {len(lines)} of {about['rounds']} rounds"
    text += f"; in the last one {last['clients']} owners, {last['failures']} failures"
    text += f"{missing_in_words(last)}."
    if about["state"] in ("died", "failed", "stopped"):
        text += f" fedul-flwr run --federation … --resume {about['directory']} continues it."
    return text


# Who may write to a run's directory: one command, and the one server app that it started.

LOCKS = ".lock"
"""Folder of the locks in a run's directory."""

Role = Literal["command", "server"]


class DirectoryLockedError(UserError):
    """A directory to which another process writes."""

    code = "run-in-use"


@contextlib.contextmanager
def locked(directory: Path, role: Role) -> Iterator[Callable[[], None]]:
    """Create ``directory`` if necessary, and let nobody else write to it within this context.

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
            holder = {
                "process": os.getpid(),
                "host": socket.gethostname(),
                "start": time.strftime("%Y-%m-%d %H:%M:%S"),
            }
            write_atomically(folder / f"{role}.json", json.dumps(holder))
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
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with contextlib.suppress(FileExistsError):
                candidate.mkdir()
                return candidate
            number += 1
            candidate = path.with_name(f"{path.name}-{number}")


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


def _holder(folder: Path, role: Role) -> dict[str, Any]:
    """Process, host and start of the lock's holder; empty if they are not known."""
    try:
        return read_object(folder / f"{role}.json") or {}
    except UserError:
        return {}


def _is_ours(holder: Mapping[str, Any]) -> bool:
    """Whether the holder of the other lock is this process, or the command that started it."""
    is_here = holder.get("host") == socket.gethostname()
    return is_here and holder.get("process") in (os.getpid(), os.getppid())


def _who(directory: Path, holder: Mapping[str, Any]) -> str:
    start = f" since {holder['start']}" if "start" in holder else ""
    who = f"Process {holder.get('process')} on {holder.get('host')}" if start else "Another process"
    return f"{who} runs in {directory}{start}: wait for its end, or name another output."
