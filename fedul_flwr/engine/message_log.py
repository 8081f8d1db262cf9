"""Message logs: all messages of a simulation on disk, to check what the server and clients saw.

``DIR/messages.jsonl`` has a line of JSON for each message, in the order of sending:

- ``number``: number of the line, from 1; ``direction``: ``"to client"`` or ``"to server"``;
  ``client``: partition id; ``type``: Flower's message type; ``phase``: its extra phase, if any;
- ``values``: plain values by record and name; bytes are ``{"hex": "00ff"}``;
- ``arrays``: a list of ``{record, name, dtype, shape, bytes, sha256, file}``. The one at position i
  is ``arr_i`` of ``file``, which ``numpy.load`` opens. It holds exactly the bytes that were sent,
  in NumPy's ``.npy`` format; ``bytes`` and ``sha256`` are their number and hash;
- ``error``: why a client failed, in place of content.

A message is written before it is delivered. Clients' state is not sent, and so not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from flwr.app import Message, RecordDict
from numpy.typing import NDArray

from fedul_flwr.data.types import Value
from fedul_flwr.errors import UserError

MESSAGES, ARRAYS = "messages.jsonl", "arrays"
TO_CLIENT, TO_SERVER = "to client", "to server"


def refuse_used(directory: Path) -> None:
    """Refuse a place for a message log that is neither new nor an empty directory."""
    try:
        is_free = not directory.exists() or not any(directory.iterdir())
    except OSError as err:
        raise UserError(
            f"--message-log {directory} cannot be read ({err.strerror}).",
            "file-not-readable",
            option="--message-log",
        ) from err
    if not is_free:
        raise UserError(
            f"--message-log {directory} must be a new or an empty directory.",
            "file-exists",
            option="--message-log",
        )


class MessageLog:
    """Writes messages to a directory, which is created if it does not exist."""

    def __init__(self, directory: Path) -> None:
        refuse_used(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / ARRAYS).mkdir()
            (directory / MESSAGES).touch()
        except OSError as err:
            raise UserError(
                f"Cannot write to {directory} ({err.strerror}).", "file-not-writable"
            ) from err
        self._directory, self._written = directory, 0

    def add(self, direction: str, client: int, phase: str | None, message: Message) -> None:
        """Write ``message``."""
        self._written += 1
        content = RecordDict() if message.has_error() else message.content
        line = {
            **{"number": self._written, "direction": direction, "client": client, "phase": phase},
            "type": message.metadata.message_type,
            "values": {**content.config_records, **content.metric_records},
            "arrays": self._add_arrays(content),
            "error": message.error.reason if message.has_error() else None,
        }
        text = json.dumps(line, default=lambda v: {"hex": v.hex()} if type(v) is bytes else dict(v))
        with (self._directory / MESSAGES).open("a") as file:
            file.write(text + "\n")

    def _add_arrays(self, content: RecordDict) -> list[dict[str, Any]]:
        arrays = [(r, *pair) for r, of in content.array_records.items() for pair in of.items()]
        if not arrays:
            return []
        file = f"{ARRAYS}/{self._written:06}.npz"
        with ZipFile(self._directory / file, "w") as archive:
            for position, (_, _, array) in enumerate(arrays):
                archive.writestr(f"arr_{position}.npy", array.data)
        return [
            {"record": record, "name": name, "dtype": array.dtype, "shape": array.shape}
            | {"bytes": len(array.data), "sha256": sha256(array.data).hexdigest(), "file": file}
            for record, name, array in arrays
        ]


@dataclass(frozen=True)
class RecordedArray:
    """An array of a message; its file is read on demand."""

    record: str
    name: str
    file: Path
    position: int

    def travelled(self) -> bytes:
        """The bytes that were sent, in NumPy's ``.npy`` format."""
        with ZipFile(self.file) as archive:
            return archive.read(f"arr_{self.position}.npy")

    def numpy(self) -> NDArray[Any]:
        """The decoded array."""
        return np.asarray(np.load(BytesIO(self.travelled())))


@dataclass(frozen=True)
class Recorded:
    """A message; its attributes are the keys of a line."""

    number: int
    direction: str
    client: int
    type: str
    phase: str | None
    values: dict[str, dict[str, Value]]
    arrays: tuple[RecordedArray, ...]
    error: str | None


def read_message_log(directory: Path) -> Iterator[Recorded]:
    """Messages in the order in which they were sent; an incomplete last line is skipped."""
    if not (directory / MESSAGES).is_file():
        raise UserError(f"{directory} holds no message log.", "run-missing")
    with (directory / MESSAGES).open() as file:
        for line in file:
            if line.endswith("\n"):
                yield _parsed(directory, json.loads(line))


def _parsed(directory: Path, line: dict[str, Any]) -> Recorded:
    arrays = tuple(
        RecordedArray(entry["record"], entry["name"], directory / entry["file"], position)
        for position, entry in enumerate(line["arrays"])
    )
    values = {name: {k: _value(v) for k, v in of.items()} for name, of in line["values"].items()}
    return Recorded(**line | {"values": values, "arrays": arrays})


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
