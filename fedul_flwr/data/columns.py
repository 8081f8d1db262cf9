"""The columns of a table: which become features, in which order, and their categories.

All owners of a federation need the same features. A columns file, ``columns.json``, says them; a
run writes one, and setting `columns` names one. It holds what a column means, and no points::

    {"columns": [{"name": "age", "fill": 60.0, "mean": 61.5, "scale": 12.0},
                 {"name": "sex", "categories": ["female", "male"]},
                 {"name": "code", "categories": ["I10", "E11"], "other": true, "fill": "I10"},
                 {"name": "crp", "below": 0.5, "unit": "mg/l", "units": {"mg/dl": 10},
                  "bounds": [0, 600], "called": ["CRP"]},
                 {"name": "ward", "categories": ["a", "b"], "synonyms": {"A": "a"}}]}

A column with categories is read as text, any other as a number, whatever a file's types are. A
missing value becomes ``fill``. With ``other``, a text that is none of the categories becomes the
category ``other``. ``mean`` and ``scale`` standardize a number. With ``below`` a cell ``<0.5``
becomes that share of 0.5, and ``>9`` becomes 9. ``called``, ``units`` and ``synonyms`` say what
owners write for a column, its unit and its categories (:mod:`fedul_flwr.data.headers`).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictStr,
    ValidationError,
    with_config,
)

from fedul_flwr.config.base import column_name
from fedul_flwr.config.user_files import parse_json, read_object, user_path
from fedul_flwr.errors import UserError

COLUMNS_FILE = "columns.json"
FEATURES_FILE = "feature-columns.json"
"""Files of a run: its columns, and means and scales of the features of an extractor."""
MAX_FEATURES = 100_000
"""Largest length of a vector."""

OTHER = "other"
"""Category of the texts that a column with ``other`` does not list."""
MISSING_TEXTS = frozenset(
    {"", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "<NA>", "NULL", "null", "NaT"}
    | {"NaN", "nan", "-NaN", "-nan", "1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"}
)
"""Texts that say that a value is missing, in every kind of file."""

_LARGEST = float(np.finfo(np.float32).max)
_Text = Annotated[StrictStr, Field(min_length=1)]
_Factor = Annotated[StrictFloat, Field(gt=0)]
_Step = _Factor | tuple[_Factor, StrictFloat]


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
@dataclass(frozen=True)
class Column:
    """One column of a table, as a columns file writes it.

    Attributes
    ----------
    categories : its values if it is a category, one feature each; ``None`` for a number.
    other : whether texts that are none of the categories become the category :data:`OTHER`.
    fill : what a missing value becomes: a number, or one of ``values``; ``None`` refuses it.
    below : the share of v, from 0 to 1, that a number ``<v`` becomes; ``None`` refuses it.
    unit : of a number; ``fill``, ``mean``, ``scale`` and ``bounds`` are in it.
    units : of files in another unit the factor to ``unit``, or factor and what is then added.
    bounds : the least and the largest number; others are refused.
    called : other headers that it has.
    synonyms : other texts of a category, with the category.

    Examples
    --------
    >>> Column("age").features, Column("sex", categories=("female", "male")).features
    (('age',), ('sex=female', 'sex=male'))
    """

    name: Annotated[StrictStr, AfterValidator(column_name)]
    categories: Annotated[tuple[_Text, ...], Field(min_length=1)] | None = None
    fill: StrictFloat | StrictStr | None = None
    mean: StrictFloat | None = None
    scale: Annotated[StrictFloat, Field(gt=0)] | None = None
    below: Annotated[StrictFloat, Field(ge=0, le=1)] | None = None
    other: StrictBool = False
    unit: _Text | None = None
    units: Mapping[_Text, _Step] = field(default_factory=dict)
    bounds: tuple[StrictFloat, StrictFloat] | None = None
    called: tuple[Annotated[_Text, AfterValidator(column_name)], ...] = ()
    synonyms: Mapping[_Text, _Text] = field(default_factory=dict)

    @property
    def values(self) -> tuple[str, ...]:
        """The categories, with :data:`OTHER` if it stands for all others; empty for a number."""
        listed = self.categories or ()
        return (*listed, OTHER) if self.other and OTHER not in listed else listed

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features: ``age``, or ``sex=female`` and ``sex=male``."""
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={value}" for value in self.values)


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

    @property
    def has_constants(self) -> bool:
        """Whether every number has a mean and a scale."""
        numbers = [column for column in self.columns if column.categories is None]
        return all(None not in (column.mean, column.scale) for column in numbers)

    def constants(self) -> tuple[list[float], list[float]]:
        """``d`` means and scales: those of numbers, 0 and 1 for the features of categories."""
        means: list[float] = []
        scales: list[float] = []
        for column in self.columns:
            means += [column.mean or 0.0] * len(column.features)
            scales += [column.scale or 1.0] * len(column.features)
        return means, scales

    @property
    def feature_slices(self) -> dict[str, slice]:
        """The features of every column by its header."""
        ends = np.cumsum([len(column.features) for column in self.columns]).tolist()
        return {
            column.name: slice(end - len(column.features), end)
            for column, end in zip(self.columns, ends, strict=True)
        }

    @property
    def unfilled(self) -> list[int]:
        """Which of the ``d`` features are numbers that nothing fills yet."""
        places = self.feature_slices
        return [
            places[column.name].start
            for column in self.columns
            if column.fill is None and column.categories is None
        ]

    def filled_by(self, means: Sequence[float], missing: str) -> Columns:
        """The same columns, with ``fill`` where there is none yet.

        A category is filled by the most frequent one, whose mean is largest, a number by its mean
        or, with ``missing = "median"``, by the mean of the owners' medians.
        """
        count = len(self.features)
        numbers = dict(zip(self.unfilled, means[count:], strict=False))
        if missing == "mean":
            numbers = {at: means[at] for at in self.unfilled}
        filled: list[Column] = []
        for column, features in zip(self.columns, self.feature_slices.values(), strict=True):
            fill: float | str | None = column.fill
            if fill is None and missing != "refuse" and column.categories is not None:
                fill = column.values[int(np.argmax(means[features]))]
            elif fill is None:
                fill = numbers.get(features.start)
            filled.append(replace(column, fill=fill))
        return Columns(tuple(filled))

    def in_order_of(self, features: Sequence[str], where: str) -> Columns:
        """The same columns and categories in the order in which a model takes the ``d`` features.

        A file may have been sorted or edited since; a UserError where it has other features.
        """
        at = {feature: index for index, feature in enumerate(features)}
        sorted_columns = []
        for column in self.columns:
            in_order = sorted(
                zip(column.features, column.values, strict=False), key=lambda p: at.get(p[0], 0)
            )
            listed = tuple(value for _, value in in_order if value in (column.categories or ()))
            sorted_columns.append(replace(column, categories=listed or None))
        sorted_columns.sort(key=lambda column: at.get(column.features[0], 0))
        ordered = Columns(tuple(sorted_columns))
        if ordered.features != tuple(features):
            odd = sorted(at.keys() ^ {*ordered.features}) or [*features]
            raise UserError(
                f"{where} has other features than the model, such as {odd[0]!r}: write it as the "
                "run did; fills, means and scales may change.",
                "columns-file-wrong",
            )
        return ordered

    def fills(self) -> list[float]:
        """``d`` values that stand for a missing one, one-hot for categories; NaN for none."""
        fills: list[float] = []
        for column in self.columns:
            if column.fill is None:
                fills += [math.nan] * len(column.features)
            elif column.categories is None:
                fills.append(float(column.fill))
            else:
                fills += [float(value == column.fill) for value in column.values]
        return fills

    def scaled_by(self, means: Sequence[float], scales: Sequence[float]) -> Columns:
        """The same columns with ``d`` means and scales of their numbers."""
        scaled = [
            replace(column, mean=float(means[at.start]), scale=float(scales[at.start]))
            if column.categories is None
            else column
            for column, at in zip(self.columns, self.feature_slices.values(), strict=True)
        ]
        return Columns(tuple(scaled))

    def to_json(self) -> str:
        """Content of a columns file."""
        stated = [
            {
                key: value
                for key, value in vars(column).items()
                if value is not None and value is not False and value != () and value != {}
            }
            for column in self.columns
        ]
        return json.dumps({"columns": stated}, ensure_ascii=False)


