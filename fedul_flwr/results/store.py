"""Write a run's directory: configuration, metrics, models; every file is replaced atomically."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedul_flwr.errors import UserError
from fedul_flwr.results.records import write_atomically

NamedArrays = Mapping[str, NDArray[Any]]

CONFIG, ENVIRONMENT, METRICS = "config.json", "environment.json", "metrics.jsonl"
FEDERATION, SUMMARY, ERROR = "federation.json", "summary.json", "error.txt"
BEST_MODEL = "model.safetensors"
SPLIT, LABELS = "split.npz", "labels.json"


class RunDirectory:
    """One run's results on disk.

    Files are replaced atomically, so a reader or a resumed run sees the complete old or new file.
    A run resumes from ``last.safetensors``, whose header has its round.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Create the directory if necessary; delete the error of an earlier attempt."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / ERROR).unlink(missing_ok=True)
        except OSError as err:
            raise UserError(f"Cannot write to {self.path} ({err.strerror or err}).") from err

    def write_json(self, name: str, content: Any, *, indent: int | None = 2) -> None:
        """Replace JSON file ``name``; without ``indent`` it has one line."""
        self._replace(name, json.dumps(content, indent=indent) + "\n")

    def read_json(self, name: str) -> Any:
        """Content of JSON file ``name``."""
        return json.loads((self.path / name).read_text())

    def write_error(self, text: str) -> None:
        """Write the sentence that says why the run ended."""
        self._replace(ERROR, text + "\n")

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Add a round's line to ``metrics.jsonl``."""
        with (self.path / METRICS).open("a") as file:
            file.write(json.dumps(dict(line)) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Complete lines of ``metrics.jsonl``."""
        path = self.path / METRICS
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def keep_metrics(self, lines: list[dict[str, Any]]) -> None:
        """Replace ``metrics.jsonl`` by ``lines``."""
        self._replace(METRICS, "".join(json.dumps(line) + "\n" for line in lines))

    def save_model(self, name: str, arrays: NamedArrays, about: Mapping[str, Any]) -> None:
        """Replace model ``name``; its header gets ``about`` as JSON."""
        partial = self.path / f".{name}.partial"
        # (np.ascontiguousarray would turn scalars into vectors.)
        tensors = {key: np.asarray(array, order="C") for key, array in arrays.items()}
        save_file(tensors, partial, metadata={"fedul": json.dumps(dict(about))})
        partial.replace(self.path / name)

    def load_model(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays of model ``name``, and the content of its header."""
        path = self.path / name
        try:
            arrays = load_file(path)
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        except (OSError, ValueError) as err:
            raise UserError(f"{path} is missing or damaged.") from err
        return arrays, json.loads(header.get("__metadata__", {}).get("fedul", "{}"))

    def save_state(self, round_number: int, arrays: NamedArrays) -> None:
        """Save a strategy's state after ``round_number``, if it has any.

        Written before that round's ``last.safetensors`` and kept until the next round's, so that
        the two always match.
        """
        if arrays:
            self.save_model(f"state-{round_number}.safetensors", arrays, {"round": round_number})

    def load_state(self, round_number: int) -> dict[str, NDArray[Any]]:
        """The state saved after ``round_number``; empty if there is none."""
        name = f"state-{round_number}.safetensors"
        return self.load_model(name)[0] if (self.path / name).exists() else {}

    def drop_states_before(self, round_number: int) -> None:
        """Delete states of earlier rounds."""
        for path in self.path.glob("state-*.safetensors"):
            if path.name != f"state-{round_number}.safetensors":
                path.unlink()

    @property
    def clients(self) -> Path:
        """Folder in which clients of a simulation store arrays between rounds."""
        return self.path / "clients"

    @property
    def held(self) -> Path:
        """Folder in which the server stores its copies of the parts that clients have."""
        return self.path / "held"

    def drop_client_versions(self, round_number: int) -> None:
        """Delete old versions of clients' arrays, of rounds up to ``round_number``.

        Of each client's files NAME-ROUND.safetensors, written by the client or by the server, the
        newest one up to that round stays, because a run resumes from it, and all later ones stay.
        Clients may write at the same time.
        """
        versions: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
        kept = "*/*-*.safetensors"
        for path in (*self.clients.glob(kept), *self.held.glob(kept)):
            name, _, number = path.stem.rpartition("-")
            if int(number) <= round_number:
                versions.setdefault((path.parent, name), []).append((int(number), path))
        for known in versions.values():
            for _, path in sorted(known)[:-1]:
                path.unlink(missing_ok=True)

    def forget_clients(self) -> None:
        """Delete clients' state of an earlier attempt, and the server's copies."""
        shutil.rmtree(self.clients, ignore_errors=True)
        shutil.rmtree(self.held, ignore_errors=True)

    def _replace(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text)
