"""Tables from CSV, parquet and ``.npz`` files and from `datasets`: their points and labels.

Points and labels are read separately: what returns points never opens the labels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.base import column_name
from fedul_flwr.config.user_files import regular_file
from fedul_flwr.data.class_labels import class_labels, labels_of_cells
from fedul_flwr.data.csv_files import open_csv, plain_numbers
from fedul_flwr.data.decode import BLOCK, EncodedImages, Images, Item
from fedul_flwr.data.encode import is_number, is_text
from fedul_flwr.data.formats import IMAGE_SUFFIXES, Split, npz_array, npz_names
from fedul_flwr.data.tables import (
    MAX_BYTES,
    Table,
    TableOptions,
    Texts,
    columns_by_name,
    in_memory,
    refuse_too_wide,
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


class _ParquetRows:
    """Rows of a parquet file, of which columns are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        self.path = path
        with _readable_parquet(path):
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
        with _readable_parquet(self.path):
            for batch in self.file.iter_batches(batch_size=BLOCK, columns=originals):
                columns = [batch.column(name) for name in originals]
                yield pa.RecordBatch.from_arrays(
                    [
                        column if column.type == field.type else column.cast(field.type)
                        for column, field in zip(columns, schema, strict=True)
                    ],
                    schema=schema,
                )

    def select(self, names: list[str]) -> Any:
        import pyarrow as pa

        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        return pa.Table.from_batches(self.to_batches(names), schema)


@contextmanager
def _readable_parquet(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"{path} cannot be read as a parquet file; it may be damaged.", "file-not-readable"
        ) from error


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
    if path.suffix.lower() != ".csv":
        return open_parquet(path)
    table = open_csv(path, as_written={options.text, id_column})
    if options.text:
        return table
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


def read_table(
    path: Path, options: TableOptions, id_column: str = ""
) -> tuple[list[str], Table | Texts]:
    """The names of points, and their features or texts; a column of labels is never read."""
    import pyarrow as pa

    if path.suffix.lower() == ".npz":
        refuse_texts_in_npz(path, options)
        vectors = npz_table(path)
        return [str(row) for row in range(len(vectors))], vectors
    id_column = column_name(id_column)
    table = open_table(path, options, id_column)
    names = [str(row) for row in range(len(table))]
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


def refuse_texts_in_npz(path: Path, options: TableOptions) -> None:
    """Refuse ``path`` if texts are wanted, which have names of columns."""
    if options.text:
        raise UserError(
            f"Setting text-column = {options.text!r} names a column, and {path} has none: texts "
            "come in .csv or .parquet files.",
            "setting-without-effect",
            setting="text-column",
        )


def npz_table(path: Path) -> Table:
    """The array ``vectors`` of an ``.npz`` file, ``(n, d)`` numbers."""
    vectors = npz_array(path, "vectors")
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiub":
        raise UserError(
            f"Array 'vectors' of {path} has type {vectors.dtype} and shape {vectors.shape}; "
            "numbers (n, d) are needed.",
            "array-wrong",
        )
    refuse_too_wide(vectors.shape[1], str(path))
    kind = np.float64 if vectors.itemsize > 4 else np.float32
    return Table(str(path), vectors=vectors.astype(kind))


def has_vectors(path: Path) -> bool:
    """Whether an ``.npz`` file holds vectors and not images."""
    names = npz_names(path)
    if {"images", "vectors"} <= set(names):
        raise UserError(
            f"{path} holds the arrays 'images' and 'vectors'; only one of them may be.",
            "files-contradict",
        )
    return "vectors" in names


def table_split(table: Table, options: TableOptions) -> Split:
    """Read a table with labels: of texts if asked for, of images if it has some, or of features."""
    label = _label_column(table, options.label)
    inputs: Images | Table | Texts
    if options.text:
        inputs, taken = texts_of(table, options.text), {options.text}
    elif image := image_column(table, label):
        inputs, taken = table_images(table), {image}
    else:
        inputs = features_of(table, options, label)
        taken = {*inputs.names} - {options.group}
    used = {label, *taken}
    others = {name: _scalars(table, name) for name in table.names if name not in used}
    columns = {name: values for name, values in others.items() if values is not None}
    where = f"Column {label!r} of {table.where}"
    labels = (labels_of_cells if table.untyped else class_labels)(table.column(label), where)
    feature = table.hub.get(label)
    if names := feature.get("names") if isinstance(feature, Mapping) else None:
        labels = labels.numbered_by(tuple(map(str, names)), where)
    return Split(inputs, labels, columns)


