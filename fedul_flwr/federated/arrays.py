"""Arrays as bytes: encoded with one copy, checked before decoding, decoded without a copy."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from pickle import PickleBuffer
from typing import Any, BinaryIO, NamedTuple, Self, SupportsIndex

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedul_flwr.errors import BadMessageError

_NUMPY = "numpy.ndarray"
"""Flower's name for arrays in NumPy's ``.npy`` format."""
_HEADERS = {
    b"\x93NUMPY\x01\x00": (2, np.lib.format.read_array_header_1_0),
    b"\x93NUMPY\x02\x00": (4, np.lib.format.read_array_header_2_0),
}
"""Versions of the ``.npy`` format by their first bytes: size of the length field, and parsers."""


class _Form(NamedTuple):
    """Type and shape from a header, and the header's length in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    in_columns: bool
    length: int


class PlainArray(Array):
    """Flower's array with fewer copies, for many small models sent within one machine.

    It is built with one copy of the values, read without a copy, and pickled with its bytes out of
    band, as Ray wants them. Messages to devices carry it in Flower's own form.
    """

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        """The array with these ``values``, rows first in memory.

        Raises
        ------
        ValueError
            If they are Python objects: their memory holds addresses, not values.
        """
        values = np.asarray(values, order="C")
        if values.dtype.hasobject:
            raise ValueError(f"Object arrays cannot be sent: {values.dtype} {values.shape}.")
        # NumPy exposes the memory of dates and times only as integers.
        numbers = values.view(np.int64) if values.dtype.kind in "mM" else values
        data = b"".join([_write_header(values.dtype, values.shape), numbers.data])
        return cls(str(values.dtype), values.shape, _NUMPY, data)

    @classmethod
    def seen(cls, array: Array) -> Self:
        """``array`` as a :class:`PlainArray` that shares its bytes; itself if it is one."""
        if isinstance(array, cls):
            return array
        return cls.over(array.dtype, tuple(array.shape), array.stype, array.data)

    @classmethod
    def over(cls, dtype: str, shape: tuple[int, ...], stype: str, data: bytes | memoryview) -> Self:
        """An array that shares ``data``, read-only memory in NumPy's ``.npy`` format.

        Flower's own constructor takes ``bytes`` alone.
        """
        array = cls(dtype, shape, stype, b"")
        array.data = data  # type: ignore[assignment]
        return array

    def numpy(self) -> NDArray[Any]:
        """The values, read-only.

        Raises
        ------
        BadMessageError
            As :func:`check_bytes` does.
        """
        data = self.data
        form = _checked("", self, data)
        values = np.frombuffer(data, form.dtype, offset=form.length)
        return values.reshape(form.shape, order="F" if form.in_columns else "C")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        mine, its = ((a.dtype, tuple(a.shape), a.stype, a.data) for a in (self, other))
        return mine == its

    __hash__ = None  # type: ignore[assignment]

    def deflate(self) -> bytes:
        """Bytes for the network, under the class name of Flower's own array, which they include."""
        return Array(self.dtype, self.shape, self.stype, bytes(self.data)).deflate()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if int(protocol) < 5:
            return super().__reduce_ex__(protocol)
        return _restore, (self.dtype, self.shape, self.stype, PickleBuffer(self.data))


class StoredArray(PlainArray):
    """An array whose bytes lie in a file, and are read each time that they are used.

    Many large replies are held so: only one array at a time is in memory when they are averaged.
    """

    _place: tuple[BinaryIO, int, int]

    @classmethod
    def at(
        cls, dtype: str, shape: tuple[int, ...], stype: str, file: BinaryIO, start: int, size: int
    ) -> Self:
        """An array of ``size`` bytes from ``start`` on in an open file, which it keeps open."""
        array = cls(dtype, shape, stype, b"")
        array._place = file, start, size
        return array

    @property
    def num_bytes(self) -> int:
        """Number of its bytes."""
        return self._place[2]

    @property
    def data(self) -> bytes:
        """The bytes, read anew.

        Raises
        ------
        OSError
            If they cannot be read.
        """
        file, start, size = self._place
        return os.pread(file.fileno(), size, start)

    @data.setter
    def data(self, value: bytes) -> None:
        """Do nothing: Flower's constructor sets it."""


def num_bytes(array: Array) -> int:
    """Number of an array's bytes, without reading them."""
    return array.num_bytes if isinstance(array, StoredArray) else len(array.data)


def _restore(dtype: str, shape: tuple[int, ...], stype: str, data: Any) -> PlainArray:
    # A copy: Ray's store keeps an object as long as anything refers to it.
    return PlainArray(dtype, shape, stype, bytes(data))


def check_bytes(name: str, array: Array) -> None:
    """Check that an array has the bytes that its type and shape need, without decoding it.

    NumPy would trust the header and allocate memory for as many values as it announces.

    Raises
    ------
    BadMessageError
        If it is not a plain array, its header has another type or shape than the message announces,
        or the number of bytes is wrong.
    """
    _checked(name, array, array.data)


def _checked(name: str, array: Array, data: bytes) -> _Form:
    shape = tuple(array.shape)
    told = f"array {name!r} is announced as {array.dtype} {shape}"
    form = _form(name, array.stype, data)
    dtype, found = form.dtype, form.shape
    if str(dtype) != array.dtype or found != shape or dtype.hasobject or min(shape, default=0) < 0:
        raise BadMessageError(f"its {told} and begins as {dtype} {found}")
    rest, needed = len(data) - form.length, math.prod(shape) * dtype.itemsize
    if rest != needed:
        raise BadMessageError(f"its {told} and has {rest} bytes, not {needed}")
    return form


def _form(name: str, stype: str, data: bytes) -> _Form:
    try:
        if stype != _NUMPY:
            raise ValueError(stype)
        size, _ = _HEADERS[bytes(data[:8])]
        length = 8 + size + int.from_bytes(data[8 : 8 + size], "little")
        return _read_header(bytes(data[:length]))
    except Exception as error:  # a parser may raise anything on untrusted bytes
        raise BadMessageError(f"its array {name!r} is not in NumPy's format") from error


def array_record(arrays: Mapping[str, Array]) -> ArrayRecord:
    """A record of ``arrays`` as they are: Flower's constructor would make plain ones of its own."""
    record = ArrayRecord()
    for name, array in arrays.items():
        record[name] = array
    return record


@lru_cache(maxsize=1024)  # NumPy parses it as Python
def _read_header(header: bytes) -> _Form:
    stream = BytesIO(header)
    shape, in_columns, dtype = _HEADERS[stream.read(8)][1](stream)
    return _Form(dtype, shape, in_columns, stream.tell())


@lru_cache(maxsize=1024)
def _write_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    stream = BytesIO()
    described = np.lib.format.dtype_to_descr(dtype)
    form = {"descr": described, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, form)
    return stream.getvalue()
