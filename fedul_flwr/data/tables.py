"""Tables in memory, whatever they come from, and vectors and texts that are ready to be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats
from fedul_flwr.config.base import column_name
from fedul_flwr.data.columns import MISSING_TEXTS, Columns
from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import UserError

Missing = Literal["refuse", "mean", "median", "most-frequent"]
MAX_BYTES = 65_536
"""Most bytes of a text in UTF-8: all of a collection take as much room as the longest."""
BLOCK = 4096
"""Rows that are read and written at a time."""


@dataclass(frozen=True)
class VectorPoints:
    """Vectors of one split or set, ready to be stored."""

    where: str
    values: NDArray[Any]
    note: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of what is stored."""
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.values)

    def blocks(self, shape: InputShape) -> Iterator[NDArray[Any]]:
        """Yield all points in order; refuse a ``shape`` of others."""
        if self.values.shape[1:] != shape:
            sizes = self.values.shape[1:]
            raise UserError(
                f"{self.where} holds {f'vectors of {sizes[0]} numbers' if sizes else 'texts'}; the "
                f"run takes {'x'.join(map(str, shape)) or 'texts'}.",
                "points-of-another-kind",
            )
        for start in range(0, len(self), BLOCK):
            yield self.values[start : start + BLOCK]


class Texts(VectorPoints):
    """The same of texts: ``values`` are bytes ``(n,)`` in UTF-8. A text has the shape ``()``."""


@dataclass(frozen=True)
class TableOptions:
    """How points are read: settings of these names, and the columns if they are known.

    ``bits`` are those of the values in 16-bit images, 0 if they are not known, and ``window`` is
    center and width of what DICOM images show, None for those of each file. ``group`` is the
    column that a natural partition goes by, which is no feature unless the columns have it. With
    ``trained`` the columns are those of a trained model: nothing is taken from the tables, so that
    the vector of a row does not depend on other rows.
    """

    missing: Missing = "refuse"
    label: str = ""
    columns: Columns | None = None
    text: str = ""
    bits: int = 0
    window: tuple[float, float] | None = None
    group: str = ""
    trained: bool = False

    @property
    def identity(self) -> list[object]:
        """Part of the key of data that were read with these options."""
        columns = self.columns.to_json() if self.columns else ""
        return [self.missing, self.label, columns, self.text, self.bits, self.window, self.group]


NO_OPTIONS = TableOptions()
"""Nothing is known about the columns, and missing values are refused."""


@dataclass(frozen=True)
class Table:
    """A table as it was read, or vectors without names.

    Attributes
    ----------
    content : ``pyarrow.Table`` of the columns whose names occur once, or rows of a file that are
        read when they are asked for.
    vectors : ``(n, d)`` numbers, if they came without names; NaN is a missing value.
    twice : names that several columns have, and an empty one for columns without a name.
    separator, mark : of a CSV file, all of whose cells are texts, what stands between cells, and
        before decimals if its numbers show it.
    floats : values ``(n,)`` of columns of texts that are all plain numbers.
    units : by column, factor and what is then added to its numbers, where a file says its unit.
    has_paths : whether an image without bytes may be opened by its path.
    """

    where: str
    content: Any = None
    vectors: NDArray[Any] | None = None
    hub: Mapping[str, Any] = field(default_factory=dict)
    twice: tuple[str, ...] = ()
    note: str = ""
    separator: str = ""
    mark: str = ""
    floats: Mapping[str, Floats] = field(default_factory=dict)
    units: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    has_paths: bool = False

    def __len__(self) -> int:
        return len(self.vectors) if self.vectors is not None else int(self.content.num_rows)

    @property
    def names(self) -> list[str]:
        """Headers of the columns; empty if vectors came without names."""
        return [] if self.content is None else list(self.content.schema.names)

    def type_of(self, name: str) -> Any:
        """Arrow's type of a column, of a dictionary that of its values."""
        kind = self.content.schema.field(name).type
        return getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind

    def column(self, name: str) -> Any:
        """A column as a ``pyarrow.ChunkedArray``."""
        return self.content.select([name]).column(0)

    def refuse_twice(self, name: str) -> None:
        """Refuse a column that cannot be chosen because several have its name."""
        if name in self.twice:
            what = f"Several columns of {self.where} are called {name!r}: rename them"
            if not name:
                what = f"A column of {self.where} has no name: give it one"
            raise UserError(
                f"{what}, or name the columns that the run uses in a columns file.",
                "column-missing",
            )

    def refuse_without(self, name: str, why: str = "") -> None:
        """Refuse a table that has no column ``name``, or several."""
        self.refuse_twice(name)
        if name not in self.names:
            raise self.lacks(f"column {name!r}{why}")

    def lacks(self, what: str) -> UserError:
        """An error about a missing column that lists the existing ones."""
        listed = f"{', '.join(self.names[:20])}{', …' * (len(self.names) > 20)}"
        return UserError(
            f"{self.where} has no {what}; its columns are: {listed}.", "column-missing"
        )


def in_memory(where: str, content: Any, **more: Any) -> Table:
    """A Table of columns by name, or of a ``pyarrow.Table``."""
    import pyarrow as pa  # type: ignore[import-untyped]

    return Table(where, content if isinstance(content, pa.Table) else pa.table(content), **more)


def columns_by_name(written: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Places of columns by their :func:`column_name`, without the names that several have or that
    are empty; and these."""
    names = [*map(column_name, written)]
    counts = Counter(names)
    twice = tuple(name for name, count in counts.items() if count > 1 or not name)
    return {name: index for index, name in enumerate(names) if name not in twice}, twice


def reading_notes(tables: Iterable[object]) -> tuple[str, ...]:
    """How files were read that are not as usual, one line for all that are alike."""
    alike: dict[str, list[str]] = {}
    for table in tables:
        if note := getattr(table, "note", ""):
            alike.setdefault(note, []).append(Path(getattr(table, "where", "")).name)
    return tuple(
        f"{', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}: {note}"
        for note, names in alike.items()
    )


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of texts."""
    return str(kind) in ("string", "large_string", "string_view")


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers or truth values."""
    import pyarrow.types as types  # type: ignore[import-untyped]

    kinds = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(is_kind(kind) for is_kind in kinds)


def stripped(texts: Any) -> Any:
    """Texts without spaces around them; null where one says that a value is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    texts = pc.utf8_trim_whitespace(texts)
    missing = pc.is_in(texts, value_set=pa.array(sorted(MISSING_TEXTS), texts.type))
    return pc.if_else(missing, pa.scalar(None, texts.type), texts)
