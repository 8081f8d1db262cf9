"""Class priors as users write them: K numbers that sum to 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedul_flwr.config.base import nearest

PriorsLike = ArrayLike | Mapping[str, float]
"""Class priors in the order of the classes, or by their names."""
SUM_TOLERANCE = 1e-4
"""How far the sum of class priors may be from 1."""


def checked_prior(values: ArrayLike) -> NDArray[np.float64]:
    """Class priors ``(K,)`` divided by their sum.

    Raises
    ------
    ValueError
        If an entry is not between 0 and 1 (both excluded), or the sum differs from 1 by more than
        1e-4; the message is the violated rule.
    """
    prior = np.asarray(values, dtype=np.float64)
    if prior.ndim != 1 or not ((prior > 0) & (prior < 1)).all():
        raise ValueError("needs every class prior between 0 and 1, both excluded")
    if abs(prior.sum() - 1) > SUM_TOLERANCE:
        raise ValueError("must be class priors that sum to 1")
    return np.asarray(prior / prior.sum(), dtype=np.float64)


def is_named(labels: Iterable[object]) -> bool:
    """Whether rows or columns of a table have other names than pandas' default, 0 to n - 1."""
    names = list(labels)
    return names != [*range(len(names))]


def in_order(values: Any, names: Iterable[object]) -> Any:
    """Values of which each has a name, in the order of ``names``; others as they are.

    A mapping has names, and so has a Series or a DataFrame (for its rows), unless its index is
    that of pandas by default.

    Raises
    ------
    ValueError
        If they have other names.
    """
    is_mapping = isinstance(values, Mapping)
    index = list(values) if is_mapping else getattr(values, "index", None)
    if index is None or callable(index):  # a list has a method of this name
        return values
    if not is_mapping and not is_named(index):
        return values
    there, wanted = [*map(str, index)], [*map(str, names)]
    if sorted(there) != sorted(wanted):
        raise ValueError(
            f"the priors are of {', '.join(there)}, and must be of {', '.join(wanted)}"
        )
    rows = np.asarray([*values.values()] if is_mapping else values)
    return rows[[there.index(name) for name in wanted]]


def parse_prior(text: str, words: Sequence[str] = ()) -> list[float]:
    """Parse class priors, K numbers separated by commas; they are not normalized.

    Parameters
    ----------
    words : words that are allowed instead of numbers, for the message.

    Raises
    ------
    ValueError
        With the violated rule of :func:`checked_prior`, or if these are not numbers.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        either = f"{', '.join(map(repr, words))} or " if words else ""
        hint = nearest(text, words)
        raise ValueError(f"must be {either}numbers separated by commas{hint}") from None
    checked_prior(numbers)
    return numbers