def unnamed_columns(count: int) -> Columns:
    """Numbers called ``x0`` to ``x<count - 1>``, for vectors that come without names."""
    return Columns(tuple(Column(f"x{index}") for index in range(count)))


def read_columns(path: str | Path) -> Columns:
    """Read a columns file, or that of the run in a directory."""
    file = user_path(path)
    if file.is_dir():
        return run_columns(file)
    content = read_object(file)
    if content is None:
        raise UserError(f"{file} does not exist; it must be a columns file.", "file-missing")
    return _parse(content, str(file))


def run_columns(directory: Path, name: str = COLUMNS_FILE) -> Columns:
    """Read :data:`COLUMNS_FILE` or :data:`FEATURES_FILE` of a run, in the order of its model."""
    file = directory / name
    columns, config = read_columns(file), read_object(directory / "config.json") or {}
    data = config.get("data")
    features = data.get("columns") if isinstance(data, dict) else None
    if features is None or name == FEATURES_FILE:
        unnamed = unnamed_columns(len(columns.features)).names
        features = unnamed if {*unnamed} == {*columns.features} else columns.features
    return columns.in_order_of([*map(str, features)], str(file))


def parse_columns(text: str) -> Columns:
    """Columns from the text of a columns file; errors as :func:`read_columns`."""
    where = "The description of the columns"
    return _parse(parse_json(text, where), where)


