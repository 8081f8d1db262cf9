"""The columns of a table: which become features, in which order, and their categories.

All owners of a federation need the same features. A columns file, ``columns.json``, says them; a
run writes one, and setting `columns` names one. It holds names and categories, and no data::

    {"columns": [{"name": "age", "mean": 61.5, "scale": 12.0},
                 {"name": "sex", "categories": ["female", "male"]}]}

A column without categories is a number. ``mean`` and ``scale`` are for ``standardize =
"constants"``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedul_flwr.config.user_files import parse_json, read_object, user_path
from fedul_flwr.errors import UserError

COLUMNS_FILE = "columns.json"
FEATURES_FILE = "feature-columns.json"
"""Files of a run: its columns, and means and scales of the features of an extractor."""
MAX_FEATURES = 100_000
"""Largest length of a vector."""

_KEYS = {"name", "categories", "mean", "scale"}


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    name : its header.
    categories : its values if it is a category, one feature each; ``None`` for a number.
    mean, scale : constants that standardize a number, or ``None``.
    """

    name: str
    categories: tuple[str, ...] | None = None
    mean: float | None = None
    scale: float | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features: ``age``, or ``sex=female`` and ``sex=male``."""
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={value}" for value in self.categories)


@dataclass(frozen=True)
class Columns:
    """The columns of a table that become features, in order."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Their headers."""
        return tuple(column.name for column in self.columns)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the ``d`` features."""
        return tuple(feature for column in self.columns for feature in column.features)

    def constants(self) -> tuple[list[float], list[float]]:
        """``d`` means and scales: those of numbers, 0 and 1 for the features of categories.

        Raises
        ------
        UserError
            If a number has none.
        """
        means: list[float] = []
        scales: list[float] = []
        for column in self.columns:
            if column.categories is None and (column.mean is None or column.scale is None):
                raise UserError(
                    f"Setting standardize = 'constants': column {column.name!r} of the columns "
                    "file has no mean and scale."
                )
            means += [column.mean or 0.0] * len(column.features)
            scales += [column.scale or 1.0] * len(column.features)
        return means, scales

    def scaled_by(self, means: Sequence[float], scales: Sequence[float]) -> Columns:
        """The same columns with ``d`` means and scales of their numbers."""
        found: list[Column] = []
        place = 0
        for column in self.columns:
            mean, scale = float(means[place]), float(scales[place])
            is_number = column.categories is None
            found.append(replace(column, mean=mean, scale=scale) if is_number else column)
            place += len(column.features)
        return Columns(tuple(found))

    def to_json(self) -> str:
        """Content of a columns file."""
        listed = []
        for column in self.columns:
            values = {key: getattr(column, key) for key in ("categories", "mean", "scale")}
            given = {key: value for key, value in values.items() if value is not None}
            listed.append({"name": column.name, **given})
        return json.dumps({"columns": listed}, ensure_ascii=False)


def unnamed_columns(count: int) -> Columns:
    """Numbers called ``x0`` to ``x<count - 1>``, for vectors that come without names."""
    return Columns(tuple(Column(f"x{index}") for index in range(count)))


def read_columns(path: str | Path) -> Columns:
    """Read a columns file, or that of the run in a directory.

    Raises
    ------
    UserError
        If it does not exist or is not as the module's text says.
    """
    file = user_path(path)
    if file.is_dir():
        file /= COLUMNS_FILE
    found = read_object(file)
    if found is None:
        raise UserError(f"{file} does not exist; it must be a columns file.")
    return _parse(found, str(file))


def parse_columns(text: str) -> Columns:
    """Columns from the text of a columns file; errors as :func:`read_columns`."""
    where = "The description of the columns"
    found = parse_json(text, where)
    return _parse(found if isinstance(found, dict) else {}, where)


def _parse(found: Mapping[str, Any], where: str) -> Columns:
    listed = found.get("columns")
    if set(found) != {"columns"} or not isinstance(listed, list) or not listed:
        raise UserError(f'{where} must hold {{"columns": […]}} with one column or more.')
    columns = Columns(tuple(_parse_column(one, where) for one in listed))
    _refuse_twice(columns.names, where)
    _refuse_twice(columns.features, where)
    if len(columns.features) > MAX_FEATURES:
        raise UserError(f"{where} has {len(columns.features)} features; at most {MAX_FEATURES}.")
    return columns


def _parse_column(one: Any, where: str) -> Column:
    if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not one["name"]:
        raise UserError(f'{where}: every column needs a "name".')
    name = one["name"]
    for key in one:
        if key not in _KEYS:
            raise UserError(f"{where}: column {name!r} has the unknown key {key!r}.")
    categories = one.get("categories")
    if categories is not None:
        if not isinstance(categories, list) or not categories or not _are_texts(categories):
            raise UserError(f"{where}: the categories of column {name!r} must be a list of texts.")
        _refuse_twice(categories, f"{where}, column {name!r}")
        if one.keys() & {"mean", "scale"}:
            raise UserError(f"{where}: column {name!r} has categories, so it has no mean or scale.")
    return Column(
        name,
        None if categories is None else tuple(categories),
        _number(one, "mean", where),
        _number(one, "scale", where),
    )


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) and value for value in values)


def _number(one: Mapping[str, Any], key: str, where: str) -> float | None:
    value = one.get(key)
    if value is None:
        return None
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    if not valid or not math.isfinite(value) or (key == "scale" and value <= 0):
        least = " above 0" if key == "scale" else ""
        raise UserError(
            f"{where}: the {key} of column {one['name']!r} must be a finite number{least}."
        )
    return float(value)


def _refuse_twice(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UserError(f"{where} names {name!r} more than once.")
        seen.add(name)
