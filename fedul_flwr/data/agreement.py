"""Whether one owner's columns are like those of all others, by counts over a stated grid.

An owner whose unit is another one, or whose categories are swapped, harms all, and nobody sees it:
means and scales of all are there, but one owner's numbers are in them. Counts over a grid of
logarithms are added up under masks, each owner takes its own away, and compares quartiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.data.columns import Columns
from fedul_flwr.data.types import Inputs

PER_DECADE = 8
"""Bins between a number and its tenfold: neighbors differ by a third."""
_LEAST, _DECADES = 1e-6, 15
_EDGES: Floats = _LEAST * 10.0 ** (np.arange(1, PER_DECADE * _DECADES) / PER_DECADE)
_SIDE = len(_EDGES) + 1
"""Bins on each side of 0; the last ones have no end."""
BINS = 2 * _SIDE + 1
"""Bins of a column: below 0, about 0, and above."""
MOST_COLUMNS = 256
"""Features of which counts are made; there are more where others than people have named them."""
_BITS, _IN_ONE = 40, 15
"""A count is below 2^40, of 2^20 clients, and so many are one whole number."""
FEWEST = 10
"""Points below which quartiles say nothing."""
_FAR = 0.5
"""By how much an owner's share of a category differs from that of others."""


def column_counts(inputs: Inputs, points: Ints) -> Ints:
    """``(d, BINS)``, how many rows ``points`` of ``inputs`` are in each bin, by column."""
    rows = np.asarray(inputs[points], np.float64)
    sizes = np.abs(rows)
    steps = np.searchsorted(_EDGES, sizes, side="right") + 1
    at = _SIDE + np.where(sizes < _LEAST, 0, np.where(rows < 0, -steps, steps))
    return np.stack([np.bincount(column, minlength=BINS) for column in at.T]).astype(np.int64)


def packed(counts: Ints) -> list[int]:
    """Counts as whole numbers, of which sums are those of the counts."""
    flat = counts.ravel().tolist()
    return [
        sum(count << (_BITS * at) for at, count in enumerate(flat[start : start + _IN_ONE]))
        for start in range(0, len(flat), _IN_ONE)
    ]


def packed_size(columns: int) -> int:
    """How many numbers :func:`packed` gives."""
    return -(-columns * BINS // _IN_ONE)


def unpacked(numbers: Sequence[int], columns: int) -> Ints:
    """The counts ``(columns, BINS)`` of :func:`packed`, or of a sum of these."""
    mask = (1 << _BITS) - 1
    flat = [(number >> (_BITS * at)) & mask for number in numbers for at in range(_IN_ONE)]
    return np.array(flat[: columns * BINS], np.int64).reshape(columns, BINS)


def _quartiles(counts: Ints) -> Floats:
    """``(3,)``, the middle of the bins in which the quartiles of a column are."""
    middles = np.concatenate([[_LEAST], _EDGES]) * 10 ** (0.5 / PER_DECADE)
    values = np.concatenate([-middles[::-1], [0.0], middles])
    after = np.searchsorted(counts.cumsum(), np.array([0.25, 0.5, 0.75]) * counts.sum())
    return np.asarray(values[after])


def differences(mine: Ints, everybody: Ints, columns: Columns | None) -> Iterator[str]:
    """How columns of one owner differ from those of all others, in sentences for this owner.

    Numbers differ if no part of the middle half of them lies where that of the others does. A
    category differs if its share is larger or smaller by half of all.

    Parameters
    ----------
    mine, everybody : ``(d, BINS)``, counts of the owner's points, and of all.
    """
    others = np.maximum(everybody - mine, 0)
    each = {f"{at}": slice(at, at + 1) for at in range(len(mine))}
    values = {column.name: column.values for column in columns.columns} if columns else {}
    for name, features in (columns.feature_slices if columns else each).items():
        ours, theirs = mine[features], others[features]
        if min(ours[0].sum(), theirs[0].sum()) < FEWEST:
            continue
        categories = values.get(name)
        if not categories:
            yield from _of_number(name, ours[0], theirs[0])
            continue
        for category, here, there in zip(categories, ours, theirs, strict=True):
            shares = [1 - float(counts[_SIDE] / counts.sum()) for counts in (here, there)]
            if abs(shares[0] - shares[1]) > _FAR:
                yield (
                    f"column {name!r}: {shares[0]:.0%} of your rows are {category!r}, and "
                    f"{shares[1]:.0%} of those of all other owners: other names of categories?"
                )


def _of_number(name: str, mine: Ints, others: Ints) -> Iterator[str]:
    (low, middle, high), (least, usual, most) = _quartiles(mine), _quartiles(others)
    if low <= most and least <= high:
        return
    times = middle / usual if usual * middle > 0 else 0.0
    factor = f", {times:.2g} times as much" if times > 0 else ""
    yield (
        f"column {name!r}: half of your numbers are about {low:.2g} to {high:.2g}, and half of "
        f"those of all other owners {least:.2g} to {most:.2g}{factor}: another unit?"
    )
