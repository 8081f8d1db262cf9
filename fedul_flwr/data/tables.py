"""Tables of numbers, categories and texts: how they are read, and vectors of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.column_cells import (
    Cells,
    are_plain_numbers,
    codes,
    infer_column,
    is_text,
    number_block,
    with_bounds,
)
from fedul_flwr.data.columns import MAX_FEATURES, Column, Columns, unnamed_columns
from fedul_flwr.data.csv_files import doubtful_point
from fedul_flwr.data.types import Bools, Floats, InputShape
from fedul_flwr.errors import UserError

MAX_BYTES = 65_536
"""Most bytes of a text in UTF-8: all of a collection take as much room as the longest."""


@dataclass(frozen=True)
class Texts:
    """Texts of one split or set, ready to be stored. A text has the shape ``()``.

    Attributes
    ----------
    where : name of this collection in messages.
    cells : bytes ``(n,)``, texts in UTF-8.
    note : how its file was read, if not as usual; else empty.
    """

    where: str
    cells: NDArray[np.bytes_]
    note: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Bytes, as many as the longest text has."""
        return self.cells.dtype

    def __len__(self) -> int:
        return len(self.cells)

    def blocks(self, shape: InputShape) -> Iterator[NDArray[np.bytes_]]:
        """Yield all texts; refuse a ``shape`` of other points."""
        if shape != ():
            raise UserError(
                f"{self.where} holds texts; the run takes other points.", "points-of-another-kind"
            )
        yield self.cells


Missing = Literal["refuse", "mean", "median", "most-frequent"]
Vectors = NDArray[np.float32]

VECTOR_FILES = (".parquet", ".npz", ".csv")
"""Suffixes of files of vectors."""
_BLOCK = 4096
"""Vectors written at a time."""


@dataclass(frozen=True)
class TableOptions:
    """How points are read: settings of these names, and the columns if they are known.

    ``bits`` are those of the values in 16-bit images, 0 if they are not known. ``group`` is the
    column that a natural partition goes by, which is no feature unless the columns have it. With
    ``trained`` the columns are those of a trained model: nothing is taken from the tables, so that
    the vector of a row does not depend on other rows.
    """

    missing: Missing = "refuse"
    label: str = ""
    columns: Columns | None = None
    text: str = ""
    bits: int = 0
    group: str = ""
    trained: bool = False

    @property
    def identity(self) -> list[str]:
        """Part of the key of data that were read with these options."""
        parts = [self.missing, self.label, self.columns.to_json() if self.columns else ""]
        parts += [self.text] if self.text else []
        parts += [f"{self.bits} bits"] if self.bits else []
        return [*parts, f"group {self.group}"] if self.group else parts


NO_OPTIONS = TableOptions()
"""Nothing is known about the columns, and missing values are refused."""


@dataclass(frozen=True)
class Table:
    """The columns of a table as they were read, or vectors without names.

    Attributes
    ----------
    where : its name in messages.
    vectors : ``(n, d)`` numbers, if they came without names; NaN is a missing value.
    cells : else the columns by header, in order, as Arrow's chunked arrays of one length.
    note : how its file was read, if not as usual; else empty.
    mark : what stands before decimals, if a CSV file shows it; else empty.
    """

    where: str
    vectors: NDArray[Any] | None = None
    cells: Mapping[str, Any] | None = None
    note: str = ""
    mark: str = ""

    def __len__(self) -> int:
        if self.vectors is not None:
            return len(self.vectors)
        return len(next(iter(self.cells.values()))) if self.cells else 0

    @property
    def names(self) -> tuple[str, ...]:
        """Headers of the columns; empty if vectors came without names."""
        return tuple(self.cells or ())


