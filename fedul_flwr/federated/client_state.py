"""What a client remembers between messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedul_flwr.data.types import Arrays
from fedul_flwr.federated.messages import Value, to_arrays, to_record


class ClientState:
    """A client's memory between messages.

    On a device every message runs in a new process: what is not here is lost. Values lie in
    Flower's ``context.state``, and on a device arrays do too. In a simulation arrays lie in files:
    Flower would copy hundreds of models through every message, and a resumed run would find none.

    Parameters
    ----------
    records : Flower's ``context.state``.
    directory : this client's own in a simulation; ``None`` on a device.
    """

    def __init__(self, records: RecordDict, directory: Path | None = None) -> None:
        self._records = records
        self._directory = directory

    @property
    def directory(self) -> Path | None:
        """This client's own directory in a simulation; ``None`` on a device."""
        return self._directory

    def within(self, directory: Path) -> ClientState:
        """The same memory with its arrays in ``directory``."""
        return ClientState(self._records, directory)

    def values(self, name: str) -> dict[str, Value]:
        """The values stored under ``name``, empty if there are none."""
        record = self._records.get(name)
        return dict(cast(ConfigRecord, record)) if record is not None else {}

    def set_values(self, name: str, values: Mapping[str, Value]) -> None:
        """Store values under ``name``."""
        self._records[name] = ConfigRecord(dict(values))

    def recall(self, name: str, server_round: int) -> Arrays:
        """The arrays kept under ``name`` in the last round before ``server_round``; {} if none.

        Those in files are read where they are looked at, page by page. To change them changes no
        file.
        """
        if self._directory is None:
            return self.secrets(name)
        earlier = [number for number in self._rounds(name) if number < server_round]
        return _mapped_arrays(self._file(name, max(earlier))) if earlier else {}

    def keep(self, name: str, server_round: int, arrays: Arrays) -> None:
        """Store arrays under ``name``, as they are after ``server_round``.

        In a simulation earlier versions stay until the round is complete on disk, when the server
        removes them (``RunDirectory.drop_client_versions``): a run that is cut off inside a round
        goes on from the end of the last complete one.
        """
        if self._directory is None:
            self.set_secrets(name, arrays)
            return
        from safetensors.numpy import save_file

        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._file(name, server_round)
        partial = file.with_suffix(".partial")
        save_file({key: np.asarray(array, order="C") for key, array in arrays.items()}, partial)
        partial.replace(file)

    def secrets(self, name: str) -> Arrays:
        """Arrays that lie in Flower's state, in a simulation too, and in no file; {} if none."""
        record = self._records.get(name)
        return to_arrays(cast(ArrayRecord, record)) if record is not None else {}

    def set_secrets(self, name: str, arrays: Arrays) -> None:
        """Store arrays in Flower's state alone; none forgets what was there."""
        self._records.pop(name, None)
        if arrays:
            self._records[name] = to_record(arrays)

    def leave(self, name: str, server_round: int, arrays: Arrays) -> None:
        """Keep arrays that are not this client's memory but for a simulation to look at."""
        if self._directory is not None:
            self.keep(name, server_round, arrays)

    def _file(self, name: str, server_round: int) -> Path:
        assert self._directory is not None
        return self._directory / f"{name}-{server_round}.safetensors"

    def _rounds(self, name: str) -> list[int]:
        assert self._directory is not None
        stems = [path.stem for path in self._directory.glob(f"{name}-*.safetensors")]
        return [int(stem.rpartition("-")[2]) for stem in stems]


def _mapped_arrays(file: Path) -> Arrays:
    from safetensors.torch import load_file  # on devices there are no files, nor need for torch

    # As torch's tensors, for these share memory with the file, copied on writing; numpy's loader
    # reads it whole.
    return {name: tensor.numpy() for name, tensor in load_file(file).items()}
