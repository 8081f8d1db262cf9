"""Columns that say who has a point, its set, its class or its row, and so are no features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Ints
from fedul_flwr.data.types import UNLABELED

SAID = {
    **{"clients": "which client has a point", "sets": "which set a point is of"},
    **{"y": "the class", "rows": "the number of a row"},
}
"""What a column says that is no feature, by what has the same values."""
_FEW = 20
"""Points of fewer than so many may have a column equal to their classes by chance."""
_FIRST = 1000
"""Rows that are compared first, as most columns already differ in them."""


def said_by(values: Any, by: Mapping[str, Ints]) -> str:
    """Which of ``by`` a column ``(n,)`` repeats, by groups of equal values; empty for none.

    Parameters
    ----------
    by : numbers of groups ``(n,)``, by the keys of :data:`SAID`; -1 is no group.

    Examples
    --------
    >>> said_by(["a", "b"] * 10, {"y": np.array([1, 0] * 10)})
    'y'
    """
    import pandas as pd

    column = pd.Series(values)
    for what, numbers in by.items():
        if what == "rows":  # all values of a measurement may differ, too: these count
            counts = pd.api.types.is_numeric_dtype(column) and len(column) >= _FEW
            if counts and any((column.to_numpy() == numbers + start).all() for start in (0, 1)):
                return what
            continue
        there = np.flatnonzero(numbers != UNLABELED)
        parts = there[:_FIRST], there
        if len(there) >= _FEW and all(_same_groups(column, numbers, part) for part in parts):
            return what
    return ""


def left_out(said: Mapping[str, str]) -> dict[str, str]:
    """Columns that are no features, of what each says (:func:`said_by`).

    Where nothing else is left, a column that tells the classes apart is the measurement itself, as
    in made data.
    """
    of_clients = {name: what for name, what in said.items() if what in ("clients", "sets")}
    saying = {name: what for name, what in said.items() if what}
    return saying if len(saying) < len(said) else of_clients


def in_words(saying: Mapping[str, str]) -> list[str]:
    """A sentence for each column that :func:`left_out` names."""
    return [
        f"Column {name!r} says {SAID[what]}, and is no feature." for name, what in saying.items()
    ]


def _same_groups(column: Any, numbers: Ints, rows: Ints) -> bool:
    """Whether two columns divide ``rows`` into the same groups, of two or more in all of them."""
    import pandas as pd

    codes, other = pd.factorize(column.iloc[rows])[0], numbers[rows]
    pairs = {*zip(codes.tolist(), other.tolist(), strict=True)}
    is_one = len(rows) == _FIRST and len(pairs) == 1  # sorted points: the others tell
    return is_one or len({*codes.tolist()}) == len({*other.tolist()}) == len(pairs) > 1


def saying_feature(vectors: NDArray[Any], by: Mapping[str, Ints]) -> tuple[int, str] | None:
    """The first column of vectors ``(n, d)`` that repeats one of ``by``, and which; else None."""
    groups_of = {what: numbers for what, numbers in by.items() if what != "rows"}
    for what, numbers in groups_of.items() if len(vectors) else ():
        groups = [vectors[numbers == number] for number in np.unique(numbers[numbers >= 0])]
        if len(groups) < 2 or (numbers >= 0).sum() < _FEW:
            continue
        first = np.stack([group[0] for group in groups])
        alike = np.all([(group == group[0]).all(axis=0) for group in groups], axis=0)
        for column in np.flatnonzero(alike).tolist():
            if len(np.unique(first[:, column])) == len(groups):
                return column, what
    return None
