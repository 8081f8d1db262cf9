"""Python objects sent between processes of one machine; their arrays go through shared memory.

The bytes of an object's arrays are written once, to a file without a name, so that nothing is left
behind when a process is killed. An object that many processes get is written once for all of them.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, BinaryIO

from flwr.app import Array

from fedul_flwr.federated.messages import PlainArray

_IN_MEMORY = Path("/dev/shm")
"""Folder of files in memory; where it is missing or full, the system's temporary folder serves."""
_SMALL = 1 << 16
"""Most bytes of arrays that travel through the connection itself."""

_Form = tuple[str, tuple[int, ...], str, int, int]
"""Type, shape and format of an array, and where its bytes begin and how many they are."""


@dataclass(frozen=True)
class Packed:
    """An object as bytes.

    Attributes
    ----------
    head : the pickled object without the bytes of its arrays.
    body : the arrays' bytes, one after the other; empty if ``file`` has them.
    size : number of the arrays' bytes.
    file : a file without a name.
    """

    head: bytes
    body: bytes
    size: int
    file: BinaryIO | None

    def send(self, connection: Connection) -> None:
        """Send it; :meth:`receive` is the other end."""
        connection.send((self.head, self.body, self.size, self.file is not None))
        if self.file is not None:
            send_handle(connection, self.file.fileno(), None)

    @classmethod
    def receive(cls, connection: Connection) -> Packed:
        """What the other end has sent, not unpickled yet."""
        head, body, size, has_file = connection.recv()
        file = os.fdopen(recv_handle(connection), "rb", buffering=0) if has_file else None
        return cls(head, body, size, file)

    def open_mapped(self) -> Any:
        """The object; its arrays share the sender's memory, and keep a file open."""
        whole = memoryview(self.body)
        if self.file is not None:
            with self.file:
                whole = memoryview(
                    mmap.mmap(self.file.fileno(), self.size, access=mmap.ACCESS_READ)
                )
        return _Unpickler(self.head, _over(whole)).load()

    def open(self) -> Any:
        """The object; its arrays are in this process's memory."""
        whole = memoryview(self.body)
        if self.file is not None:
            with self.file:
                whole = memoryview(os.pread(self.file.fileno(), self.size, 0))
        return _Unpickler(self.head, _over(whole)).load()


def pack(thing: object) -> Packed:
    """Pickle ``thing``; the bytes of its arrays are written to shared memory if they are many."""
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(thing)
    head, size = stream.getvalue(), pickler.size
    if size <= _SMALL:
        return Packed(head, b"".join(pickler.parts), size, None)
    return Packed(head, b"", size, _write(pickler.parts, _IN_MEMORY))


def _over(whole: memoryview) -> Callable[[_Form], Array]:
    """Makes arrays that share ``whole``."""

    def make(form: _Form) -> Array:
        dtype, shape, stype, start, size = form
        return PlainArray.over(dtype, shape, stype, whole[start : start + size])

    return make


def _write(parts: Sequence[bytes], folder: Path | None) -> BinaryIO:
    """A file without a name that holds ``parts``, in ``folder`` or the system's temporary one."""
    file = None
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  its user closes it
        file.writelines(parts)
        file.flush()
    except OSError:  # a container's memory for shared files is often small, or read-only
        if file is not None:
            file.close()
        if folder is None:
            raise
        return _write(parts, None)
    return file


class _Pickler(pickle.Pickler):
    """Takes the bytes of Flower's arrays out of the pickled object."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)
        self.parts: list[bytes] = []
        self.size = 0

    def persistent_id(self, thing: Any) -> _Form | None:
        """Form of an array; ``None`` for any other object, which is pickled as usual."""
        if not isinstance(thing, Array):
            return None
        data, start = thing.data, self.size
        self.parts.append(data)
        self.size += len(data)
        return thing.dtype, tuple(thing.shape), thing.stype, start, len(data)


class _Unpickler(pickle.Unpickler):
    """Makes arrays from their forms."""

    def __init__(self, head: bytes, make: Callable[[_Form], Array]) -> None:
        super().__init__(io.BytesIO(head))
        self.persistent_load = make  # type: ignore[method-assign]
