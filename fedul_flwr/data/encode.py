"""Vectors of the rows of tables: what columns mean, what fills gaps, numbers and one-hot texts."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bools, Floats, Ints
from fedul_flwr.data.columns import OTHER, Column, Columns, refuse_too_wide, unnamed_columns
from fedul_flwr.data.csv_files import doubtful_point
from fedul_flwr.data.tables import (
    Missing,
    Table,
    TableOptions,
    VectorPoints,
    is_number,
    is_text,
    stripped,
)
from fedul_flwr.errors import UserError

# The cells of one column of a table as numbers or as categories, whatever its file's types are.

MAX_CATEGORIES = 256
"""Most categories that a column has without a columns file: a column with more is free text."""

_FEW_ROWS = 20
"""In so many rows every one may have another category."""
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
_TRUTH = r"^(?i:true|false)$"
_TRUTH_OR_BIT = r"^(?i:true|false)$|^[01](\.0*)?$"
_QUANTITY = (
    r"^(?:([€$£]) *)?[+-]?(?:\d+[.,]?\d*|[.,]\d+)"
    r"( *[%‰€$£°]C?| +[\p{L}]+(?:/\w+)?| *[\p{L}]{2,}(?:/\w+)?)?$"
)
"""A number with a unit or a sign of currency; ``2b`` is a code."""
_BOUND = r"^([<>])=? *(\d+[.,]?\d*|[.,]\d+)$"
"""Below what a device measures, or above it."""
_DECIMAL_COMMA = r"^[+-]?\d+,\d+$"
_WHOLE = r"^[+-]?\d+$"
_LEADING_ZERO = r"^[+-]?0\d+$"
_MONTH = r"(?i:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)\p{L}*\.?"
_DATE = (
    r"^\d{4}-\d{1,2}-\d{1,2}([ T].*)?$|^\d{4}/\d{1,2}/\d{1,2}( .*)?$"
    r"|^\d{1,2}\.\d{1,2}\.\d{2,4}( .*)?$|^\d{1,2}/\d{1,2}/\d{2,4}( .*)?$"
    rf"|^\d{{1,2}}-\d{{1,2}}-\d{{2,4}}( .*)?$|^\d{{1,2}}\.?[- ]?{_MONTH}[- ]?\d{{2,4}}([ :].*)?$"
    rf"|^{_MONTH} \d{{1,2}},? \d{{4}}( .*)?$|^\d{{4}}\.\d{{2}}\.\d{{2}}( .*)?$"
    r"|^(19|20)\d{2}-(0[1-9]|1[0-2])$|^\d{8}T\d{4,6}.*$"
    r"|^\d{1,2}:\d{2}(?i: ?[ap]m)$|^\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?$|^-?\d+ days?( .*)?$"
)
_PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d*)?([eE][+-]?\d+)?")


class Cells(NamedTuple):
    """One column of one table."""

    name: str
    where: str
    column: Any
    floats: Floats | None = None

    @property
    def here(self) -> str:
        """The column in messages."""
        return f"Column {self.name!r} of {self.where}"


def infer_column(parts: Sequence[Cells]) -> Column:
    """What a column means: the first part with a value says whether it is a number or a category.

    Numbers, truth values, and texts that are numbers become a number; categories of pandas, texts,
    and whole numbers with leading zeros become a category, of the values in all parts, sorted.
    """
    name = parts[0].name
    if _is_plain(parts[0]):
        return Column(name)
    first = next((part for part in parts if len(_present_cells(part))), parts[0])
    if not _is_category(first):
        return Column(name)
    values = {value for part in parts for value in _counts(part)}
    sample = [text for text in _texts(first) if text is not None]
    is_unique = len(sample) > _FEW_ROWS and len({*sample}) == len(sample)
    if is_unique or len(values) > MAX_CATEGORIES:
        zeros = next((text for text in values if re.match(_LEADING_ZERO, text)), "")
        codes_hint = f" ({zeros!r} is a code: leading zeros make it one)" if zeros else ""
        every = ", another one in every row" if is_unique else ""
        raise UserError(
            f"{first.here} holds {len(values)} different texts{every}, such as "
            f"{sample[0][:50]!r}{codes_hint}: it is an identifier or free text, and no category of "
            f"at most {MAX_CATEGORIES}. Leave it out, or name it in a columns file, with its "
            "categories or as a number.",
            "column-of-identifiers",
        )
    return Column(name, tuple(sorted(values))) if values else Column(name)


def _is_plain(cells: Cells) -> bool:
    """Whether all texts are numbers, some of them, and none is a code such as 007."""
    if cells.floats is None or np.isnan(cells.floats).all():
        return False
    is_whole = (np.isnan(cells.floats) | (cells.floats == np.floor(cells.floats))).all()
    return not (is_whole and _matches(cells.column.drop_null(), _LEADING_ZERO).any())


def _is_category(cells: Cells) -> bool:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    kind = cells.column.type
    if pa.types.is_dictionary(kind):
        return True
    if not is_text(kind):
        _refuse_other_types(cells)
        return False
    present = _present_cells(cells)
    if not len(present):
        return False
    number = _matches(present, _NUMBER)
    numeric = number | _matches(present, _TRUTH)
    if numeric.all():
        _refuse_truth_among_numbers(cells, present)
        is_code = _matches(present, _WHOLE).all() and _matches(present, _LEADING_ZERO).any()
        return bool(is_code)
    # Half of the cells say what a column is: one cell "unknown" makes no category of it.
    dates = _matches(present, _DATE)
    if 2 * dates.sum() >= len(present):
        first = _first(present.filter(pa.array(dates)))
        raise _dates(cells, f"dates or times, such as {first!r}")
    number = number | _matches(present, _DECIMAL_COMMA)
    bounded = number | (_matches(present, _BOUND) & number.any())
    if 2 * bounded.sum() >= len(present):  # True, False and unknown are words
        _refuse_odd_texts(cells, present.filter(pc.invert(pa.array(numeric))))
    # Numbers that have the same sign or unit, such as 5 %, are no categories.
    quantities = present.filter(pa.array(_matches(present, _QUANTITY) & ~number))
    units = pc.unique(pc.replace_substring_regex(quantities, _QUANTITY, r"\1\2"))
    if 2 * len(quantities) >= len(present) and len(units) == 1 < len(pc.unique(quantities)):
        _refuse_odd_texts(cells, quantities)
    return True


def _refuse_truth_among_numbers(cells: Cells, present: Any) -> None:
    """Refuse ``True`` in a column of numbers: 1 and 0 beside it mean the same, 37.5 does not."""
    truth = _matches(present, _TRUTH)
    if truth.any() and not _matches(present, _TRUTH_OR_BIT).all():
        import pyarrow as pa

        _refuse_odd_texts(cells, present.filter(pa.array(truth)))


def _refuse_odd_texts(cells: Cells, odd: Any) -> None:
    """Refuse texts among numbers."""
    import pyarrow.compute as pc

    row = pc.index(stripped(cells.column), odd[0]).as_py() + 1
    more = f" and {len(odd) - 1} more such cells of {len(cells.column)}" if len(odd) > 1 else ""
    rule = 'a number with a "below", or ' if _matches(odd, _BOUND).all() else ""
    raise UserError(
        f"{cells.here} holds {_first(odd)!r}{more}, where a number is needed, "
        f"{'the first ' * (len(odd) > 1)}in row {row}: write it with a point and no unit, leave "
        f"the cell empty, or say in a columns file what the column is: {rule}categories.",
        "cell-not-a-number",
    )


def odd_texts(cells: Cells) -> list[str]:
    """The cells that are no numbers."""
    present = _present_cells(cells)
    return [text for text in present.to_pylist() if not re.match(_NUMBER, text)]


def numbers(cells: Cells) -> Floats:
    """``(n,)``, the cells of a number: float64, NaN where a value is missing."""
    import pyarrow as pa

    if cells.floats is not None:
        return cells.floats
    column = _without_dictionary(cells)
    if is_text(column.type):
        column = _numbers_of_texts(cells, stripped(column))
    else:
        _refuse_other_types(cells._replace(column=column))
    # Whole numbers beyond 2^53 are rounded, not refused.
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _numbers_of_texts(cells: Cells, texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    present = texts.drop_null()
    odd = present.filter(pa.array(~(_matches(present, _NUMBER) | _matches(present, _TRUTH))))
    if len(odd):
        _refuse_odd_texts(cells, odd)
    _refuse_truth_among_numbers(cells, present)
    for truth, number in (("^(?i:true)$", "1"), ("^(?i:false)$", "0")):
        texts = pc.replace_substring_regex(texts, truth, number)
    return texts.cast(pa.float64())


def with_bounds(cells: Cells, below: float, mark: str = "") -> tuple[Cells, int]:
    """The column with ``<0.5`` as ``below`` times 0.5 and ``>9`` as 9, and how many such it has."""
    import pyarrow as pa

    if cells.floats is not None or not is_text(cells.column.type):
        return cells, 0
    texts, count = stripped(cells.column).to_pylist(), 0
    for row, text in enumerate(texts):
        if (bound := re.match(_BOUND, text or "")) is None:
            continue
        number = bound[2] if mark == "." else bound[2].replace(",", ".")
        if "," in number or (not mark and re.fullmatch(r"[1-9]\d{0,2},\d{3}", bound[2])):
            continue
        texts[row] = repr((below if bound[1] == "<" else 1) * float(number))
        count += 1
    return cells._replace(column=pa.chunked_array([pa.array(texts, cells.column.type)])), count


def truth_counts(cells: Cells) -> Counter[str]:
    """Number of rows of ``true`` and ``false``, if a column has nothing else; else empty."""
    counts = _counts(cells)
    return counts if counts.keys() <= {"true", "false"} else Counter()


def category_counts(cells: Cells) -> Counter[str] | None:
    """Number of rows of every category; None of a number, or without a value."""
    if not _is_category(cells):
        return None
    return _counts(cells)


def _counts(cells: Cells) -> Counter[str]:
    """Number of rows of every value, all its spellings together."""
    return Counter(canonical(text) for text in _texts(cells) if text is not None)


def codes(cells: Cells, column: Column) -> Ints:
    """``(n,)``, places of the cells of a category in ``column.values``; -1 where it is missing."""
    values = column.values
    numbers: dict[str | None, int] = {}
    for number, value in enumerate(values):
        numbers.setdefault(canonical(value), number)
    numbers |= {value: number for number, value in enumerate(values)} | {None: -1}
    numbers |= {text: numbers[category] for text, category in column.synonyms.items()}
    texts = _texts(cells)
    rows = {text: row for row, text in reversed([*enumerate(texts.tolist(), 1)])}
    for text in sorted(rows.keys() - numbers.keys(), key=rows.__getitem__):
        same = numbers.get(canonical(text))
        if same is None and not column.other:
            raise UserError(
                f"{cells.here} holds {text[:50]!r}, which is none of its categories "
                f"({', '.join(values[:20])}{', …' if len(values) > 20 else ''}), in row "
                f"{rows[text]}: correct it, or "
                'train with a columns file that has it, or "other": true for all that are none.',
                "category-unknown",
            )
        numbers[text] = values.index(OTHER) if same is None else same
    return np.array([numbers[text] for text in texts], dtype=np.int64)


def _texts(cells: Cells) -> NDArray[np.object_]:
    """``(n,)``, the cells as texts, ``None`` where a value is missing: 1.0 is ``1``, and umlauts
    are composed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _without_dictionary(cells)
    if is_text(column.type):
        return np.array(pc.utf8_normalize(stripped(column), "NFC").to_pylist(), dtype=object)
    if pa.types.is_temporal(column.type):
        return np.array(column.cast(pa.string()).to_pylist(), dtype=object)
    _refuse_other_types(cells._replace(column=column))
    present = (None if cell != cell else cell for cell in column.to_pylist())  # NaN is missing
    return np.array([None if cell is None else canonical(str(cell)) for cell in present], object)


