"""Arrays as bytes: made of one copy, checked before they are decoded, and decoded without one."""

from __future__ import annotations

import math
from functools import lru_cache
from io import BytesIO
from pickle import PickleBuffer
from typing import Any, NamedTuple, Self, SupportsIndex

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from fedul_flwr.errors import BadMessageError

_NUMPY = "numpy.ndarray"
"""Flower's name for arrays in NumPy's ``.npy`` format."""
_HEADERS = {
    b"\x93NUMPY\x01\x00": (2, np.lib.format.read_array_header_1_0),
    b"\x93NUMPY\x02\x00": (4, np.lib.format.read_array_header_2_0),
}
"""What the format begins with: bytes of the header's length behind it, and how to read both."""


class _Form(NamedTuple):
    """What a header says, and how long it is."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    in_columns: bool
    length: int


class PlainArray(Array):
    """Flower's array, at less cost where many small models are sent within one machine.

    It is made with one copy of the values, looked at without any, and pickled with its bytes apart
    from all else, as Ray wants them. To a device it goes as Flower's own would.
    """

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        """The array with these ``values``, rows first in memory.

        Raises
        ------
        ValueError
            They are Python objects: what lies in memory is their addresses.
        """
        values = np.asarray(values, order="C")
        if values.dtype.hasobject:
            raise ValueError(f"Object arrays cannot be sent: {values.dtype} {values.shape}.")
        # NumPy lends the memory of times as that of the numbers they are.
        numbers = values.view(np.int64) if values.dtype.kind in "mM" else values
        data = b"".join([_write_header(values.dtype, values.shape), numbers.data])
        return cls(str(values.dtype), values.shape, _NUMPY, data)

    @classmethod
    def seen(cls, array: Array) -> Self:
        """``array`` itself, its bytes shared."""
        return cls(array.dtype, tuple(array.shape), array.stype, array.data)

    def numpy(self) -> NDArray[Any]:
        """The values, read-only.

        Raises
        ------
        BadMessageError
            As :func:`check_bytes` does.
        """
        form = check_bytes("", self)
        values = np.frombuffer(self.data, form.dtype, offset=form.length)
        return values.reshape(form.shape, order="F" if form.in_columns else "C")

    def deflate(self) -> bytes:
        """As Flower's own array, whose class is part of what it sends."""
        return Array(self.dtype, self.shape, self.stype, self.data).deflate()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if int(protocol) < 5:
            return super().__reduce_ex__(protocol)
        return _restore, (self.dtype, self.shape, self.stype, PickleBuffer(self.data))


def _restore(dtype: str, shape: tuple[int, ...], stype: str, data: Any) -> PlainArray:
    # A copy: what lies in Ray's store is held there as long as anybody looks at it.
    return PlainArray(dtype, shape, stype, bytes(data))


def check_bytes(name: str, array: Array) -> _Form:
    """See that an array's bytes are what its type and shape need; nothing is decoded.

    NumPy would believe the header, and reserve memory for as many values as that announces.

    Raises
    ------
    BadMessageError
        It is no plain array, its bytes begin with another type or shape than the message announces,
        or there are more or fewer of them.
    """
    shape = tuple(array.shape)
    told = f"array {name!r} is announced as {array.dtype} {shape}"
    form = _form(name, array)
    dtype, found = form.dtype, form.shape
    if str(dtype) != array.dtype or found != shape or dtype.hasobject or min(shape, default=0) < 0:
        raise BadMessageError(f"its {told} and begins as {dtype} {found}")
    rest, needed = len(array.data) - form.length, math.prod(shape) * dtype.itemsize
    if rest != needed:
        raise BadMessageError(f"its {told} and has {rest} bytes, not {needed}")
    return form


def _form(name: str, array: Array) -> _Form:
    try:
        if array.stype != _NUMPY:
            raise ValueError(array.stype)
        size, _ = _HEADERS[array.data[:8]]
        length = 8 + size + int.from_bytes(array.data[8 : 8 + size], "little")
        return _read_header(array.data[:length])
    except Exception as error:  # whatever a parser makes of bytes from elsewhere
        raise BadMessageError(f"its array {name!r} is not in NumPy's format") from error


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
