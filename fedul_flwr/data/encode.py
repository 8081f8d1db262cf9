"""Vectors of the rows of tables: what columns mean, what fills gaps, numbers and one-hot texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedul_flwr.data.column_cells import Cells, codes, infer_column, is_text, numbers, with_bounds
from fedul_flwr.data.columns import Column, Columns, unnamed_columns
from fedul_flwr.data.csv_numbers import doubtful_point
from fedul_flwr.data.tables import Missing, Table, VectorPoints
from fedul_flwr.data.types import Bools, Floats, Ints
from fedul_flwr.errors import UserError

_TOGETHER = 512
"""Features that are computed at a time."""
_LARGEST_ERROR = 0.01
"""Largest error of float32 in standard deviations of a column."""


def infer_columns(tables: Sequence[Table]) -> Columns:
    """What the columns of tables mean (:func:`~fedul_flwr.data.column_cells.infer_column`).

    Parameters
    ----------
    tables : with the same columns, the training data first.
    """
    first = tables[0]
    for other in tables[1:]:
        if odd := sorted(set(first.names) ^ set(other.names)):
            raise UserError(
                f"The columns of {first.where} and {other.where} differ in column {odd[0]!r}; both "
                "must have the same, in any order.",
                "columns-differ",
            )
    if first.vectors is not None:
        return unnamed_columns(first.vectors.shape[1])
    return Columns(
        tuple(infer_column([cells_of(table, name) for table in tables]) for name in first.names)
    )


def fit(tables: Sequence[Table], columns: Columns, missing: Missing) -> Columns:
    """The columns with what training data say of them: a ``fill`` where they have none yet.

    Parameters
    ----------
    tables : the training split of a data set, or all tables of an owner.
    missing : rule for the values of ``fill``; categories get the most frequent one, and none of
        them is chosen with ``"refuse"``.
    """
    for table in tables:
        _check_columns(table, columns)
    by_name = {column.name: column for column in columns.columns}
    fillable = {c.name for c in columns.columns if c.fill is None and missing != "refuse"}
    for block, at_block in _blocks(columns):
        if all(c.categories is not None and c.name not in fillable for c in block):
            continue
        values = np.concatenate([_values(table, block, at_block) for table in tables])
        _refuse_lost_differences(values, block, tables[0].where)
        for name, at in Columns(tuple(block)).feature_slices.items():
            if name not in fillable:
                continue
            present = values[:, at][~np.isnan(values[:, at.start])]
            if not len(present):
                raise UserError(
                    f"Column {name!r} of {tables[0].where} holds no value at all, so its missing "
                    'values cannot be filled: leave it out, or give it a "fill" in the columns '
                    "file.",
                    "column-without-spread",
                )
            by_name[name] = replace(by_name[name], fill=_fill(by_name[name], present, missing))
    return Columns(tuple(by_name.values()))


def _fill(column: Column, present: Floats, missing: Missing) -> float | str:
    """What fills the missing values of a column, from the values of its features."""
    if column.categories is not None:
        return column.values[int(present.sum(axis=0).argmax())]
    if missing == "most-frequent":
        values, counts = np.unique(present, return_counts=True)
        return float(values[counts.argmax()])
    return float(np.median(present) if missing == "median" else np.mean(present[:, 0]))


def encode(tables: Sequence[Table], columns: Columns) -> list[VectorPoints]:
    """Vectors of the features of ``columns``: numbers as they are, categories one-hot.

    The vector of a row depends on no other row.
    """
    _refuse_doubtful_points(tables, columns)
    fills = np.array(columns.fills())
    encoded = []
    for table in tables:
        _check_columns(table, columns)
        vectors = np.zeros((len(table), len(fills)), dtype=np.float32)
        for block, at in _blocks(columns):
            values = _values(table, block, at)
            gaps = np.isnan(values)
            if gaps.any():
                values = np.where(gaps, fills[at], values)
                _refuse_cells(np.isnan(values), block, table.where, "missing")
            too_large = np.abs(values) > np.finfo(np.float32).max
            _refuse_cells(too_large, block, table.where, "infinite or too large for float32")
            vectors[:, at] = values
        encoded.append(VectorPoints(table.where, vectors))
    return encoded


def _blocks(columns: Columns) -> Iterator[tuple[list[Column], Ints]]:
    """The columns of numbers, then those of categories, some at a time, and their features."""
    places = columns.feature_slices
    block: list[Column] = []
    at: list[int] = []
    for column in sorted(columns.columns, key=lambda column: column.categories is not None):
        is_other = block and (block[-1].categories is None) != (column.categories is None)
        if block and (is_other or len(at) + len(column.features) > _TOGETHER):
            yield block, np.array(at)
            block, at = [], []
        block.append(column)
        at += range(places[column.name].start, places[column.name].stop)
    yield block, np.array(at)


def _check_columns(table: Table, columns: Columns) -> None:
    names = {*table.names}
    if table.vectors is not None:
        width = table.vectors.shape[1]
        if width != len(columns.features):
            raise UserError(
                f"{table.where} holds vectors of {width} numbers; {len(columns.features)} are "
                "needed.",
                "points-of-another-kind",
            )
    elif lacking := [name for name in columns.names if name not in names]:
        raise table.lacks(f"column {lacking[0]!r}")


def cells_of(table: Table, name: str) -> Cells:
    """A column of a table."""
    return Cells(name, table.where, table.column(name), table.floats.get(name))


def _values(table: Table, block: Sequence[Column], at: Ints) -> Floats:
    """``(n, b)``, features of some columns, all NaN where a value is missing."""
    if table.vectors is not None:
        return np.asarray(table.vectors[:, at], dtype=np.float64)
    parts = []
    for column in block:
        cells = cells_of(table, column.name)
        if column.categories is None:
            if column.below is not None:
                cells, _ = with_bounds(cells, column.below, table.mark)
            parts.append(numbers(cells))
            continue
        places_of_rows = codes(cells, column)
        one_hot = np.eye(len(column.values) + 1, len(column.values))
        one_hot[-1] = np.nan
        parts += [*one_hot[places_of_rows].T]
    return np.stack(parts, axis=1)


def _refuse_doubtful_points(tables: Sequence[Table], columns: Columns) -> None:
    """Refuse ``1.234`` in a file that does not show what it means beside one of decimal commas."""
    with_comma = [table.where for table in tables if table.mark == ","]
    listed = [column.name for column in columns.columns if column.categories is None]
    for table in tables if with_comma else ():
        cells = {
            n: table.column(n) for n in listed if n in table.names and is_text(table.type_of(n))
        }
        if not table.mark and (doubt := doubtful_point(cells)):
            raise UserError(
                f"Column {doubt[0]!r} of {table.where} holds {doubt[1][:50]!r}, whose point "
                f"may separate thousands, as {with_comma[0]} has a decimal comma: write numbers "
                "without separators of thousands.",
                "decimal-mark",
            )


def _named(index: int, block: Sequence[Column]) -> str:
    """The column of a feature of a block."""
    return [column.name for column in block for _ in column.features][index]


def _refuse_cells(bad: Bools, block: Sequence[Column], where: str, what: str) -> None:
    if not bad.any():
        return
    index = int(bad.any(axis=0).argmax())
    count = int(bad[:, index].sum())
    hint = (
        "fill them, train with missing = 'mean', 'median' or 'most-frequent', or give the column a "
        '"fill" in the columns file'
        if what == "missing"
        else "all values must be finite"
    )
    values = "value that is" if count == 1 else "values that are"
    first = f"{'' if count == 1 else 'the first '}in row {int(bad[:, index].argmax()) + 1}"
    raise UserError(
        f"Column {_named(index, block)!r} of {where} has {count} {values} {what}, {first}: {hint}.",
        "cell-not-a-number",
    )


def _refuse_lost_differences(values: Floats, block: Sequence[Column], where: str) -> None:
    """Refuse a column whose values are so large that float32 does not tell them apart."""
    finite = np.where(np.isfinite(values), values, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.abs(finite.astype(np.float32) - finite).max(axis=0, initial=0)
    for index in np.flatnonzero(errors > 0).tolist():
        column = values[np.isfinite(values[:, index]), index]
        with np.errstate(over="ignore"):  # beyond 1e154 squares are infinite, and so is this
            deviation = float((column - column[0]).std()) if len(column) else 0.0
        if deviation > 0 and _LARGEST_ERROR * deviation < errors[index] < np.inf:
            raise UserError(
                f"Column {_named(index, block)!r} of {where} holds numbers from "
                f"{column.min():.17g} to {column.max():.17g}, which differ by less than float32 "
                "can tell: subtract a constant, such as the smallest one, or leave the column out.",
                "column-without-spread",
            )
