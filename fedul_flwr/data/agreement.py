"""Whether one owner's columns or images are like all others', by counts over a stated grid.

An owner whose unit is another one, or whose categories are swapped, harms all, and nobody sees it:
means and scales of all are there, but one owner's numbers are in them. Counts over a grid of
logarithms are added up under masks, each owner takes its own away, and compares quartiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.data.columns import Column, Columns, unnamed_columns
from fedul_flwr.data.standardize import Moments

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
MOST_PAIRS = 256
"""Pairs of a category and a number of which products are summed; none if there are more."""
_TOGETHER, _ENOUGH = 0.25, 30
"""Correlation from which a category and a number go together, and points that show it."""
_FAR = 0.5
"""By how much an owner's share of a category differs from that of others."""


@dataclass(frozen=True)
class Words:
    """How an owner reads of what is compared.

    Attributes
    ----------
    finer : how many times as many ranges a number has, by name: its power is counted.
    asks : what may be the cause, by name.
    """

    column: str = "column {!r}:"
    rows: str = "rows"
    numbers: str = "numbers"
    finer: Mapping[str, int] = field(default_factory=dict)
    asks: Mapping[str, str] = field(default_factory=dict)


TABLES = Words()
"""Of columns."""


def column_counts(
    rows: Floats, columns: Columns | None = None, finer: Mapping[str, int] | None = None
) -> Ints:
    """``(d, BINS)``, how many of ``rows`` ``(n, d)`` are in each bin, by column; NaN is in none."""
    at = (columns or unnamed_columns(rows.shape[1])).feature_slices if finer else {}
    powers = np.ones(rows.shape[1])
    for name, slice_of in at.items():
        powers[slice_of] = (finer or {}).get(name, 1)
    values = np.asarray(rows, np.float64)
    sizes = np.abs(values) ** powers
    steps = np.searchsorted(_EDGES, sizes, side="right") + 1
    bins = _SIDE + np.where(sizes < _LEAST, 0, np.where(values < 0, -steps, steps))
    gaps = np.isnan(values)
    counts = [np.bincount(b[~gap], minlength=BINS) for b, gap in zip(bins.T, gaps.T, strict=True)]
    return np.stack(counts).astype(np.int64)


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


def differences(
    mine: Ints, everybody: Ints, columns: Columns | None, words: Words = TABLES
) -> Iterator[str]:
    """How columns of one owner differ from those of all others, in sentences for this owner.

    Numbers differ if no part of the middle half of them lies where that of the others does. A
    category differs if its share is larger or smaller by half of all.

    Parameters
    ----------
    mine, everybody : ``(d, BINS)``, counts of the owner's points, and of all.
    """
    others = np.maximum(everybody - mine, 0)
    each = columns or Columns(tuple(map(Column, map(str, range(len(mine))))))
    for column, features in zip(each.columns, each.feature_slices.values(), strict=True):
        ours, theirs = mine[features], others[features]
        if min(ours[0].sum(), theirs[0].sum()) < FEWEST:
            continue
        begin, ask = words.column.format(column.name), words.asks.get(column.name)
        if column.categories is None:
            power = words.finer.get(column.name, 1)
            yield from _of_number(begin, ours[0], theirs[0], words, power, ask or "another unit?")
            continue
        for category, here, there in zip(column.values, ours, theirs, strict=True):
            shares = [1 - float(counts[_SIDE] / counts.sum()) for counts in (here, there)]
            if abs(shares[0] - shares[1]) > _FAR:
                yield (
                    f"{begin} {shares[0]:.0%} of your {words.rows} are {category!r}, and "
                    f"{shares[1]:.0%} of those of all other owners: "
                    f"{ask or 'other names of categories?'}"
                )


def _of_number(
    begin: str, mine: Ints, others: Ints, words: Words, power: int, ask: str
) -> Iterator[str]:
    (low, middle, high), (least, usual, most) = _quartiles(mine), _quartiles(others)
    if low <= most and least <= high:
        return
    root = [np.sign(q) * abs(q) ** (1 / power) for q in (low, middle, high, least, usual, most)]
    low, middle, high, least, usual, most = root
    times = middle / usual if usual * middle > 0 else 0.0
    factor = f", {times:.2g} times as much" if times > 0 else ""
    yield (
        f"{begin} half of your {words.numbers} are about {low:.2g} to {high:.2g}, and half of "
        f"those of all other owners {least:.2g} to {most:.2g}{factor}: {ask}"
    )


