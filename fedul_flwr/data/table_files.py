"""Tables and arrays from CSV, parquet and ``.npz`` files and from `datasets`: points and labels.

Points and labels are read separately: what returns points never opens the labels.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.base import column_name
from fedul_flwr.config.user_files import regular_file
from fedul_flwr.data.class_labels import ClassLabels, class_labels, labels_of_cells
from fedul_flwr.data.columns import Columns
from fedul_flwr.data.csv_files import open_csv, plain_numbers
from fedul_flwr.data.decode import BLOCK, IMAGE_SUFFIXES, EncodedImages, Images, Item, PixelImages
from fedul_flwr.data.encode import canonical, common_vectors
from fedul_flwr.data.headers import named_by, stated_units
from fedul_flwr.data.tables import (
    MAX_BYTES,
    Table,
    TableOptions,
    Texts,
    VectorPoints,
    columns_by_name,
    in_memory,
    is_number,
    is_text,
)
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

Opened = Images | Table | Texts
"""Points as they are opened, before images are decoded and tables encoded."""
Points = Images | VectorPoints | Texts
"""Points that can be written in blocks of one shape."""


@dataclass(frozen=True)
class LabeledSplit:
    """One split of a data set as read from its files.

    Attributes
    ----------
    labels : ``n`` labels; another split may have other classes, unless the format lists them.
    columns : further integer and text columns, ``(n,)`` each.
    """

    inputs: Opened
    labels: ClassLabels
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def refuse_empty(inputs: Opened) -> None:
    """Refuse a collection without points."""
    if len(inputs) == 0:
        raise UserError(
            f"{inputs.where} holds no points; one or more are needed.", "points-missing"
        )


def storable(
    parts: Sequence[Opened], options: TableOptions, training: int | None = None
) -> tuple[Columns | None, list[Points]]:
    """Points of several files or splits as they are stored, and the columns of tables.

    What fills missing values of tables, unless the options say it, comes from the first
    ``training`` parts, by default from all.
    """
    for part in parts:
        refuse_empty(part)
    tables = [part for part in parts if isinstance(part, Table)]
    if len(tables) == len(parts):
        columns, vectors = common_vectors(tables, tables[:training], options)
        return columns, [*vectors]
    texts = [part for part in parts if isinstance(part, Texts)]
    images = [part for part in parts if isinstance(part, Images)]
    if len(parts) not in (len(texts), len(images)):
        raise UserError(
            f"{' and '.join(part.where for part in parts)} hold images and vectors; only one of "
            "them.",
            "splits-differ",
        )
    return None, [*texts, *(image.read_with(options.bits, options.window) for image in images)]


# Arrays, and the .npz files that have them.

FORMS = {
    2: "vectors (n, d) of numbers",
    3: "images (n, height, width) or (n, height, width, 1 or 3), uint8 or floats in [0, 1]",
}


def of_array(
    array: NDArray[Any],
    where: str,
    axes: Sequence[int] = (2, 3, 4),
    channels: Literal["last", "first", "either"] = "last",
) -> PixelImages | Table:
    """Images or vectors, by the number of an array's axes.

    Parameters
    ----------
    channels : where an image has its 1 or 3 channels: behind height and width, before them, or
        wherever an axis of that length stands, behind them if both may be.
    """
    if array.ndim == 2 and 2 in axes and array.dtype.kind in "fiub":
        is_exact = array.dtype.kind in "iu" and array.itemsize > 4
        kind = np.float32 if np.can_cast(array.dtype, np.float32) else np.float64
        with np.errstate(over="ignore"):  # infinite values are refused
            return Table(where, vectors=array if is_exact else array.astype(kind))
    images = array[..., np.newaxis] if array.ndim == 3 else array
    if array.ndim in axes and images.ndim == 4 and 0 not in images.shape[1:]:
        is_first = array.ndim == 4 and images.shape[1] in (1, 3) and channels != "last"
        if is_first and (channels == "first" or images.shape[3] not in (1, 3)):
            images = images.transpose(0, 2, 3, 1)
        if images.shape[3] in (1, 3):
            is_full = images.dtype.kind in "fb"
            return PixelImages(where, _pixels(images, where), is_full=is_full)
    wanted = " or ".join(FORMS[axis] for axis in FORMS if axis in axes)
    raise UserError(
        f"{where} holds {array.dtype} of the shape {array.shape}; it must hold {wanted}.",
        "array-wrong",
    )


def _pixels(images: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """Images as uint8, if all values are whole numbers from 0 to 255, truth values, or floats in
    [0, 1]. Whole numbers of 16 bits are refused: they have a range of their own."""
    if images.dtype == np.uint8:
        return images
    kind, largest = images.dtype.kind, 255
    if kind in "fb":
        largest = 1
    elif kind not in "iu" or images.itemsize == 2:
        largest = -1
    pixels = np.empty(images.shape, dtype=np.uint8)
    for start in range(0, len(images), BLOCK):
        block = images[start : start + BLOCK]
        if not ((block >= 0) & (block <= largest)).all():  # NaN fails both
            values = f" from {images.min():.6g} to {images.max():.6g}" if kind in "fiu" else ""
            raise UserError(
                f"{where} has values of {images.dtype}{values}; images have uint8 from 0 to 255, "
                "or floats from 0 to 1, not normalized.",
                "array-wrong",
            )
        pixels[start : start + BLOCK] = np.rint(block.astype(np.float64) * (255 / largest))
    return pixels


def npz_images(path: Path) -> PixelImages | Table:
    """The array ``images`` of an ``.npz`` file."""
    return of_array(npz_array(path, "images"), f"Array 'images' of {path}", (3, 4))


def npz_vectors(path: Path, options: TableOptions) -> PixelImages | Table:
    """The array ``vectors`` of an ``.npz`` file, where no texts are wanted."""
    if options.text:
        raise UserError(
            f"Setting text-column = {options.text!r} names a column, and {path} has none: texts "
            "come in .csv or .parquet files.",
            "setting-without-effect",
            setting="text-column",
        )
    return of_array(npz_array(path, "vectors"), f"{path}", (2,))


def npz_split(path: Path, options: TableOptions) -> LabeledSplit:
    """Points of an ``.npz`` file, ``labels`` and perhaps further ``(n,)`` arrays."""
    names = npz_names(path)
    if {"images", "vectors"} <= set(names):
        raise UserError(
            f"{path} holds the arrays 'images' and 'vectors'; only one of them may be.",
            "files-contradict",
        )
    is_table = options.text or "vectors" in names
    inputs = npz_vectors(path, options) if is_table else npz_images(path)
    labels = class_labels(npz_array(path, "labels"), f"Array 'labels' of {path}", len(inputs))
    columns = {}
    for name in (name for name in names if name not in {"images", "vectors", "labels"}):
        values = npz_array(path, name)
        is_listed = values.ndim == 1 and values.dtype.kind in "iubU"
        if name == "class_names" and is_listed and values.size:
            labels = labels.numbered_by(tuple(map(str, values)), str(path))
        elif name == "class_names" or (is_listed and len(values) != len(inputs)):
            raise UserError(
                f"Array {name!r} of {path} has the shape {values.shape}; it must have an entry for "
                f"each {'class' if name == 'class_names' else 'point'}.",
                "array-wrong",
            )
        elif is_listed:
            columns[name] = values
    return LabeledSplit(inputs, labels, columns)


def npz_names(path: Path) -> list[str]:
    """Names of the arrays in an ``.npz`` file."""
    with _readable(path, "the file"), np.load(regular_file(path), allow_pickle=False) as file:
        return list(file.files)


def npz_array(path: Path, name: str) -> NDArray[Any]:
    """One array of an ``.npz`` file; refused if it is missing or damaged."""
    names = npz_names(path)
    if name not in names:
        raise UserError(
            f"{path} has no array {name!r}; its arrays are: {', '.join(names)}.", "array-wrong"
        )
    with _readable(path, f"array {name!r}"), zipfile.ZipFile(path) as archive:
        size, memory = archive.getinfo(f"{name}.npy").file_size, memory_size()
    if size > memory:  # a small file may say so
        raise UserError(
            f"Array {name!r} of {path} needs {size:,} bytes, and this machine has {memory:,}: "
            "split it over several files.",
            "file-too-large",
        )
    with _readable(path, f"array {name!r}"), np.load(path, allow_pickle=False) as file:
        return np.asarray(file[name])


def memory_size() -> int:
    """Bytes of this machine's memory; without a bound where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    import pyarrow as pa  # type: ignore[import-untyped]

    of_zip = (EOFError, TypeError, zipfile.BadZipFile, zlib.error)  # TypeError: for a .npy array
    try:
        yield
    except (OSError, ValueError, pa.ArrowException, *of_zip) as error:
        raise UserError(
            f"{path} cannot be read: {what} must be whole, and hold numbers or texts.",
            "file-not-readable",
        ) from error


