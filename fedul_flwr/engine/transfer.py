"""Python objects sent between processes of one machine; their arrays go through shared memory.

The bytes of an object's arrays are written once, to a file in memory that has no name, so that
nothing is left behind when a process is killed. An object that many processes get is written once
for all of them.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, BinaryIO

from flwr.app import Array

from fedul_flwr.federated.arrays import PlainArray

_IN_MEMORY = Path("/dev/shm")
"""Folder of files in memory; where it is missing or full, the system's temporary folder serves."""
_SMALL = 1 << 16
"""Most bytes of arrays that travel through the connection itself."""


@dataclass(frozen=True)
class Packed:
    """An object as bytes.

    Attributes
    ----------
    head : the pickled object without the bytes of its arrays.
    sizes : number of bytes of each array.
    body : the arrays' bytes, one after the other; empty if ``file`` has them.
    file : a file without a name.
    """

    head: bytes
    sizes: tuple[int, ...]
    body: bytes
    file: BinaryIO | None

    def send(self, connection: Connection) -> None:
        """Send it; :func:`receive` is the other end."""
        connection.send((self.head, self.sizes, self.body, self.file is not None))
        if self.file is not None:
            send_handle(connection, self.file.fileno(), None)


def pack(thing: object) -> Packed:
    """Pickle ``thing``; the bytes of its arrays are written to shared memory if they are many.

    Raises
    ------
    OSError
        If there is no room for them.
    """
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(thing)
    parts = [buffer.raw() for buffer in buffers]
    sizes = tuple(part.nbytes for part in parts)
    if sum(sizes) <= _SMALL:
        return Packed(stream.getvalue(), sizes, b"".join(parts), None)
    return Packed(stream.getvalue(), sizes, b"", _write(parts))


def receive(connection: Connection, *, mapped: bool) -> Any:
    """The object that the other end of ``connection`` has sent.

    Parameters
    ----------
    mapped : the arrays share the sender's memory, and the object keeps a file open; otherwise they
        are copied.

    Raises
    ------
    EOFError
        If the other end has closed the connection.
    """
    head, sizes, body, has_file = connection.recv()
    whole = memoryview(body)
    if has_file:
        handle = recv_handle(connection)
        try:
            whole = _read(handle, sum(sizes), mapped)
        finally:
            os.close(handle)
    buffers, start = [], 0
    for size in sizes:
        buffers.append(whole[start : start + size])
        start += size
    return pickle.loads(head, buffers=buffers)


def _read(handle: int, size: int, mapped: bool) -> memoryview:
    if mapped:
        return memoryview(mmap.mmap(handle, size, access=mmap.ACCESS_READ))
    with os.fdopen(os.dup(handle), "rb", buffering=0) as file:
        file.seek(0)
        whole = bytearray(size)
        if file.readinto(whole) != size:
            raise EOFError
    return memoryview(whole).toreadonly()


def _write(parts: Sequence[memoryview]) -> BinaryIO:
    """A file without a name that holds ``parts``."""
    places = [str(_IN_MEMORY)] if _IN_MEMORY.is_dir() else []
    for folder in [*places, None]:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  its user closes it
        try:
            for part in parts:
                file.write(part)
            file.flush()
        except OSError:  # a container's memory for shared files is often small
            file.close()
            if folder is None:
                raise
        else:
            return file
    raise AssertionError("unreachable")


class _Pickler(pickle.Pickler):
    """Takes the bytes of Flower's arrays out of the pickled object."""

    def reducer_override(self, thing: Any) -> Any:
        """How to pickle ``thing``; ``NotImplemented`` for its own way."""
        if isinstance(thing, Array):
            form = thing.dtype, tuple(thing.shape), thing.stype
            return PlainArray.over, (*form, pickle.PickleBuffer(thing.data))
        return NotImplemented
