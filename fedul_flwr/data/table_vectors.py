"""Vectors of tables: which columns there are, missing values, categories one-hot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.columns import Column, Columns, unnamed_columns
from fedul_flwr.data.tables import Missing, Table, VectorPoints
from fedul_flwr.data.types import Bools
from fedul_flwr.errors import UserError

MAX_CATEGORIES = 256
"""Most categories that a column has without a columns file: a column with more is free text."""


def infer_columns(tables: Sequence[Table]) -> Columns:
    """Columns of tables with the same columns; categories are those of all of them, sorted.

    Raises
    ------
    UserError
        If the tables have other columns, or a column has more categories than a category may have.
    """
    first = tables[0]
    for other in tables[1:]:
        if other.names != first.names:
            odd = sorted(set(first.names) ^ set(other.names))
            what = f"column {odd[0]!r}" if odd else "the order of the columns"
            raise UserError(
                f"The columns of {first.where} and {other.where} differ in {what}; both must have "
                "the same."
            )
    if not first.names:
        return unnamed_columns(first.numbers.shape[1])
    texts = {name for table in tables for name in table.texts}
    return Columns(
        tuple(Column(n, _categories(tables, n) if n in texts else None) for n in first.names)
    )


def _categories(tables: Sequence[Table], name: str) -> tuple[str, ...]:
    found: set[str] = set()
    for table in tables:
        found |= {value for value in _texts(table, name) if value is not None}
    if len(found) > MAX_CATEGORIES:
        raise UserError(
            f"Column {name!r} of {tables[0].where} holds {len(found)} different texts, too many "
            f"for a category (at most {MAX_CATEGORIES}): leave it out, or name its categories in a "
            "columns file."
        )
    return tuple(sorted(found))


def _texts(table: Table, name: str) -> NDArray[np.object_]:
    """A column as texts, also if a file holds its categories as numbers."""
    if name in table.texts:
        return table.texts[name]
    numbers = table.numbers[:, table.positions[name]]
    cells = [None if np.isnan(value) else f"{value:g}" for value in numbers]
    return np.array(cells, dtype=object)


def encode(
    tables: Sequence[Table], columns: Columns, missing: Missing, fit_on: slice = slice(None)
) -> list[VectorPoints]:
    """Vectors of the features of ``columns``: numbers as they are, categories one-hot.

    Parameters
    ----------
    missing : rule for missing values; categories take the most frequent one unless it is
        ``"refuse"``.
    fit_on : tables whose values fill the missing ones: the training split, or all of an owner.

    Raises
    ------
    UserError
        If a column is missing, a value is missing or not finite, a text stands where a number is
        needed, a category is unknown, or vectors have another length.
    """
    for table in tables:
        _check_columns(table, columns)
    places: dict[str, slice] = {}
    start = 0
    for column in columns.columns:
        places[column.name] = slice(start, start + len(column.features))
        start += len(column.features)
    encoded = [np.empty((len(table), start), dtype=np.float32) for table in tables]
    categories = [c for c in columns.columns if c.categories is not None and tables[0].names]
    numbers = [c.name for c in columns.columns if c not in categories]
    taken = [places[name].start for name in numbers] if tables[0].names else slice(None)
    filled = _fill_numbers([_numbers(t, numbers) for t in tables], numbers, tables, missing, fit_on)
    for vectors, part in zip(encoded, filled, strict=True):
        vectors[:, taken] = part
    for column in categories:
        filled = _one_hot(tables, column, missing, fit_on)
        for vectors, part in zip(encoded, filled, strict=True):
            vectors[:, places[column.name]] = part
    return [VectorPoints(t.where, v) for t, v in zip(tables, encoded, strict=True)]


def _check_columns(table: Table, columns: Columns) -> None:
    if not table.names:
        width = table.numbers.shape[1]
        if width != len(columns.features):
            raise UserError(
                f"{table.where} holds vectors of {width} numbers; {len(columns.features)} are "
                "needed."
            )
        return
    there = {*table.names}
    for name in columns.names:
        if name not in there:
            raise UserError(
                f"{table.where} has no column {name!r}; its columns are: "
                f"{', '.join(table.names[:20])}{', …' if len(table.names) > 20 else ''}."
            )


def _numbers(table: Table, names: Sequence[str]) -> NDArray[Any]:
    """``(n, p)``: columns of numbers, NaN where a value is missing."""
    if not table.names:
        return table.numbers
    texts = [name for name in names if name in table.texts]
    found = np.empty((len(table), len(names)))
    index = table.positions
    found[:, [names.index(n) for n in texts]] = np.nan
    known = [place for place, name in enumerate(names) if name not in table.texts]
    found[:, known] = table.numbers[:, [index[names[place]] for place in known]]
    for name in texts:
        for row, cell in enumerate(table.texts[name]):
            try:
                found[row, names.index(name)] = np.nan if cell is None else float(cell)
            except ValueError:
                raise UserError(
                    f"Column {name!r} of {table.where} holds {str(cell)[:50]!r}, where a number is "
                    "needed."
                ) from None
    return found


def _fill_numbers(
    parts: Sequence[NDArray[Any]],
    names: Sequence[str],
    tables: Sequence[Table],
    missing: Missing,
    fit_on: slice,
) -> list[NDArray[Any]]:
    """Columns of numbers ``(n, p)`` of every table, without missing values."""
    largest = np.finfo(np.float32).max
    for part, table in zip(parts, tables, strict=True):
        _refuse_cells(np.abs(part) > largest, names, table, "infinite or too large for float32")
        if missing == "refuse":
            _refuse_cells(np.isnan(part), names, table, "missing")
    if not any(np.isnan(part).any() for part in parts):
        return list(parts)
    known = np.concatenate(list(parts[fit_on]))
    _refuse_unknown(np.isnan(known).all(axis=0), names, tables[fit_on][0])
    from sklearn.impute import SimpleImputer

    imputer = SimpleImputer(strategy=missing.replace("-", "_")).fit(known)
    return [imputer.transform(part) for part in parts]


def _refuse_cells(bad: Bools, names: Sequence[str], table: Table, what: str) -> None:
    if not bad.any():
        return
    column = int(bad.any(axis=0).argmax())
    count = int(bad[:, column].sum())
    hint = (
        "fill them, or set missing to 'mean', 'median' or 'most-frequent'"
        if what == "missing"
        else "all values must be finite"
    )
    values = "value" if count == 1 else "values"
    verb = "is" if count == 1 else "are"
    raise UserError(
        f"Column {names[column]!r} of {table.where} has {count} {values} that {verb} {what}: "
        f"{hint}."
    )


def _refuse_unknown(empty: Bools, names: Sequence[str], table: Table) -> None:
    if empty.any():
        raise UserError(
            f"Column {names[int(empty.argmax())]!r} of {table.where} holds no value at all, so its "
            "missing values cannot be filled."
        )


def _one_hot(
    tables: Sequence[Table], column: Column, missing: Missing, fit_on: slice
) -> list[NDArray[Any]]:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    assert column.categories is not None
    parts = [_texts(table, column.name) for table in tables]
    for part, table in zip(parts, tables, strict=True):
        if missing == "refuse":
            gaps = np.array([cell is None for cell in part], dtype=bool)[:, np.newaxis]
            _refuse_cells(gaps, (column.name,), table, "missing")
        for cell in part:
            if cell is not None and cell not in column.categories:
                raise UserError(
                    f"Column {column.name!r} of {table.where} holds {str(cell)[:50]!r}, which is "
                    f"none of its categories ({', '.join(column.categories[:20])}): add it to the "
                    "columns file of all owners."
                )
    columns = [part[:, np.newaxis] for part in parts]
    if any(cell is None for part in parts for cell in part):
        known = np.concatenate(columns[fit_on])
        if all(cell is None for cell in known[:, 0]):
            _refuse_unknown(np.array([True]), (column.name,), tables[fit_on][0])
        imputer = SimpleImputer(strategy="most_frequent", missing_values=None).fit(known)
        columns = [imputer.transform(part) for part in columns]
    encoder = OneHotEncoder(categories=[list(column.categories)], sparse_output=False)
    return [
        encoder.fit_transform(part) if len(part) else np.empty((0, len(column.categories)))
        for part in columns
    ]