# Tables in files.


class _ParquetRows:
    """Rows of a parquet file, of which columns are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        self.path = path
        with _readable(path, "the parquet file"):
            self.file = pq.ParquetFile(regular_file(path))
            written = self.file.schema_arrow
        places, self.twice = columns_by_name(written.names)
        self.originals = {name: written.names[index] for name, index in places.items()}
        fields = [written.field(index).with_name(name) for name, index in places.items()]
        # Arrow computes nothing on views.
        usual = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
        fields = [field.with_type(usual.get(str(field.type), field.type)) for field in fields]
        self.schema = pa.schema(fields, written.metadata)
        self.num_rows = self.file.metadata.num_rows

    def to_batches(self, names: list[str]) -> Iterator[Any]:
        import pyarrow as pa

        schema = pa.schema([self.schema.field(name) for name in names])
        originals = [self.originals[name] for name in names]
        with _readable(self.path, "the parquet file"):
            for batch in self.file.iter_batches(batch_size=BLOCK, columns=originals):
                columns = [
                    batch.column(name).cast(field.type)
                    for name, field in zip(originals, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def rename_columns(self, names: list[str]) -> _ParquetRows:
        import pyarrow as pa

        renamed = copy(self)
        renamed.originals = dict(zip(names, self.originals.values(), strict=True))
        fields = [field.with_name(name) for field, name in zip(self.schema, names, strict=True)]
        renamed.schema = pa.schema(fields, self.schema.metadata)
        return renamed

    def select(self, names: list[str]) -> Any:
        import pyarrow as pa

        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        return pa.Table.from_batches(self.to_batches(names), schema)


def open_parquet(path: Path) -> Table:
    """Open a parquet file."""
    rows = _ParquetRows(path)
    try:
        features = json.loads(rows.schema.metadata[b"huggingface"])["info"]["features"]
        hub = {column_name(name): feature for name, feature in features.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        hub = {}
    return Table(str(path), rows, hub=hub, twice=rows.twice)


def hub_table(where: str, data: Any) -> Table:
    """A split of a data set of Hugging Face."""
    import datasets

    for name, feature in data.features.items():
        if isinstance(feature, datasets.Image):
            data = data.cast_column(name, datasets.Image(decode=False))
    places, twice = columns_by_name(data.column_names)
    content = data.with_format("arrow")[:].select([*places.values()])
    features = data.features.to_dict()
    hub = {column_name(name): feature for name, feature in features.items()}
    return in_memory(where, content.rename_columns([*places]), hub=hub, twice=twice, has_paths=True)


def open_table(path: Path, options: TableOptions, id_column: str = "") -> Table:
    """Open a parquet file, or a CSV file with the numbers of features as Python writes them.

    What a column means is decided once, and not by the cells of one file. Numbers of columns that
    do not become features are not looked at, so that none makes the file unreadable.
    """
    units = {} if options.text else stated_units(path)
    if path.suffix.lower() != ".csv":
        return named_by(open_parquet(path), options.columns, units)
    table = open_csv(path, as_written={options.text, id_column})
    if options.text:
        return table
    table = named_by(table, options.columns, units)
    names = table.names
    if options.columns is not None:
        columns = options.columns.columns
        names = [column.name for column in columns if column.categories is None]
    wanted = {*names} - {id_column, options.group, _label(table, options)}
    return plain_numbers(table, [name for name in table.names if name in wanted])


def _label(table: Table, options: TableOptions) -> str:
    """The column of labels; empty if the columns of a model have one of this name."""
    label = usual_label(table.names, options.label)
    is_feature = options.columns is not None and label in options.columns.names
    return "" if options.trained or is_feature else label


def read_table(path: Path, options: TableOptions, id_column: str = "") -> tuple[list[str], Opened]:
    """The names of points, and their features or texts; a column of labels is never read."""
    import pyarrow as pa

    if path.suffix.lower() == ".npz":
        vectors = npz_vectors(path, options)
        return list(map(str, range(len(vectors)))), vectors
    id_column = column_name(id_column)
    table = open_table(path, options, id_column)
    names = list(map(str, range(len(table))))
    if id_column:
        table.refuse_without(id_column, ", which --id-column names")
        if id_column == options.text or (options.columns and id_column in options.columns.names):
            raise UserError(
                f"--id-column {id_column!r}: the model takes this column, so it is no identifier.",
                "option-not-allowed",
                option="--id-column",
            )
        names = table.column(id_column).cast(pa.string()).fill_null("").to_pylist()
        rest = [name for name in table.names if name != id_column]
        table = replace(table, content=table.content.select(rest))
    if options.text:
        return names, texts_of(table, options.text)
    return names, features_of(table, options, _label(table, options))


def table_split(table: Table, options: TableOptions) -> LabeledSplit:
    """Read a table with labels: of texts if asked for, of images if it has some, or of features."""
    label = label_column(table, options.label)
    inputs: Opened
    if options.text:
        inputs, taken = texts_of(table, options.text), {options.text}
    elif image := image_column(table, label):
        inputs, taken = table_images(table), {image}
    else:
        inputs = features_of(table, options, label)
        taken = {*inputs.names} - {options.group}
    used = {label, *taken}
    others = {
        name: _scalars(table, name, name == options.group)
        for name in table.names
        if name not in used
    }
    columns = {name: values for name, values in others.items() if values is not None}
    where = f"Column {label!r} of {table.where}"
    labels = (labels_of_cells if table.separator else class_labels)(table.column(label), where)
    feature = table.hub.get(label)
    if names := feature.get("names") if isinstance(feature, Mapping) else None:
        labels = labels.numbered_by(tuple(map(str, names)), where)
    return LabeledSplit(inputs, labels, columns)


def label_column(table: Table, chosen: str) -> str:
    """The column of labels: the ``chosen`` one, one of a usual name, or the only ClassLabel."""
    for name in LABEL_NAMES if not chosen else ():
        table.refuse_twice(name)
    hub = [name for name in table.names if _hub_type(table, name) == "ClassLabel"]
    label = usual_label(table.names, chosen) or (hub[0] if len(hub) == 1 else "label")
    named = "which setting label-column names" if chosen else "and setting label-column names none"
    table.refuse_without(label, f", {named}")
    return label


def usual_label(names: Sequence[str], chosen: str = "") -> str:
    """The column of labels if it is the ``chosen`` one or has a usual name, else empty."""
    return chosen or next((name for name in LABEL_NAMES if name in names), "")


def _hub_type(table: Table, column: str) -> str | None:
    """The Hugging Face type of a column, such as ``Image``, if it has one."""
    feature = table.hub.get(column)
    return feature.get("_type") if isinstance(feature, Mapping) else None


def _scalars(table: Table, name: str, is_group: bool) -> NDArray[Any] | None:
    """A column of whole numbers, truth values or texts, but no long ones; a missing number is -1,
    and a missing text empty. Dates and other numbers are texts where they name clients."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    kind = table.type_of(name)
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    column = table.column(name).cast(kind)
    if not is_whole and not is_text(kind):
        if not is_group or pa.types.is_nested(kind):
            return None
        cells = (None if cell != cell else cell for cell in column.to_pylist())
        return np.array(["" if cell is None else canonical(str(cell)) for cell in cells])
    if is_whole:
        return np.asarray(column.cast(pa.int64(), safe=False).fill_null(UNLABELED).to_numpy())
    if (pc.max(pc.utf8_length(column)).as_py() or 0) > _LONGEST_TEXT or not len(column):
        return None
    texts = np.asarray(column.fill_null("").to_pylist(), dtype=str)
    present = [text for text in texts.tolist() if text]
    if not table.separator or not present or any(map(_LEADING_ZERO.match, present)):
        return texts
    filled = np.where(texts == "", str(UNLABELED), texts)
    for number in (np.int64, np.float64):
        try:
            return filled.astype(number)
        except (ValueError, OverflowError):
            continue
    return texts