def _label_column(table: Table, chosen: str) -> str:
    """The column of labels: the ``chosen`` one, one of a usual name, or the only ClassLabel."""
    for name in (chosen,) if chosen else LABEL_NAMES:
        table.refuse_twice(name)
    if chosen:
        table.refuse_without(chosen, ", which setting label-column names")
        return chosen
    hub = [name for name in table.names if _hub_type(table, name) == "ClassLabel"]
    label = usual_label(table.names) or (hub[0] if len(hub) == 1 else "")
    if not label:
        raise table.lacks("label column, such as 'label'")
    return label


def usual_label(names: Sequence[str], chosen: str = "") -> str:
    """The column of labels if it is the ``chosen`` one or has a usual name, else empty."""
    return chosen or next((name for name in LABEL_NAMES if name in names), "")


def _hub_type(table: Table, column: str) -> str | None:
    """The Hugging Face type of a column, such as ``Image``, if it has one."""
    feature = table.hub.get(column)
    return feature.get("_type") if isinstance(feature, Mapping) else None


def _scalars(table: Table, name: str) -> NDArray[Any] | None:
    """A column of whole numbers, truth values or texts, but no long ones; a missing number is -1,
    and a missing text empty."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    kind = table.type_of(name)
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    if not is_whole and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    column = table.column(name).cast(kind)
    if is_whole:
        return np.asarray(column.cast(pa.int64(), safe=False).fill_null(UNLABELED).to_numpy())
    if (pc.max(pc.utf8_length(column)).as_py() or 0) > _LONGEST_TEXT or not len(column):
        return None
    texts = np.asarray(column.fill_null("").to_pylist(), dtype=str)
    present = [text for text in texts.tolist() if text]
    if not table.untyped or not present or any(map(_LEADING_ZERO.match, present)):
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
    for name in ("image", "img"):
        if name in candidates:
            return name
    if len(candidates) > 1:
        raise table.lacks("column 'image' or 'img', but several of images")
    return candidates[0] if candidates else ""


def table_images(table: Table) -> Images:
    """The images of a table: column ``image`` or ``img``, or its only image column."""
    column = image_column(table)
    if not column:
        raise table.lacks("image column, such as 'image' or 'img'")

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
    here = f"Column {name!r} of {table.where}"
    kind = table.type_of(name)
    if not is_text(kind):
        raise UserError(f"{here} has the type {kind}; texts are needed.", "column-type")
    column = table.column(name).cast(kind)
    if missing := column.null_count:
        raise UserError(
            f"{here} has {missing} texts that are missing: leave these rows out.", "text-wrong"
        )
    if (pc.max(pc.binary_length(column)).as_py() or 0) > MAX_BYTES:
        raise UserError(
            f"{here} has a text of more than {MAX_BYTES:,} bytes: shorten it.", "text-wrong"
        )
    texts = [text.encode() for text in column.to_pylist()]
    return Texts(table.where, np.array(texts, dtype=np.bytes_), table.note)


def features_of(table: Table, options: TableOptions, label: str) -> Table:
    """The columns of ``table`` that become features: those that are stated, or all but the label,
    the group of a natural partition and the index of pandas. One column of lists becomes vectors.
    """
    columns = options.columns
    if columns is not None and label in columns.names:
        label = ""  # a feature that is called as labels often are
    names = [name for name in table.names if name != label]
    lists = [name for name in names if _is_list(table, name)]
    if len(lists) == 1 and not (columns is not None and {*names} >= {*columns.names}):
        return _from_lists(table, lists[0], [name for name in names if name != options.group])
    for name in table.twice if columns is None else columns.names:
        table.refuse_twice(name)
    if columns is not None:
        there = {*names}
        for name in columns.names:
            if name not in there:
                raise table.lacks(f"column {name!r}")
        wanted = [*columns.names]
    else:
        left_out = {options.group, *_index_columns(table.content.schema)}
        wanted = [name for name in names if name not in left_out]
    if not wanted:
        raise UserError(
            f"{table.where} has no column of features beside the label.", "column-missing"
        )
    refuse_too_wide(len(wanted), table.where)
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
    refuse_too_wide(widths[0] if widths else 1, table.where)
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
