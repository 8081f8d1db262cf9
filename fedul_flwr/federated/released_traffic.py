"""Traffic to a client as the code of FedMatch's authors counts it, beside what we send.

There a difference that is at most the threshold costs nothing, values of psi below its cutoff count
as 0, and helpers cost their differences from the client's psi where they are not 0. The client then
gets sigma and psi as they are, so the threshold changes what is counted and not what is trained.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Arrays
from fedul_flwr.learning.decomposition import PSI, Parts, unlabeled_part

Array = NDArray[np.float32]


def changed_values(
    parts: Parts, held: Parts, helpers: Sequence[Arrays], threshold: float, cutoff: float
) -> int:
    """Number of values that a client pays for in one message.

    Parameters
    ----------
    parts : the server's sigma and psi.
    held : those that the client has, or with a new one those of the client in whose place it runs;
        empty if there is none, as in the first round, which costs both parts whole.
    helpers : psi of its helpers.
    threshold, cutoff : least difference that counts, and least value of psi.
    """
    psi = unlabeled_part(parts)
    cutoff = cutoff if psi == PSI else 0.0
    if not held:
        return sum(array.size for arrays in parts.values() for array in arrays.values())
    total = 0
    for part, arrays in parts.items():
        for name, array in arrays.items():
            pair = array, held[part][name]
            new, old = (_cut(one, cutoff) for one in pair) if part == psi else pair
            total += _count(new - old, threshold)
    for helper in helpers:
        for name, array in helper.items():
            new = _cut(array, cutoff)
            old = _cut(held[psi][name], cutoff) * (new != 0)
            total += _count(new - old, threshold)
    return total


def _cut(values: Array, cutoff: float) -> Array:
    """``values`` with 0 in place of those of at most ``cutoff``."""
    return np.where(np.abs(values) > cutoff, values, np.float32(0))


def _count(differences: Array, threshold: float) -> int:
    return int(np.count_nonzero(np.abs(differences) > threshold))