@dataclass(frozen=True)
class VectorPoints:
    """Vectors of one split or set, ready to be stored.

    Attributes
    ----------
    where : name of this collection in messages.
    vectors : float32 ``(n, d)``.
    """

    where: str
    vectors: Vectors

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored numbers."""
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.vectors)

    def blocks(self, shape: InputShape) -> Iterator[Vectors]:
        """Yield all vectors in order; refuse another length than ``shape`` says."""
        if self.vectors.shape[1:] != shape:
            raise UserError(
                f"{self.where} holds vectors of {self.vectors.shape[1]} numbers; "
                f"the run takes {'x'.join(map(str, shape))}.",
                "points-of-another-kind",
            )
        for start in range(0, len(self), _BLOCK):
            yield self.vectors[start : start + _BLOCK]


def reading_notes(tables: Iterable[object]) -> tuple[str, ...]:
    """How files were read that are not as usual, one line for all that are alike.

    Parameters
    ----------
    tables : anything with a ``where`` and perhaps a ``note``.
    """
    alike: dict[str, list[str]] = {}
    for table in tables:
        if note := getattr(table, "note", ""):
            alike.setdefault(note, []).append(Path(getattr(table, "where", "")).name)
    return tuple(
        f"{', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}: {note}"
        for note, names in alike.items()
    )


def refuse_too_wide(count: int, where: str) -> None:
    """Refuse vectors that are longer than :data:`MAX_FEATURES`, or have no numbers."""
    if not 0 < count <= MAX_FEATURES:
        raise UserError(
            f"{where} holds vectors of {count} numbers; 1 to {MAX_FEATURES:,} are allowed.",
            "too-many-columns",
        )


_ROWS_AT_A_TIME = 512
"""Columns of numbers that are read at a time."""
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
    columns: list[Column] = []
    for start in range(0, len(first.names), _ROWS_AT_A_TIME):
        names = first.names[start : start + _ROWS_AT_A_TIME]
        plain = are_plain_numbers([_cells(first, name) for name in names])
        columns += [
            Column(name) if is_plain else infer_column([_cells(table, name) for table in tables])
            for name, is_plain in zip(names, plain, strict=True)
        ]
    return Columns(tuple(columns))


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
    if tables[0].vectors is not None:
        return _fit_vectors(tables, columns, missing)
    by_name = {column.name: column for column in columns.columns}
    for column, present in _present(tables, columns):
        fill = _fill(column, present, missing, tables[0])
        by_name[column.name] = replace(column, fill=fill)
    for column in columns.columns:
        if missing != "refuse" and column.categories is not None and column.fill is None:
            present = np.concatenate(
                [codes(_cells(table, column.name), column) for table in tables]
            )
            present = present[present >= 0]
            _refuse_unknown(len(present), column, tables[0])
            fill = column.values[int(np.bincount(present).argmax())]
            by_name[column.name] = replace(column, fill=fill)
    return Columns(tuple(by_name.values()))


def _fit_vectors(tables: Sequence[Table], columns: Columns, missing: Missing) -> Columns:
    """The same by vectors without names, whose numbers are the features of ``columns``."""
    features = _as_numbers(columns)
    means: list[float] = []
    fills: list[float | str | None] = []
    for column, present in _present(tables, features):
        fills.append(_fill(column, present, missing, tables[0]))
        means.append(float(present.mean()) if len(present) else 0.0)
    numbers_filled = tuple(
        column if column.categories else replace(column, fill=fills[positions.start])
        for column, positions in zip(columns.columns, columns.feature_slices.values(), strict=True)
    )
    return Columns(numbers_filled).filled_by(means, missing)


def _as_numbers(columns: Columns) -> Columns:
    """Every feature as a number."""
    named = zip(columns.features, columns.fills(), strict=True)
    return Columns(tuple(Column(n, fill=None if np.isnan(v) else v) for n, v in named))


def _present(tables: Sequence[Table], columns: Columns) -> Iterator[tuple[Column, Floats]]:
    """Each column of numbers with its values that are not missing."""
    for block in _blocks(columns):
        values = np.concatenate([_numbers(table, block, columns) for table in tables])
        _refuse_lost_differences(values, block, tables[0])
        yield from ((c, cells[~np.isnan(cells)]) for c, cells in zip(block, values.T, strict=True))


def _fill(column: Column, present: Floats, missing: Missing, table: Table) -> float | str | None:
    """What fills the missing values of a column of numbers."""
    if missing == "refuse" or column.fill is not None:
        return column.fill
    _refuse_unknown(len(present), column, table)
    if missing == "most-frequent":
        values, counts = np.unique(present, return_counts=True)
        return float(values[counts.argmax()])
    return float(np.median(present) if missing == "median" else np.mean(present))


def encode(tables: Sequence[Table], columns: Columns) -> list[VectorPoints]:
    """Vectors of the features of ``columns``: numbers as they are, categories one-hot.

    The vector of a row depends on no other row.
    """
    _refuse_doubtful_points(tables, columns)
    return [VectorPoints(table.where, _encode(table, columns)) for table in tables]


def _refuse_doubtful_points(tables: Sequence[Table], columns: Columns) -> None:
    """Refuse ``1.234`` in a file that does not show what it means beside one of decimal commas."""
    with_comma = [table.where for table in tables if table.mark == ","]
    numbers = {column.name for column in columns.columns if column.categories is None}
    for table in tables if with_comma else ():
        cells = {n: c for n, c in (table.cells or {}).items() if n in numbers and is_text(c.type)}
        if not table.mark and (doubt := doubtful_point(cells)):
            raise UserError(
                f"Column {doubt[0]!r} of {table.where} holds {doubt[1][:50]!r}, whose point "
                f"may separate thousands, as {with_comma[0]} has a decimal comma: write numbers "
                "without separators of thousands.",
                "decimal-mark",
            )


def _encode(table: Table, columns: Columns) -> Vectors:
    _check_columns(table, columns)
    if table.vectors is not None:
        columns = _as_numbers(columns)
    positions = columns.feature_slices
    vectors: Vectors = np.zeros((len(table), len(columns.features)), dtype=np.float32)
    for block in _blocks(columns):
        values = _numbers(table, block, columns)
        gaps = np.isnan(values)
        if gaps.any():
            fills = np.array([np.nan if c.fill is None else c.fill for c in block], dtype=float)
            values = np.where(gaps, fills, values)
            _refuse_cells(np.isnan(values), block, table, "missing")
        too_large = np.abs(values) > np.finfo(np.float32).max
        _refuse_cells(too_large, block, table, "infinite or too large for float32")
        vectors[:, [positions[column.name].start for column in block]] = values
    for column in columns.columns:
        if column.categories is None:
            continue
        numbers = codes(_cells(table, column.name), column)
        if column.fill is None:
            _refuse_cells((numbers < 0)[:, np.newaxis], [column], table, "missing")
        else:
            numbers[numbers < 0] = column.values.index(str(column.fill))
        vectors[np.arange(len(table)), positions[column.name].start + numbers] = 1
    return vectors


def _blocks(columns: Columns) -> Iterator[list[Column]]:
    """The columns of numbers, some at a time."""
    listed = [column for column in columns.columns if column.categories is None]
    for start in range(0, len(listed), _ROWS_AT_A_TIME):
        yield listed[start : start + _ROWS_AT_A_TIME]


def _cells(table: Table, name: str) -> Cells:
    assert table.cells is not None
    return Cells(name, table.where, table.cells[name])


def _bounded(table: Table, column: Column) -> Cells:
    """The cells of a number, by the columns' rule for ``<0.5``."""
    cells = _cells(table, column.name)
    return cells if column.below is None else with_bounds(cells, column.below, table.mark)[0]