def image_column(table: Table, label: str = "") -> str:
    """Column ``image`` or ``img``, or the only column of images beside the ``label``; empty if
    there is none.
    """
    import pyarrow as pa

    def holds_images(name: str) -> bool:
        kind = table.content.schema.field(name).type
        if pa.types.is_struct(kind):
            return any(f.name == "bytes" and pa.types.is_binary(f.type) for f in kind)
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    candidates = [
        name
        for name in table.names
        if name != label and (_hub_type(table, name) == "Image" or holds_images(name))
    ]
    usual = [name for name in ("image", "img") if name in candidates]
    if not usual and len(candidates) > 1:
        table.refuse_without("image", ", or only one of images")
    return next(iter((*usual, *candidates)), "")


def table_images(table: Table) -> Images:
    """The images of a table: column ``image`` or ``img``, or its only image column."""
    column = image_column(table) or "image"
    table.refuse_without(column)

    def batches() -> Iterator[list[Item]]:
        row, content = 0, table.content
        of_file = isinstance(content, _ParquetRows)
        for batch in (
            content.to_batches([column]) if of_file else content.select([column]).to_batches(BLOCK)
        ):
            names = (f"row {row + at} of {table.where}" for at in range(len(batch)))
            yield [
                (name, _image_content(name, cell, table.has_paths))
                for name, cell in zip(names, batch.column(0).to_pylist(), strict=True)
            ]
            row += len(batch)

    return EncodedImages(table.where, len(table), batches)


