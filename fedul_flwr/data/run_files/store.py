"""Write a run's directory: configuration, environment, metrics, models, each file atomically."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedul_flwr.config.run_config import METRICS as METRICS
from fedul_flwr.config.user_files import read_object
from fedul_flwr.data.run_files.records import read_metrics
from fedul_flwr.data.safe_files import (
    PARTS,
    append_line,
    load_arrays_of,
    save_arrays,
    write_atomically,
)
from fedul_flwr.errors import UserError


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
SPLIT, LABELS, MEASURES = "split.npz", "labels.json", "measures.json"
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
    path : of the directory.
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
        """Save a strategy's state after ``round_number``, if it has any.

        Written before that round's ``last.safetensors`` and kept until the next round's, so that
        the two always match.
        """
        if arrays:
            self.save_model(state_file(round_number), arrays, {"round": round_number})

    def load_state(self, round_number: int) -> dict[str, NDArray[Any]]:
        """The state saved after ``round_number``; empty if there is none."""
        name = state_file(round_number)
        return self.load_model(name)[0] if (self.path / name).exists() else {}

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