def _numbers(table: Table, block: Sequence[Column], columns: Columns) -> Floats:
    """``(n, b)``: some of the columns of numbers, NaN where a value is missing."""
    if table.vectors is None:
        return number_block([_bounded(table, column) for column in block])
    positions = columns.feature_slices
    taken = [positions[column.name].start for column in block]
    return np.asarray(table.vectors[:, taken], dtype=np.float64)


def _check_columns(table: Table, columns: Columns) -> None:
    if table.vectors is not None:
        width = table.vectors.shape[1]
        if width != len(columns.features):
            raise UserError(
                f"{table.where} holds vectors of {width} numbers; {len(columns.features)} are "
                "needed.",
                "points-of-another-kind",
            )
        return
    for name in columns.names:
        if name not in (table.cells or {}):
            raise UserError(
                f"{table.where} has no column {name!r}; its columns are: "
                f"{', '.join(table.names[:20])}{', …' if len(table.names) > 20 else ''}.",
                "column-missing",
            )


def _refuse_cells(bad: Bools, block: Sequence[Column], table: Table, what: str) -> None:
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
        f"Column {block[index].name!r} of {table.where} has {count} {values} {what}, {first}: "
        f"{hint}.",
        "cell-not-a-number",
    )


def _refuse_lost_differences(values: Floats, block: Sequence[Column], table: Table) -> None:
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
                f"Column {block[index].name!r} of {table.where} holds numbers from "
                f"{column.min():.17g} to {column.max():.17g}, which differ by less than float32 "
                "can tell: subtract a constant, such as the smallest one, or leave the column out.",
                "column-without-spread",
            )


def _refuse_unknown(count: int, column: Column, table: Table) -> None:
    if count == 0:
        raise UserError(
            f"Column {column.name!r} of {table.where} holds no value at all, so its missing values "
            'cannot be filled: leave it out, or give it a "fill" in the columns file.',
            "column-without-spread",
        )