def _image_content(name: str, cell: Any, has_paths: bool) -> bytes | Path:
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if isinstance(content, bytes):
        return content
    if has_paths and isinstance(cell, dict) and cell.get("path"):
        return Path(cell["path"])
    raise UserError(f"{name} holds no image; every row needs the bytes of one.", "points-missing")


def texts_of(table: Table, name: str) -> Texts:
    """Column ``name`` of a table."""
    import pyarrow.compute as pc

    table.refuse_without(name, ", which setting text-column names")
    kind = table.type_of(name)
    column = table.column(name).cast(kind)
    is_short = is_text(kind) and (pc.max(pc.binary_length(column)).as_py() or 0) <= MAX_BYTES
    if column.null_count or not is_short:
        raise UserError(
            f"Column {name!r} of {table.where} has the type {kind} and {column.null_count} missing "
            f"cells; it must have a text of at most {MAX_BYTES:,} bytes in every row.",
            "text-wrong",
        )
    texts = [text.encode() for text in column.to_pylist()]
    return Texts(table.where, np.array(texts, dtype=np.bytes_), table.note)


def features_of(table: Table, options: TableOptions, label: str) -> Table:
    """The columns of ``table`` that become features: those that are stated, or all but the label,
    the group of a natural partition and the index of pandas. One column of lists becomes vectors.
    """
    columns = options.columns
    table = named_by(table, columns)
    if columns is not None and label in columns.names:
        label = ""  # a feature that is called as labels often are
    names = [name for name in table.names if name != label]
    lists = [name for name in names if _is_list(table, name)]
    if len(lists) == 1 and not (columns is not None and {*names} >= {*columns.names}):
        return _from_lists(table, lists[0], [name for name in names if name != options.group])
    if columns is not None:
        wanted = [*columns.names]
        for name in wanted:
            table.refuse_without(name)
    else:
        for name in table.twice:
            table.refuse_twice(name)
        left_out = {options.group, *_index_columns(table.content.schema)}
        wanted = [name for name in names if name not in left_out]
    if not wanted:
        raise table.lacks("column of features beside the label")
    features = replace(table, content=table.content.select(wanted))
    for name in wanted if columns is None else ():
        _refuse_file_names(features.column(name), name, table.where)
    return features


