"""Content of a message of an extra phase: arrays and plain values by name."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedul_flwr.data.types import Arrays, Floats
from fedul_flwr.errors import BadMessageError

Value = (
    int
    | float
    | str
    | bytes
    | bool
    | list[int]
    | list[float]
    | list[str]
    | list[bytes]
    | list[bool]
)

LARGEST_COUNT = 10**12
"""Largest number of points, sets or clients: sums over a million of them are exact in float64."""


@dataclass
class Content:
    """What travels in one extra phase: arrays and plain values by name."""

    arrays: Arrays = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)


def number(content: Content, key: str) -> int:
    """A whole number that came with a message.

    Raises
    ------
    BadMessageError
        If there is none.
    """
    value = content.values.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadMessageError(f"A message came with no valid {key}.")
    return value


def count(content: Content, key: str) -> int:
    """A whole number that is not negative, and that sums of floats keep; see :func:`number`."""
    value = number(content, key)
    if value < 0:
        raise BadMessageError(f"A message came with {key} below 0.", "message-out-of-range")
    if value > LARGEST_COUNT:
        raise BadMessageError(
            f"A message came with {key} above {LARGEST_COUNT:,}.", "message-out-of-range"
        )
    return value


def numbers(content: Content, key: str) -> Floats:
    """``(n,)``, finite numbers that came with a message; see :func:`number`."""
    value = content.values.get(key)
    of_numbers = isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)
    try:
        array = np.array(value if of_numbers else [np.nan], dtype=np.float64)
    except OverflowError:  # a whole number beyond every float
        array = np.array([np.inf])
    if not np.isfinite(array).all():
        raise BadMessageError(f"A message came with no valid {key}.")
    return array
