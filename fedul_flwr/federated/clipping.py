"""Updates of length zero, which Flower's clipping divides by."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord
from flwr.supercore.differential_privacy import get_norm

from fedul_flwr.federated.arrays import PlainArray

SHORTEST = 1e-18
"""A length whose square float32 still holds; the next number after a weight of 0 is far less."""


def step_off(update: ArrayRecord, start: ArrayRecord) -> None:
    """Where ``update`` is as far as ``start``, move one weight of it by the least step, in place.

    Flower multiplies an update by min(1, C / its length). One of length zero needs no clipping, and
    one of the least step gets none.

    Parameters
    ----------
    update, start : arrays of the same names, types and shapes, at least one of floating point.
    """
    if get_norm([update[name].numpy() - array.numpy() for name, array in start.items()]):
        return
    name = next(n for n, a in start.items() if np.issubdtype(np.dtype(a.dtype), np.floating))
    values = update[name].numpy().copy()
    first = values.flat[0]
    values.flat[0] = max(np.nextafter(first, values.dtype.type(np.inf)), first + SHORTEST)
    update[name] = PlainArray.of(values)
