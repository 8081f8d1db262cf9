"""Avoid updates of norm zero: Flower's clipping divides by the norm."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord

from fedul_flwr.federated.arrays import PlainArray

SHORTEST = 1e-18
"""Smallest step of a weight: its square is still above zero in float32."""


def avoid_zero_norm(update: ArrayRecord, start: ArrayRecord) -> None:
    """Where ``update`` equals ``start``, move one of its weights by the smallest step, in place.

    Flower multiplies an update by min(1, C / its norm). A step this small is never clipped.

    Parameters
    ----------
    update, start : arrays of the same names, types and shapes, at least one of floating point.
    """
    steps = [update[name].numpy() - array.numpy() for name, array in start.items()]
    if sum(np.linalg.norm(step.flat) ** 2 for step in steps):  # of float32, as Flower's norm
        return
    name = next(n for n, a in start.items() if np.issubdtype(np.dtype(a.dtype), np.floating))
    values = update[name].numpy().copy()
    first = values.flat[0]
    values.flat[0] = max(np.nextafter(first, values.dtype.type(np.inf)), first + SHORTEST)
    update[name] = PlainArray.of(values)