def category_pairs(columns: Columns | None) -> Ints:
    """``(p, 2)``, features of categories and of numbers, of which means of products tell whether
    they go together; none if there are more than :data:`MOST_PAIRS`."""
    features = {c.name: c.categories is None for c in columns.columns} if columns else {}
    at = columns.feature_slices if columns else {}
    numbers = [at[name].start for name, is_number in features.items() if is_number]
    ones = [f for name in at if not features[name] for f in range(at[name].start, at[name].stop)]
    pairs = [(one, number) for one in ones for number in numbers]
    return np.array(pairs if len(pairs) <= MOST_PAIRS else [], np.int64).reshape(-1, 2)


def in_place_of_rare(rows: Floats, columns: Columns | None, pairs: Ints) -> Floats:
    """``(p,)``, by pair the mean of the number, NaN where the numbers themselves are multiplied.

    Sums by category would be the numbers of a patient, if the patient alone has a category. So an
    owner with fewer than :data:`FEWEST` rows of one multiplies all categories of that column by
    means, as if nothing went with them: other categories and the total would tell the rest.
    """
    means = np.full(len(pairs), np.nan)
    for at in columns.feature_slices.values() if columns and len(pairs) else ():
        counts = rows[:, at].sum(axis=0)
        if (counts[counts > 0] < FEWEST).any():
            here = (at.start <= pairs[:, 0]) & (pairs[:, 0] < at.stop)
            means[here] = rows[:, pairs[here, 1]].mean(axis=0)
    return means


def swapped(
    mine: Moments, count: int, everybody: Moments, total: int, columns: Columns
) -> Iterator[str]:
    """Categories that go with larger numbers at one owner, and with smaller at all others.

    Shares do not show two names that are swapped where both are about as frequent; other columns
    do, if they go with the category.

    Parameters
    ----------
    mine, everybody : moments ``(d + p,)`` of ``count`` and of ``total`` points: of features, and of
        the products of :func:`category_pairs`.
    """
    pairs, width = category_pairs(columns), len(columns.features)
    if min(count, total - count) < _ENOUGH or not len(pairs):
        return
    squares = [m.variances + m.means**2 for m in (mine, everybody)]
    means = (total * everybody.means - count * mine.means) / (total - count)
    rest = (total * squares[1] - count * squares[0]) / (total - count)
    here = _correlations(mine.means, mine.variances, pairs, width)
    there = _correlations(means, rest - means**2, pairs, width)
    both = np.where(here * there < 0, np.minimum(abs(here), abs(there)), 0)
    of_feature = [(c, value) for c in columns.columns for value in (c.values or (c.name,))]
    least = max(_TOGETHER, 3 / np.sqrt(min(count, total - count)))  # and not by chance
    odd: set[str] = set()
    for pair in np.argsort(-both):
        column, value = of_feature[pairs[pair, 0]]
        if both[pair] < least or column.name in odd:
            continue
        odd.add(column.name)
        number = of_feature[pairs[pair, 1]][1]
        larger = ("larger", "smaller") if here[pair] > 0 else ("smaller", "larger")
        yield (
            f"column {column.name!r}: {value!r} goes with {larger[0]} {number!r} in your rows, and "
            f"with {larger[1]} in those of all other owners: swapped names of categories?"
        )


def _correlations(means: Floats, variances: Floats, pairs: Ints, width: int) -> Floats:
    """``(p,)``, of pairs of features; 0 where one is constant."""
    left, right = pairs.T
    deviations = np.sqrt(np.maximum(variances[left] * variances[right], 0))
    together = means[width : width + len(pairs)] - means[left] * means[right]
    out = np.zeros(len(pairs))
    return np.asarray(np.divide(together, deviations, out=out, where=deviations > 0))