def _without_dictionary(cells: Cells) -> Any:
    import pyarrow as pa

    kind = cells.column.type
    if not pa.types.is_dictionary(kind):
        return cells.column
    if not (is_text(kind.value_type) or pa.types.is_temporal(kind.value_type)):
        _refuse_other_types(cells._replace(column=pa.array([], kind.value_type)))
    return cells.column.cast(kind.value_type)


def canonical(text: str) -> str:
    """A text in the form that all spellings of one value share: ``1`` for 1.0 and 1e0.

    Whole numbers with leading zeros stay: they are codes.
    """
    text = unicodedata.normalize("NFC", text.strip())
    if text.lower() in ("true", "false"):
        return text.lower()
    if not _PLAIN_NUMBER.fullmatch(text):
        return text
    value = float(text)
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else text


def _present_cells(cells: Cells) -> Any:
    """The cells that have a value."""
    column = cells.column
    return (stripped(column) if is_text(column.type) else column).drop_null()


def _matches(texts: Any, pattern: str) -> Bools:
    import pyarrow.compute as pc

    matches = pc.match_substring_regex(texts, pattern)
    return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=bool)


def _first(texts: Any) -> str:
    return str(texts[0].as_py())[:50]


def _refuse_other_types(cells: Cells) -> None:
    import pyarrow as pa

    kind = cells.column.type
    if pa.types.is_temporal(kind):
        raise _dates(cells, f"dates or times ({kind})")
    if not is_number(kind):
        raise UserError(
            f"{cells.here} has the type {kind}; numbers, texts, or one column of lists of numbers "
            "are allowed.",
            "column-type",
        )


