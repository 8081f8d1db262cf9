"""Tables of numbers and categories, how they are read, and vectors to be stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.columns import MAX_FEATURES, Columns
from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import UserError

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
        found = [self.missing, self.label, self.columns.to_json() if self.columns else ""]
        found += [self.text] if self.text else []
        found += [f"{self.bits} bits"] if self.bits else []
        return [*found, f"group {self.group}"] if self.group else found


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
    """

    where: str
    vectors: NDArray[Any] | None = None
    cells: Mapping[str, Any] | None = None
    note: str = ""

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
                f"the run takes {'x'.join(map(str, shape))}."
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
            f"{where} holds vectors of {count} numbers; 1 to {MAX_FEATURES:,} are allowed."
        )
