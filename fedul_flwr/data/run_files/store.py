"""Write a run's directory: configuration, environment, metrics, models, each file atomically."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import psutil
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from fedul_flwr.config.run_config import METRICS as METRICS
from fedul_flwr.config.user_files import read_object, read_text
from fedul_flwr.data.run_files.records import read_metrics
from fedul_flwr.data.safe_files import (
    PARTS,
    append_line,
    load_arrays_of,
    require_whole,
    save_arrays,
    storing,
    write_atomically,
)
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


NamedArrays = Mapping[str, NDArray[Any]]

CONFIG, ENVIRONMENT = "config.json", "environment.json"
FEDERATION, SUMMARY, ERROR = "federation.json", "summary.json", "error.txt"
BEST_MODEL = "model.safetensors"
HAS_STATE = "has_state"
"""Key in the header of ``last.safetensors``: whether a state of the strategy lies beside it."""
TRAINED_FOR = "test_prior"
"""Key of the class priors that a model is trained for, in its header."""
TEMPERATURE = "temperature"
"""Key in the header of ``model.safetensors``: by what predictions divide its logits."""
DISCLOSURES = "disclosures.json"
"""File of a run among owners: what left each of them, who sees it, and what is not protected."""
SPLIT, SPLIT_PICTURE = "split.npz", "split.png"
LABELS, MEASURES = "labels.json", "measures.json"
PERSONAL, PERSONAL_MODEL = "personal.json", "personal.safetensors"
"""Errors of a simulation's personal models, and the file of each of them."""


def state_file(round_number: int) -> str:
    """Name of the file with a strategy's state after a round."""
    return f"state-{round_number}.safetensors"


@dataclass
class RunDirectory:
    """One run's results on disk.

    Files are replaced atomically, so a reader or a resumed run sees the complete old or new file.
    A run resumes from ``last.safetensors``, whose header has its round.

    Attributes
    ----------
    check : raises an error if the directory is no longer this run's.
    """

    path: Path
    check: Callable[[], None] = lambda: None

    def remove_unfinished(self) -> None:
        """Delete half-written files of processes that were killed, see :func:`replace_file`.

        Only for who holds the directory's lock, before its clients begin.
        """
        for path in self.path.rglob(PARTS):
            if path.is_file() and not path.is_symlink():
                path.unlink(missing_ok=True)

    def write_json(self, name: str, content: Any, *, indent: int | None = 2) -> None:
        """Replace JSON file ``name``; without ``indent`` it has one line."""
        self.write_text(name, json.dumps(content, indent=indent) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """The object in JSON file ``name``; UserError if it is missing or damaged."""
        content = read_object(self.path / name)
        if content is None:
            raise UserError(f"{self.path / name} is missing.", "file-missing")
        return content

    def write_error(self, text: str) -> None:
        """Write the sentence that says why the run ended."""
        self.write_text(ERROR, text + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Replace text file ``name``."""
        write_atomically(self.path / name, text)

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Add a round's line to ``metrics.jsonl``."""
        append_line(self.path / METRICS, json.dumps(dict(line)))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Lines of ``metrics.jsonl`` in the order of their rounds."""
        return read_metrics(self.path / METRICS)

    def replace_metrics(self, lines: list[dict[str, Any]]) -> None:
        """Replace ``metrics.jsonl`` by ``lines``."""
        self.write_text(METRICS, "".join(json.dumps(line) + "\n" for line in lines))

    def save_model(self, name: str, arrays: NamedArrays, about: Mapping[str, Any]) -> None:
        """Replace model ``name``; its header gets ``about`` as JSON."""
        save_arrays(self.path / name, arrays, about)

    def load_model(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays of model ``name``, and the content of its header."""
        return load_arrays_of(self.path / name)

    def save_state(self, round_number: int, arrays: NamedArrays) -> None:
        """Save a strategy's state after ``round_number``, if it has any."""
        if arrays:
            self.save_model(state_file(round_number), arrays, {"round": round_number})

    def load_state(self, round_number: int) -> dict[str, NDArray[Any]]:
        """The state saved after ``round_number``; empty if there is none."""
        name = state_file(round_number)
        return self.load_model(name)[0] if (self.path / name).exists() else {}

    def require_whole(self) -> None:
        """Refuse files of arrays, also of clients, whose bytes are not those that were written."""
        for path in sorted(self.path.rglob("*.safetensors")):
            if not path.is_symlink():
                require_whole(path)

    def drop_states_before(self, round_number: int) -> None:
        """Delete states of earlier rounds."""
        for path in self.path.glob("state-*.safetensors"):
            if path.name != state_file(round_number):
                path.unlink()

    @property
    def plots(self) -> Path:
        """Folder of the pictures; it exists once all are drawn."""
        return self.path / "plots"

    def replace_plots(self, draw: Callable[[Path], object]) -> None:
        """Let ``draw`` fill a folder with pictures, then replace the earlier ones by it."""
        part = self.path / ".plots.part"
        try:
            for earlier in (part, self.plots):
                shutil.rmtree(earlier, ignore_errors=True)
            part.mkdir()
            draw(part)
            part.replace(self.plots)
        except Exception as error:  # of matplotlib, its fonts, the disk
            shutil.rmtree(part, ignore_errors=True)
            why = str(error).strip().rstrip(".") or type(error).__name__
            raise UserError(
                f"The run in {self.path} is complete, but not its pictures ({why}): "
                f"fedul-flwr run --resume {self.path} draws them.",
                "run-not-finished",
            ) from error

    @property
    def clients(self) -> Path:
        """Folder in which clients of a simulation store arrays between rounds."""
        return self.path / "clients"

    @property
    def exchanged(self) -> Path:
        """Folder in which the server stores its copies of the parts that clients have."""
        return self.path / "held"

    def drop_client_versions(self, round_number: int) -> None:
        """Delete old versions of clients' arrays, of rounds up to ``round_number``.

        Of each client's files NAME-ROUND.safetensors, written by the client or by the server, the
        newest one up to that round stays, because a run resumes from it, and all later ones stay.
        Clients may write at the same time.
        """
        versions: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
        pattern = "*/*-*.safetensors"
        for path in (*self.clients.glob(pattern), *self.exchanged.glob(pattern)):
            name, _, number = path.stem.rpartition("-")
            if int(number) <= round_number:
                versions.setdefault((path.parent, name), []).append((int(number), path))
        for version in versions.values():
            for _, path in sorted(version)[:-1]:
                path.unlink(missing_ok=True)

    def remove_clients(self) -> None:
        """Delete clients' state of an earlier attempt, and the server's copies."""
        shutil.rmtree(self.clients, ignore_errors=True)
        shutil.rmtree(self.exchanged, ignore_errors=True)


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


def read_run(file: Path) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """What was noted last, and the lines of ``metrics.jsonl``; both empty without a run."""
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
    lines = (read_text(Path(about["directory"]) / METRICS) or "").splitlines(keepends=True)
    return about, [json.loads(line) for line in lines if line.endswith("\n")]


def run_in_words(file: Path) -> str:
    """One line about the last run: how far it is, and how to resume it if it ended early."""
    about, lines = read_run(file)
    if not about:
        return "No run yet."
    last = lines[-1] if lines else {"clients": 0, "failures": 0}
    text = f"Run {about['directory']}: {about['state']}, {len(lines)} of {about['rounds']} rounds"
    text += f"; in the last one {last['clients']} owners, {last['failures']} failures."
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
