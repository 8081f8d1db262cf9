"""Read tables of numbers and categories: CSV, parquet, ``.npz``, and tables of `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.base import column_name
from fedul_flwr.data.arrow import (
    ArrowTable,
    arrow_images,
    arrow_split,
    image_column,
    index_columns,
    label_column,
    open_parquet,
    refuse_file_names,
    usual_label,
)
from fedul_flwr.data.column_cells import is_number
from fedul_flwr.data.csv_files import open_csv, plain_numbers
from fedul_flwr.data.formats import Split, npz_array, npz_names
from fedul_flwr.data.tables import MAX_BYTES, Table, TableOptions, Texts, refuse_too_wide
from fedul_flwr.errors import UserError


def read_table(path: Path, options: TableOptions) -> Table | Texts:
    """Read the feature columns or the texts of a file; a column of labels is never read."""
    if path.suffix.lower() == ".npz":
        refuse_texts_in_npz(path, options)
        return npz_table(path)
    return _points(open_table(path, options), options)


def read_with_ids(
    path: Path, options: TableOptions, id_column: str
) -> tuple[list[str], Table | Texts]:
    """The texts in a column of identifiers, which is never a feature, and the points.

    A missing identifier is an empty text.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    if path.suffix.lower() == ".npz":
        raise UserError(
            f"--id-column {id_column!r}: {path} has no columns with names.",
            "option-without-effect",
            option="--id-column",
        )
    id_column = column_name(id_column)
    table = open_table(path, options, id_column)
    table.refuse_twice(id_column)
    if id_column not in table.names:
        raise table.refuse(f"no column {id_column!r}, which --id-column names")
    if id_column == options.text or (options.columns and id_column in options.columns.names):
        raise UserError(
            f"--id-column {id_column!r}: the model takes this column, so it is no identifier.",
            "option-not-allowed",
            option="--id-column",
        )
    try:
        ids = [
            "" if cell is None else cell
            for batch in table.batches([id_column])
            for cell in batch.column(0).cast(pa.string()).to_pylist()
        ]
    except pa.ArrowException:
        kind = table.schema.field(id_column).type
        raise UserError(
            f"--id-column {id_column!r} of {path} has the type {kind}; texts or numbers "
            "are needed.",
            "column-type",
            option="--id-column",
        ) from None
    rest = table.schema.remove(table.schema.get_field_index(id_column))
    return ids, _points(replace(table, schema=rest), options)


def _points(table: ArrowTable, options: TableOptions) -> Table | Texts:
    if options.text:
        return arrow_texts(table, options.text)
    # A trained model's columns may have the usual name of a label.
    label = "" if options.trained else usual_label(table.names, options.label)
    return arrow_features(table, options, label)


def open_table(path: Path, options: TableOptions, id_column: str = "") -> ArrowTable:
    """Open a CSV or a parquet file; errors as :func:`csv_table` and :func:`open_parquet`."""
    if path.suffix.lower() == ".csv":
        return csv_table(path, options, id_column)
    return open_parquet(path)


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
    return Table(str(path), vectors.astype(np.float64 if vectors.itemsize > 4 else np.float32))


def has_vectors(path: Path) -> bool:
    """Whether an ``.npz`` file holds vectors and not images."""
    names = npz_names(path)
    if {"images", "vectors"} <= set(names):
        raise UserError(
            f"{path} holds the arrays 'images' and 'vectors'; only one of them may be.",
            "files-contradict",
        )
    return "vectors" in names


def csv_table(path: Path, options: TableOptions, id_column: str = "") -> ArrowTable:
    """Open a CSV file as a table of texts, with the numbers of features as Python writes them.

    What a column means is decided once, and not by the cells of one file.

    Numbers of columns that do not become features are not looked at, so that none makes the file
    unreadable.

    Parameters
    ----------
    id_column : a column whose cells stay as they are written, and that is no feature.
    """
    texts = {options.text, id_column}
    file = open_csv(path, as_written=texts)
    names, columns = file.cells.column_names, options.columns
    label = usual_label(names, options.label)
    if options.trained or (columns is not None and label in columns.names):
        label = ""  # a feature that is called as labels often are
    wanted = []
    if not options.text:
        wanted = [name for name in names if name not in {options.group, label}]
    if columns is not None:
        texts |= {column.name for column in columns.columns if column.categories is not None}
        features = {*columns.names}
        wanted = [name for name in wanted if name in features]
    file = plain_numbers(file, (name for name in wanted if name not in texts))
    table = in_memory(str(path), file.cells)
    note = ", ".join(file.notes)
    return replace(table, twice=file.twice, note=note, mark=file.mark, untyped=True)


def in_memory(where: str, content: Any) -> ArrowTable:
    """An Arrow table in memory as an :class:`ArrowTable`."""

    def batches(names: list[str]) -> Iterator[Any]:
        yield from content.select(names).to_batches()

    return ArrowTable(where, content.num_rows, content.schema, {}, batches)


