"""Independent random streams from one run seed."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Generator for a ``purpose`` (such as ``"order"``) and ``indices`` (round, client …) of a run.

    Streams of different purposes or indices are independent. They do not depend on the process, or
    on the order of calls.

    Examples
    --------
    >>> first, again = stream(7, "order", 1), stream(7, "order", 1)
    >>> first.random(3).tolist() == again.random(3).tolist()
    True
    >>> stream(7, "order", 1).random() == stream(7, "order", 2).random()
    False
    """
    key = zlib.crc32(purpose.encode())
    return np.random.default_rng(np.random.SeedSequence([seed, key], spawn_key=indices))


def derived_seed(seed: int, purpose: str, *indices: int) -> int:
    """A 32-bit seed from the same streams, for libraries that need a number."""
    return int(stream(seed, purpose, *indices).integers(2**32, dtype=np.uint64))
