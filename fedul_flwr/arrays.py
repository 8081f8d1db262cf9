"""Types of arrays, and small functions of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.errors import UserError

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Arrays = dict[str, NDArray[Any]]
"""Arrays by name, such as a model's weights."""


def below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Arrays whose names begin with ``prefix``, under their names without it."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def l2_norm(arrays: Iterable[Floats]) -> float:
    """L2 norm of all entries together, the same in any order of the arrays.

    A run that resumes reads them in another order. BLAS, as in ``np.linalg.norm``, adds in an order
    that depends on threads and on where an array lies in memory.
    """
    return math.sqrt(math.fsum(float(np.square(array).sum()) for array in arrays))


def check_num_bits(num_bits: int) -> None:
    """Refuse an L that is not a positive multiple of 8."""
    if num_bits < 8 or num_bits % 8:
        raise UserError(
            f"codes have {num_bits} bits; L must be a positive multiple of 8",
            "argument-not-allowed",
        )


def blocks(length: int, size: int = 1024) -> Iterator[slice]:
    """``range(length)`` in slices of ``size``, the last one shorter."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def bounds_of(parts: Sequence[NDArray[Any]]) -> Ints:
    """``(C + 1,)``: start of each of ``parts`` when they are concatenated, and the end."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


def part_of(bounds: NDArray[Any], client: int) -> slice:
    """Slice of ``client``'s part within the concatenated parts."""
    if not 0 <= client < len(bounds) - 1:
        raise UserError(
            f"Client {client} is not in this federation of {len(bounds) - 1}.", "unknown-name"
        )
    return slice(bounds[client], bounds[client + 1])