def _dates(cells: Cells, what: str) -> UserError:
    return UserError(
        f"{cells.here} holds {what}: turn it into a number, such as an age or days since a date, "
        "or leave it out.",
        "column-of-dates",
    )


_TOGETHER = 512
"""Features that are computed at a time."""
_WHOLE_IN_FLOAT64 = 2.0**53
"""Up to here float64 has every whole number."""
_LARGEST_ERROR = 0.01
"""Largest error of float32 in standard deviations of a column."""


def infer_columns(tables: Sequence[Table], left_out: Collection[str] = ()) -> Columns:
    """What the columns of tables mean (:func:`~fedul_flwr.data.encode.infer_column`), but for some
    that are no features."""
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
        tuple(
            infer_column([cells_of(table, name) for table in tables])
            for name in first.names
            if name not in left_out
        )
    )


def fit(tables: Sequence[Table], columns: Columns, missing: Missing) -> Columns:
    """The columns with what training data say of them: a ``fill`` where they have none yet."""
    by_name = {column.name: column for column in columns.columns}
    fillable = {c.name for c in columns.columns if c.fill is None and missing != "refuse"}
    for block, at_block in _blocks(columns):
        if all(c.categories is not None and c.name not in fillable for c in block):
            continue
        values = np.concatenate([values_of(table, block, at_block) for table in tables])
        _refuse_lost_differences(tables, values, block, at_block)
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
    """Vectors of the features of ``columns``: numbers as they are, categories one-hot."""
    _refuse_doubtful_points(tables, columns)
    fills = np.array(columns.fills())
    encoded = []
    for table in tables:
        vectors = np.zeros((len(table), len(fills)), dtype=np.float32)
        for block, at in _blocks(columns):
            values = values_of(table, block, at)
            gaps = np.isnan(values)
            if gaps.any():
                values = np.where(gaps, fills[at], values)
                _refuse_cells(np.isnan(values), block, table.where, "missing")
            too_large = np.abs(values) > np.finfo(np.float32).max
            _refuse_cells(too_large, block, table.where, "infinite or too large for float32")
            vectors[:, at] = values
        encoded.append(VectorPoints(table.where, vectors))
    return encoded