def _parse(content: Mapping[str, Any], where: str) -> Columns:
    try:
        columns = Columns(tuple(_File.model_validate(content).columns))
    except ValidationError as error:
        first = error.errors()[0]
        at = first["loc"]
        one = content["columns"][at[1]] if len(at) > 1 else {}
        named = f"column {one.get('name') if isinstance(one, dict) else one!r}, " if one else ""
        raise UserError(
            f"{where}: {named}{'.'.join(map(str, at))}: {first['msg']}.", "columns-file-wrong"
        ) from None
    refuse_twice([*columns.names, *(n for c in columns.columns for n in c.called)], where)
    refuse_twice(columns.features, where)
    refuse_too_wide(len(columns.features), where)
    return columns


def refuse_too_wide(count: int, where: str) -> None:
    """Refuse vectors that are longer than :data:`MAX_FEATURES`, or have no numbers."""
    if not 0 < count <= MAX_FEATURES:
        raise UserError(
            f"{where} holds vectors of {count} numbers; 1 to {MAX_FEATURES:,} are allowed.",
            "too-many-columns",
        )


def _consistent(column: Column) -> Column:
    """Refuse what no column can be: a category with a mean, a number with ``other``, and so on."""
    if column.categories is None:
        too_large = not isinstance(column.fill, str) and abs(column.fill or 0) > _LARGEST
        is_right = not (column.other or isinstance(column.fill, str) or too_large)
        is_right &= not column.synonyms and (column.unit is not None or not column.units)
        is_right &= column.bounds is None or column.bounds[0] < column.bounds[1]
    else:
        is_right = {column.mean, column.scale, column.below, column.unit, column.bounds} == {None}
        is_right &= not column.units and {*column.synonyms.values()} <= {*column.values}
        is_right &= not column.synonyms.keys() & {*column.values}
        is_right &= column.fill in (None, *column.values)
        is_right &= not any(value.strip() in MISSING_TEXTS for value in column.categories)
    if not column.name or not is_right:
        raise ValueError(
            "it is neither a number with a finite fill, mean, scale and below, bounds of which the "
            "first is less, and units only beside a unit, nor a category with other, and a fill "
            "and synonyms of its categories, none of which is a missing value"
        )
    return column


class _File(BaseModel, extra="forbid"):
    """The content of a columns file."""

    columns: Annotated[list[Annotated[Column, AfterValidator(_consistent)]], Field(min_length=1)]


def refuse_twice(names: Iterable[str], where: str) -> None:
    """Refuse names of which two are alike."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{where} names {twice[0]!r} more than once; it may once.", "name-twice")
