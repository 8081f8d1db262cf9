"""Texts as points: a column of a table, for an extractor that turns texts into vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import InputShape
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
            raise UserError(f"{self.where} holds texts; the run takes other points.")
        yield self.cells
