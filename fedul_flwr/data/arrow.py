"""Tables of images, as parquet files have them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.base import column_name
from fedul_flwr.config.user_files import regular_file
from fedul_flwr.data.class_labels import class_labels, labels_of_cells
from fedul_flwr.data.decode import BLOCK, EncodedImages, Images, Item
from fedul_flwr.data.formats import IMAGE_SUFFIXES, Split
from fedul_flwr.data.tables import Table, Texts
from fedul_flwr.data.types import UNLABELED
from fedul_flwr.errors import UserError

LABEL_NAMES = ("label", "labels", "fine_label", "target", "class", "character")

_NAMES_TRIED = 100
"""Texts of a column from which names of files are told."""
_LONGEST_TEXT = 256
"""Longest text in characters in a column for partitions; longer ones are captions and the like."""
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__|Unnamed: 0(\.\d+)*")
"""Names that an index without one gets in files of pandas."""


@dataclass(frozen=True)
class ArrowTable:
    """A table of images, from a parquet file or from the hub.

    Attributes
    ----------
    where : its name in messages.
    num_rows : number of rows.
    schema : its ``pyarrow.Schema``.
    features : Hugging Face features by column, as plain mappings.
    batches : ``batches(columns)`` yields the rows as Arrow batches of at most ``BLOCK``.
    open_paths : whether an image without bytes may be opened by its path.
    twice : names that several columns have, and an empty one for columns without a name; these
        columns are not in ``schema``.
    note : how a CSV file was read, if not as usual; else empty.
    mark : what stands before decimals, if a CSV file shows it; else empty.
    untyped : whether all cells are texts because the file has no types, as CSV.
    """

    where: str
    num_rows: int
    schema: Any
    features: Mapping[str, Any]
    batches: Callable[[list[str]], Iterator[Any]]
    open_paths: bool = False
    untyped: bool = False
    twice: tuple[str, ...] = ()
    note: str = ""
    mark: str = ""

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

    def refuse(self, what: str) -> UserError:
        """Return an error about a missing column that lists the existing ones."""
        return UserError(
            f"{self.where} has {what}; its columns are: {', '.join(self.names)}.", "column-missing"
        )

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [str(name) for name in self.schema.names]

    def kind(self, column: str) -> str | None:
        """Return the Hugging Face type of a column, such as ``Image``, if it has one."""
        feature = self.features.get(column)
        return feature.get("_type") if isinstance(feature, Mapping) else None


def open_parquet(path: Path) -> ArrowTable:
    """Open a parquet file."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    with _readable_parquet(path):
        file = pq.ParquetFile(regular_file(path))
        metadata = file.schema_arrow.metadata or {}
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        features = {column_name(name): feature for name, feature in features.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        features = {}

    written = file.schema_arrow
    originals, twice = columns_by_name(written.names)
    fields = [written.field(original).with_name(name) for name, original in originals.items()]
    schema = _without_views(pa.schema(fields, written.metadata))

    def batches(columns: list[str]) -> Iterator[Any]:
        with _readable_parquet(path):
            wanted = [originals[name] for name in columns]
            for batch in file.iter_batches(batch_size=BLOCK, columns=wanted):
                fields = [schema.field(column_name(name)) for name in batch.schema.names]
                cells = [
                    c if c.type == f.type else c.cast(f.type)
                    for c, f in zip(batch.columns, fields, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(cells, schema=pa.schema(fields))

    rows = file.metadata.num_rows
    return ArrowTable(str(path), rows, schema, features, batches, twice=twice)


def columns_by_name(written: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Names that a file has by their :func:`column_name`, without those of which several are one
    or empty; and these."""
    counts = Counter(map(column_name, written))
    twice = tuple(name for name, count in counts.items() if count > 1 or not name)
    return {column_name(name): name for name in written if column_name(name) not in twice}, twice


def _without_views(schema: Any) -> Any:
    """The schema with texts and bytes in the usual form: Arrow computes nothing on views."""
    import pyarrow as pa

    usual = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
    for index, field in enumerate(schema):
        if (kind := usual.get(str(field.type))) is not None:
            schema = schema.set(index, field.with_type(kind))
    return schema


def arrow_images(table: ArrowTable) -> Images:
    """Return the images of a table: column ``image`` or ``img``, or its only image column."""
    column = image_column(table)
    if not column:
        raise table.refuse("no image column, such as 'image' or 'img'")

    def batches() -> Iterator[list[Item]]:
        row = 0
        for batch in table.batches([column]):
            items: list[Item] = []
            for cell in batch.column(0).to_pylist():
                name = f"row {row} of {table.where}"
                items.append((name, _image_content(name, cell, table.open_paths)))
                row += 1
            yield items

    return EncodedImages(table.where, table.num_rows, batches)


def arrow_split(
    table: ArrowTable, inputs: Images | Table | Texts, label: str, taken: set[str]
) -> Split:
    """Read the labels of a table and perhaps further columns.

    Labels are a ClassLabel, or values as :mod:`fedul_flwr.data.class_labels` says.

    Parameters
    ----------
    inputs : the points.
    label : the column of labels.
    taken : columns of the points, which are no further columns.
    """
    import pyarrow as pa

    feature = table.features.get(label)
    names = feature.get("names") if isinstance(feature, Mapping) else None
    used = {label, *taken}
    others = [
        name
        for name in table.names
        if name not in used and is_scalar(table.schema.field(name).type)
    ]
    cells: dict[str, list[NDArray[Any]]] = {name: [] for name in others}
    values: list[Any] = []
    for batch in table.batches([label, *others]):
        values.append(batch.column(label))
        for name, parts in cells.items():
            parts.append(_cells(batch.column(name)))
    columns = {
        name: np.concatenate(cells[name])
        for name in others
        # No captions and the like.
        if cells[name]
        and all(p.dtype.kind != "U" or p.dtype.itemsize <= 4 * _LONGEST_TEXT for p in cells[name])
    }
    if table.untyped:
        columns = {name: _with_type(column) for name, column in columns.items()}
    where = f"Column {label!r} of {table.where}"
    column = pa.chunked_array(values, table.schema.field(label).type)
    labels = labels_of_cells(column, where) if table.untyped else class_labels(column, where)
    if names:
        labels = labels.numbered_by(tuple(map(str, names)), where)
    return Split(inputs, labels, columns)


@contextmanager
def _readable_parquet(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"{path} cannot be read as a parquet file; it may be damaged.", "file-not-readable"
        ) from error


def image_column(table: ArrowTable, label: str = "") -> str:
    """Column ``image`` or ``img``, or the only column of images beside the ``label``; empty if
    there is none.
    """
    import pyarrow as pa

    def holds_images(name: str) -> bool:
        kind = table.schema.field(name).type
        if pa.types.is_struct(kind):
            return any(f.name == "bytes" and pa.types.is_binary(f.type) for f in kind)
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    candidates = [
        name
        for name in table.names
        if name != label and (table.kind(name) == "Image" or holds_images(name))
    ]
    for name in ("image", "img"):
        if name in candidates:
            return name
    if len(candidates) > 1:
        raise table.refuse("several image columns, none called 'image' or 'img'")
    return candidates[0] if candidates else ""


def refuse_file_names(cells: Any, column: str, where: str) -> None:
    """Refuse a column of Arrow with names of image files, which would become a category."""
    first = [str(cell).lower() for cell in cells[:_NAMES_TRIED].to_pylist() if cell is not None]
    if first and all(text.endswith(IMAGE_SUFFIXES) for text in first):
        raise UserError(
            f"Column {column!r} of {where} holds names of image files; give the images themselves "
            "(datasets.Image() in a data set of Hugging Face), or a folder for each class.",
            "column-type",
        )


def _image_content(name: str, cell: Any, open_paths: bool) -> bytes | Path:
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if isinstance(content, bytes):
        return content
    if open_paths and isinstance(cell, dict) and cell.get("path"):
        return Path(cell["path"])
    raise UserError(f"{name} holds no image; every row needs the bytes of one.", "points-missing")


def label_column(table: ArrowTable, chosen: str = "") -> str:
    """The column of labels: the ``chosen`` one, one of a usual name, or the only ClassLabel."""
    for name in (chosen,) if chosen else LABEL_NAMES:
        table.refuse_twice(name)
    if chosen:
        if chosen not in table.names:
            raise table.refuse(f"no column {chosen!r}, which setting label-column names")
        return chosen
    if name := usual_label(table.names):
        return name
    candidates = [name for name in table.names if table.kind(name) == "ClassLabel"]
    if len(candidates) != 1:
        raise table.refuse("no label column, such as 'label'")
    return candidates[0]


def usual_label(names: Sequence[str], chosen: str = "") -> str:
    """The column of labels if it is the ``chosen`` one or has a usual name, else empty."""
    return chosen or next((name for name in LABEL_NAMES if name in names), "")


def index_columns(schema: Any) -> set[str]:
    """Columns that were the index of a frame of pandas, such as the number of a row."""
    try:
        listed = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, TypeError, ValueError):
        listed = []
    named = {column_name(name) for name in listed if isinstance(name, str)}
    return named | {name for name in schema.names if _UNNAMED_INDEX.fullmatch(name)}


def is_scalar(kind: Any) -> bool:
    """Whether an Arrow type is a whole number, a truth value or a text."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
    )


def _cells(column: Any) -> NDArray[Any]:
    """Return an Arrow column as numpy: a missing number is -1, a missing text is empty."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        numbers = column.cast(pa.int64(), safe=False).fill_null(UNLABELED)
        return np.asarray(numbers.to_numpy(False))
    if pa.types.is_floating(kind):
        return np.asarray(column.fill_null(float(UNLABELED)).to_numpy(False))
    return np.asarray(["" if cell is None else str(cell) for cell in column.to_pylist()], dtype=str)


def _with_type(texts: NDArray[Any]) -> NDArray[Any]:
    """Texts as whole numbers, or else numbers, if all of them are; a missing one becomes -1."""
    present = [text for text in texts.tolist() if text]
    if not present or any(_LEADING_ZERO.match(text) for text in present):
        return texts
    filled = np.where(texts == "", str(UNLABELED), texts)
    for kind in (np.int64, np.float64):
        try:
            return filled.astype(kind)
        except (ValueError, OverflowError):
            continue
    return texts