def _refuse_file_names(cells: Any, column: str, where: str) -> None:
    """Refuse a column of Arrow with names of image files, which would become a category."""
    first = [str(cell).lower() for cell in cells[:_NAMES_TRIED].to_pylist() if cell is not None]
    if first and all(text.endswith(IMAGE_SUFFIXES) for text in first):
        raise UserError(
            f"Column {column!r} of {where} holds names of image files; give the images themselves "
            "(datasets.Image() in a data set of Hugging Face), or a folder for each class.",
            "column-type",
        )


def _from_lists(table: Table, name: str, names: list[str]) -> Table:
    """The vectors of a column of lists, which the other columns ``names`` add nothing to."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    widths = sorted(pc.unique(pc.list_value_length(column).fill_null(0)).to_pylist())
    if len(widths) > 1:
        raise UserError(
            f"Column {name!r} of {table.where} holds lists of {widths[0]} and of {widths[1]} "
            "numbers; all must be equally long.",
            "columns-differ",
        )
    values = pc.list_flatten(column).cast(pa.float64(), safe=False).to_numpy()
    vectors = np.asarray(values, dtype=np.float64).reshape(len(column), *widths or [1])
    left_out = {name, *_index_columns(table.content.schema)}
    rest = [repr(other) for other in names if other not in left_out]
    listed = f"{', '.join(rest[:5])}{' and others' * (len(rest) > 5)}"
    note = f"vectors of column {name!r}; left out: {listed}" if rest else ""
    return Table(table.where, vectors=vectors, note=note)


def _is_list(table: Table, name: str) -> bool:
    import pyarrow as pa

    kind = table.content.schema.field(name).type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return (lists or pa.types.is_fixed_size_list(kind)) and is_number(kind.value_type)


def _index_columns(schema: Any) -> set[str]:
    """Columns that were the index of a frame of pandas, such as the number of a row."""
    try:
        listed = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, TypeError, ValueError):
        listed = []
    named = {column_name(name) for name in listed if isinstance(name, str)}
    return named | {name for name in schema.names if _UNNAMED_INDEX.fullmatch(name)}
