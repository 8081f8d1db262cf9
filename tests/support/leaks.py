"""Looking for a secret in what has travelled, in the forms in which it could be there by mistake.

Only whole secrets are found, and only in one array or value at a time: what is masked, encrypted,
shuffled or cut into pieces is not. So not to find a secret proves little by itself; a test has to
show as well that it is found where nothing hides it.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.message_log import Recorded, read_message_log

SHORTEST = 8
"""Bytes of a secret, below which it would be found by chance."""


def contains(haystack: Iterable[Any], *secrets: bytes) -> bool:
    """Tell whether one of several arrays or plain values holds one of ``secrets``.

    Numbers are looked at byte by byte and as numbers from 0 to 255 (or -128 to 127), so labels are
    found as ``labels.astype(np.int8).tobytes()`` whatever type and scale they travel in: integers,
    floats, fixed point.

    Parameters
    ----------
    haystack : arrays, str, bytes, numbers, or lists of them.
    secrets : 8 bytes or more each, such as a key, the row of a code or labels; not all the same.
    """
    if any(len(secret) < SHORTEST or len(set(secret)) == 1 for secret in secrets):
        raise ValueError(f"a secret needs {SHORTEST} bytes or more that are not all the same")
    wanted = [word for secret in secrets for word in _spellings(secret)]
    return any(word in text for item in haystack for text in _texts(item) for word in wanted)


def messages_with(message_log: Path, *secrets: bytes) -> list[Recorded]:
    """Messages of a message log that hold a secret in an array, a value, a name or an error."""
    return [
        message
        for message in read_message_log(message_log)
        if contains(_content(message), *secrets)
    ]


def _content(message: Recorded) -> Iterator[Any]:
    yield message.error or ""
    for record, table in message.values.items():
        yield from (record, *table, *table.values())
    for array in message.arrays:
        yield from (array.record, array.name, array.data, array.numpy())


def _spellings(secret: bytes) -> Iterator[bytes]:
    """As it is, backwards, in hexadecimal, and as bits of a byte each."""
    for word in (secret, secret[::-1]):
        yield from (word, word.hex().encode(), word.hex().upper().encode())
    bits = np.frombuffer(secret, dtype=np.uint8)
    yield np.unpackbits(bits).tobytes()
    yield np.unpackbits(bits, bitorder="little").tobytes()


def _texts(item: Any) -> Iterator[bytes]:
    """An array or a value as bytes, in several ways."""
    if isinstance(item, np.ndarray):
        yield from _numbers(item)
    elif isinstance(item, list) and item and isinstance(item[0], str | bytes):
        parts = [part for entry in item for part in _texts(entry)]
        yield from (*parts, b"".join(parts))
    elif isinstance(item, str | bytes):
        text = item.encode() if isinstance(item, str) else item
        yield text
        yield from _from_base64(text)
    else:
        yield from _numbers(np.atleast_1d(item))


def _numbers(array: NDArray[Any]) -> Iterator[bytes]:
    """Row by row and column by column: all bytes, and the k-th bytes of all numbers."""
    for order in (array.ravel(), array.ravel("F")):
        yield order.tobytes()
        for k in range(array.itemsize):
            yield order.tobytes()[k :: array.itemsize]
        if array.dtype.kind == "f":
            near = np.rint(np.nan_to_num(order).clip(-128, 255))
            yield near.astype(np.int64).astype(np.uint8).tobytes()


def _from_base64(text: bytes) -> Iterator[bytes]:
    """What words stand for, wherever in them the first group of four letters begins."""
    for word in re.findall(rb"[A-Za-z0-9+/_-]{11,}", text):
        letters = word.translate(bytes.maketrans(b"-_", b"+/"))
        for start in range(4):
            yield base64.b64decode(letters[start:] + b"A" * (-len(letters[start:]) % 4))
