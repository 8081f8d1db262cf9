"""Independent random streams from one run seed."""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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


# The generators of a whole process, from which somebody's own code may draw.


@contextmanager
def draws_of(seed: int, purpose: str, *indices: int) -> Iterator[None]:
    """Context in which the global generators of Python, NumPy and (once it is loaded) torch are
    seeded for a purpose, as :func:`stream` is; afterwards they are as before.

    What protects somebody by being unknown must not be drawn from them.
    """
    restore = remember_draws()
    seed_draws(seed, purpose, *indices)
    try:
        yield
    finally:
        restore()


def seed_draws(seed: int, purpose: str, *indices: int) -> None:
    """Seed these generators, and leave them so."""
    drawn = derived_seed(seed, purpose, *indices)
    random.seed(drawn)
    np.random.seed(drawn)  # noqa: NPY002
    if (torch := _torch()) is not None:
        torch.default_generator.manual_seed(drawn)  # `torch.manual_seed` keeps a stack trace


def remember_draws() -> Callable[[], None]:
    """A function that sets these generators to what they are now."""
    (of_python, of_numpy), torch = draws_beside_torch(), _torch()
    of_torch = torch and torch.get_rng_state()

    def restore() -> None:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(of_torch)

    return restore


def draws_beside_torch() -> tuple[Any, Any]:
    """States of the generators of Python and of NumPy, which can be compared."""
    kind, keys, *others = np.random.get_state(legacy=True)  # noqa: NPY002
    return random.getstate(), (kind, tuple(np.asarray(keys).tolist()), *others)


def _torch() -> Any:
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None  # it is being loaded