def table_split(table: ArrowTable, options: TableOptions) -> Split:
    """Read a table with labels: of texts if asked for, of images if it has some, or of features."""
    label = label_column(table, options.label)
    if options.text:
        return arrow_split(table, arrow_texts(table, options.text), label, {options.text})
    if image := image_column(table, label):
        return arrow_split(table, arrow_images(table), label, {image})
    features = arrow_features(table, options, label)
    return arrow_split(table, features, label, {*features.names} - {options.group})


def arrow_texts(table: ArrowTable, name: str) -> Texts:
    """Column ``name`` of a table."""
    import pyarrow as pa

    table.refuse_twice(name)
    if name not in table.names:
        raise table.refuse(f"no column {name!r}, which setting text-column names")
    kind = table.schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(
            f"Column {name!r} of {table.where} has the type {kind}; texts are needed.",
            "column-type",
        )
    texts: list[bytes] = []
    missing = 0
    for batch in table.batches([name]):
        cells = batch.column(0).to_pylist()
        missing += cells.count(None)
        texts += [(cell or "").encode() for cell in cells]
    if missing:
        raise UserError(
            f"Column {name!r} of {table.where} has {missing} texts that are missing: leave these "
            "rows out.",
            "text-wrong",
        )
    if max(map(len, texts), default=0) > MAX_BYTES:
        raise UserError(
            f"Column {name!r} of {table.where} has a text of more than {MAX_BYTES:,} bytes: "
            "shorten it.",
            "text-wrong",
        )
    return Texts(table.where, np.array(texts, dtype=np.bytes_), table.note)


def arrow_features(table: ArrowTable, options: TableOptions, label: str) -> Table:
    """The columns of ``table`` that become features: those that are known, or all but the label,
    the group of a natural partition and the index of pandas. One column of lists becomes vectors.
    """
    import pyarrow as pa

    columns = options.columns
    if columns is not None and label in columns.names:
        label = ""  # a feature that is called as labels often are
    names = [name for name in table.names if name != label]
    there = set(names)
    has_known = columns is not None and there.issuperset(columns.names)
    lists = [name for name in names if _is_list(table, name)]
    if len(lists) == 1 and not has_known:
        return _from_lists(table, lists[0], [name for name in names if name != options.group])
    for name in table.twice if columns is None else columns.names:
        table.refuse_twice(name)
    if columns is not None:
        for name in columns.names:
            if name not in there:
                raise table.refuse(f"no column {name!r}")
        wanted = [*columns.names]
    else:
        left_out = {options.group, *index_columns(table.schema)}
        wanted = [name for name in names if name not in left_out]
    if not wanted:
        raise UserError(
            f"{table.where} has no column of features beside the label.", "column-missing"
        )
    refuse_too_wide(len(wanted), table.where)
    parts: dict[str, list[Any]] = {name: [] for name in wanted}
    for batch in table.batches(wanted):
        for name, chunks in parts.items():
            column = batch.column(name)
            chunks.extend(getattr(column, "chunks", [column]))
    types = {name: table.schema.field(name).type for name in wanted}
    cells = {n: pa.chunked_array(c, None if c else types[n]) for n, c in parts.items()}
    for name in wanted if columns is None else ():
        refuse_file_names(cells[name], name, table.where)
    return Table(table.where, cells=cells, note=table.note, mark=table.mark)


def _from_lists(table: ArrowTable, name: str, names: list[str]) -> Table:
    """The vectors of a column of lists, which the other columns ``names`` add nothing to."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    parts: list[NDArray[Any]] = []
    widths: set[int] = set()
    for batch in table.batches([name]):
        column = batch.column(0)
        widths |= set(pc.list_value_length(column).fill_null(0).to_pylist())
        if len(widths) > 1:
            one, other = sorted(widths)[:2]
            raise UserError(
                f"Column {name!r} of {table.where} holds lists of {one} and of {other} numbers; "
                "all must be equally long.",
                "columns-differ",
            )
        values = column.flatten().cast(pa.float64(), safe=False).to_numpy(False)
        parts.append(np.asarray(values, dtype=np.float64).reshape(len(column), -1))
    if not parts:
        return Table(table.where, np.empty((0, 1)))
    refuse_too_wide(next(iter(widths)), table.where)
    rest = [repr(other) for other in names if other not in {name, *index_columns(table.schema)}]
    listed = f"{', '.join(rest[:5])}{' and others' * (len(rest) > 5)}"
    note = f"vectors of column {name!r}; left out: {listed}" if rest else ""
    return Table(table.where, np.concatenate(parts), note=note)


def _is_list(table: ArrowTable, name: str) -> bool:
    import pyarrow as pa

    kind = table.schema.field(name).type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not lists and not pa.types.is_fixed_size_list(kind):
        return False
    return is_number(kind.value_type)