def common_vectors(
    tables: Sequence[Table], training: Sequence[Table], options: TableOptions
) -> tuple[Columns, list[VectorPoints]]:
    """The columns of tables, as far as the options do not state them, and the vectors.

    What fills a missing value comes from the tables ``training``, unless the columns are those of a
    trained model.
    """
    columns = options.columns or infer_columns(tables)
    width = len(columns.features)
    refuse_too_wide(width, tables[0].where)
    for table in tables:
        if table.vectors is not None and table.vectors.shape[1] != width:
            raise UserError(
                f"{table.where} holds vectors of {table.vectors.shape[1]} numbers; {width} are "
                "needed.",
                "points-of-another-kind",
            )
    if not options.trained:
        columns = fit(training, columns, options.missing)
    return columns, encode(tables, columns)


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


def cells_of(table: Table, name: str) -> Cells:
    """A column of a table."""
    return Cells(name, table.where, table.column(name), table.floats.get(name))


def values_of(table: Table, block: Sequence[Column], at: Ints) -> Floats:
    """``(n, b)``, features of some columns, ``at`` of ``d`` in vectors without names; all NaN where
    a value is missing."""
    if table.vectors is not None:
        numbers_given = np.asarray(table.vectors[:, at], dtype=np.float64)
        for column, values in zip(block, numbers_given.T, strict=False):
            _refuse_outside(column, values, table.where)
        return numbers_given
    parts = []
    for column in block:
        cells = cells_of(table, column.name)
        if column.categories is None:
            if column.below is not None:
                cells, _ = with_bounds(cells, column.below, table.mark)
            parts.append(numbers(cells))
            if column.name in table.units:
                factor, more = table.units[column.name]
                parts[-1] = parts[-1] * factor + more
            _refuse_outside(column, parts[-1], table.where)
            continue
        places_of_rows = codes(cells, column)
        one_hot = np.eye(len(column.values) + 1, len(column.values))
        one_hot[-1] = np.nan
        parts += [*one_hot[places_of_rows].T]
    return np.stack(parts, axis=1)


