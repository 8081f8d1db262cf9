"""A client's state between messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedul_flwr.data.safe_files import make_folder, save_arrays
from fedul_flwr.data.types import Arrays, Value
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import to_arrays, to_record


class ClientState:
    """A client's state between messages.

    On a device every message runs in a new process, so anything not stored here is lost. Values are
    stored in Flower's ``context.state``, on a device arrays too. A simulation stores arrays in
    files: Flower would copy hundreds of models with every message, and a run could not resume.

    Parameters
    ----------
    records : Flower's ``context.state``.
    directory : this client's own in a simulation; ``None`` on a device.
    run : Flower's id of the run that the state belongs to.
    """

    def __init__(self, records: RecordDict, directory: Path | None = None, run: int = 0) -> None:
        self._records = records
        self._directory = directory
        self.run = run

    @property
    def directory(self) -> Path | None:
        """This client's own directory in a simulation; ``None`` on a device."""
        return self._directory

    def within(self, directory: Path | None) -> ClientState:
        """The same state with its arrays in ``directory``."""
        return ClientState(self._records, directory, self.run)

    def values(self, name: str) -> dict[str, Value]:
        """The values stored under ``name``, empty if there are none."""
        record = self._records.get(name)
        return dict(cast(ConfigRecord, record)) if record is not None else {}

    def set_values(self, name: str, values: Mapping[str, Value]) -> None:
        """Store values under ``name``."""
        self._records[name] = ConfigRecord(dict(values))

    def load(self, name: str, server_round: int) -> Arrays:
        """The arrays stored under ``name`` in the last round before ``server_round``; {} if none.

        Arrays in files are memory-mapped, copy on write: changing them does not change the files.
        """
        if self._directory is None:
            return self.ephemeral(name)
        earlier = [number for number in self._rounds(name) if number < server_round]
        return _mapped_arrays(self._file(name, max(earlier))) if earlier else {}

    def save(self, name: str, server_round: int, arrays: Arrays) -> None:
        """Store arrays under ``name`` as of the end of ``server_round``.

        In a simulation the server removes earlier versions once the round is complete on disk
        (``RunDirectory.drop_client_versions``), so a run that is interrupted within a round
        resumes from the end of the last complete one.
        """
        if self._directory is None:
            self.set_ephemeral(name, arrays)
            return
        make_folder(self._directory)
        # Not synced: hundreds of clients would wait for the disk in every round.
        save_arrays(self._file(name, server_round), arrays, sync=False)

    def ephemeral(self, name: str) -> Arrays:
        """Arrays stored in Flower's state, in a simulation too, never in a file; {} if none."""
        record = self._records.get(name)
        return to_arrays(cast(ArrayRecord, record)) if record is not None else {}

    def set_ephemeral(self, name: str, arrays: Arrays) -> None:
        """Store arrays in Flower's state only; an empty mapping deletes the stored ones."""
        self._records.pop(name, None)
        if arrays:
            self._records[name] = to_record(arrays)

    def publish(self, name: str, server_round: int, arrays: Arrays) -> None:
        """Write arrays for a simulation's reports; the client itself does not read them."""
        if self._directory is not None:
            self.save(name, server_round, arrays)

    def _file(self, name: str, server_round: int) -> Path:
        assert self._directory is not None
        return self._directory / f"{name}-{server_round}.safetensors"

    def _rounds(self, name: str) -> list[int]:
        assert self._directory is not None
        stems = [path.stem for path in self._directory.glob(f"{name}-*.safetensors")]
        return [int(stem.rpartition("-")[2]) for stem in stems]


def _mapped_arrays(file: Path) -> Arrays:
    # On devices there are no files, nor need for torch.
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    # Torch's loader maps the file into memory, copy on write; numpy's loader reads all of it.
    try:
        return {name: tensor.numpy() for name, tensor in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{file} is damaged: begin the run anew in another output.", "file-damaged"
        ) from error
