"""What a client keeps of a protocol between two messages: typed here, named arrays on a device.

A new process may answer each message. What is stored has the name of its class, so that what is
restored says which messages are in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar, dataclass_transform, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes, below
from fedul_flwr.secure.similarity import Arrays

Clients = tuple[int, ...]
Pairs = frozenset[tuple[int, int]]
"""Pairs of clients, the lower number first."""
Counts = Mapping[int, int]
"""A number for each client."""
Rows = Mapping[int, bytes]
"""Bytes for each client, of all as many."""

_CLASS = "class"
_Kind = TypeVar("_Kind", bound="Stored")


@dataclass_transform(frozen_default=True)
class Stored:
    """Base of frozen dataclasses, of which each field is one array of the same name.

    A field is of a type in :data:`_FORMS`; named arrays, or another such dataclass, are several
    arrays with the field's name in front. As they hold secrets, they are not printed.
    """

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, repr=False)(cls)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Named arrays, of which :meth:`from_arrays` makes the same again."""
        arrays = {_CLASS: np.frombuffer(type(self).__name__.encode(), np.uint8)}
        for name, kind in _fields(type(self)):
            value = getattr(self, name)
            if kind in _FORMS:
                arrays[name] = _FORMS[kind][0](value)
            else:
                several = value.to_arrays() if isinstance(value, Stored) else value
                arrays |= {f"{name}/{key}": array for key, array in several.items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """What was stored, of this class or one below it."""
        stored = arrays[_CLASS].tobytes().decode()
        (found_class,) = (kind for kind in _family(cls) if kind.__name__ == stored)
        return found_class(**{name: _read(arrays, name, of) for name, of in _fields(found_class)})


def _read(arrays: Arrays, name: str, kind: Any) -> Any:
    if kind in _FORMS:
        return _FORMS[kind][1](arrays[name])
    several = below(f"{name}/", arrays)
    return several if kind == Arrays else kind.from_arrays(several)


def _fields(kind: Any) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in fields(kind)]


def _family(kind: type[_Kind]) -> Iterator[type[_Kind]]:
    yield kind
    for below_it in kind.__subclasses__():
        yield from _family(below_it)


def _of_rows(rows: Rows) -> Bytes:
    """A row for each client: its number in 8 bytes, and its bytes."""
    joined = [client.to_bytes(8, "little") + row for client, row in rows.items()]
    return np.array([np.frombuffer(row, np.uint8) for row in joined], np.uint8)


def _numbers(value: Any) -> NDArray[np.int64]:
    return np.array(value, np.int64)


_FORMS: Mapping[Any, tuple[Callable[[Any], NDArray[Any]], Callable[[NDArray[Any]], Any]]] = {
    int: (_numbers, int),
    bool: (_numbers, bool),
    bytes: (lambda data: np.frombuffer(data, np.uint8), np.ndarray.tobytes),
    Bytes: (np.asarray, np.asarray),
    Clients: (_numbers, lambda array: tuple(array.tolist())),
    Pairs: (
        lambda pairs: _numbers(sorted(pairs)).reshape(-1, 2),
        lambda array: frozenset(map(tuple, array.tolist())),
    ),
    Counts: (
        lambda counts: _numbers([*counts.items()]).reshape(-1, 2),
        lambda array: dict(array.tolist()),
    ),
    Rows: (
        _of_rows,
        lambda array: {
            int.from_bytes(row[:8], "little"): row[8:] for row in map(np.ndarray.tobytes, array)
        },
    ),
}
"""How a value of each type is written, and read."""
