"""Arrays that arrive are checked before they are decoded."""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array

from fedul_flwr.errors import BadMessageError

_NUMPY = "numpy.ndarray"
"""Flower's name for arrays in NumPy's ``.npy`` format."""
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def check_bytes(name: str, array: Array) -> None:
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
    stream = BytesIO(array.data)
    dtype, found = _header(name, array, stream)
    if str(dtype) != array.dtype or found != shape or dtype.hasobject or min(shape, default=0) < 0:
        raise BadMessageError(f"its {told} and begins as {dtype} {found}")
    rest, needed = len(array.data) - stream.tell(), math.prod(shape) * dtype.itemsize
    if rest != needed:
        raise BadMessageError(f"its {told} and has {rest} bytes, not {needed}")


def _header(name: str, array: Array, stream: BytesIO) -> tuple[np.dtype[Any], tuple[int, ...]]:
    try:
        if array.stype != _NUMPY:
            raise ValueError(array.stype)
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(stream)](stream)
    except Exception as error:  # whatever a parser makes of bytes from elsewhere
        raise BadMessageError(f"its array {name!r} is not in NumPy's format") from error
    return dtype, shape