def _refuse_outside(column: Column, values: Floats, where: str) -> None:
    """Refuse numbers beyond a column's bounds: each is a typing error or in another unit, which a
    person has to look at."""
    if column.bounds is None:
        return
    least, most = column.bounds
    outside = ((values < least) | (values > most)) & ~np.isclose(values, least, 1e-9, 0)
    outside &= ~np.isclose(values, most, 1e-9, 0)
    if outside.any():
        unit = f" {column.unit}" if column.unit else ""
        raise UserError(
            f"Column {column.name!r} of {where} has {outside.sum()} of {len(values)} numbers "
            f"outside {least:g} to {most:g}{unit}, the first in row {outside.argmax() + 1}: "
            "correct them, leave their cells empty, or say the unit of the file.",
            "cell-out-of-bounds",
        )


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


def _refuse_lost_differences(
    tables: Sequence[Table], values: Floats, block: Sequence[Column], at: Ints
) -> None:
    """Refuse a column whose values are so large that float32 does not tell them apart."""
    finite = np.where(np.isfinite(values), values, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.abs(finite.astype(np.float32) - finite).max(axis=0, initial=0)
    size = np.abs(finite).max(axis=0, initial=0)
    is_large = (size >= _WHOLE_IN_FLOAT64) & (size <= np.finfo(np.float32).max)
    for index in np.flatnonzero((errors > 0) | is_large).tolist():
        column = values[np.isfinite(values[:, index]), index]
        low, high = column.min(), column.max()
        differences = column - low if high - low < np.inf else column
        if is_large[index] and len(column):
            exact = _exact_numbers(tables, _named(index, block), int(at[index]))
            rounded = [number - Decimal(float(np.float32(number))) for number in exact]
            differences = np.array([float(number - exact[0]) for number in exact])
            errors[index] = max(abs(float(error)) for error in rounded)
        largest = float(np.abs(differences).max(initial=0))
        deviation = largest * float((differences / largest).std()) if largest else 0.0
        if deviation > 0 and _LARGEST_ERROR * deviation < errors[index] < np.inf:
            raise UserError(
                f"Column {_named(index, block)!r} of {tables[0].where} has numbers from "
                f"{low:.17g} to {high:.17g}, which differ by less than float32 "
                "can tell: subtract a constant, such as the smallest one, or leave the column out.",
                "column-without-spread",
            )


def _exact_numbers(tables: Sequence[Table], name: str, at: int) -> list[Decimal]:
    """The finite numbers of a column, the one ``at`` of vectors, before they are rounded.

    Whole numbers of 64 bits, decimals and texts have more digits than float64.
    """
    texts: list[str] = []
    for table in tables:
        if table.vectors is None:
            texts += map(str, _present_cells(cells_of(table, name)).to_pylist())
        else:
            texts += map(str, table.vectors[:, at].tolist())
    exact = [Decimal(text) for text in texts if re.match(_NUMBER, text)]
    return [number for number in exact if abs(number) <= Decimal(float(np.finfo("f4").max))]
