"""Data that a program has in memory, as a data set on disk that a run can name.

They are written once, into a folder of the cache that only this user can open and that is named by
their content.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from io import BytesIO
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Ints
from fedul_flwr.config.base import column_name
from fedul_flwr.data.class_labels import ClassLabels, class_labels, distinct_values
from fedul_flwr.data.columns import refuse_twice, unnamed_columns
from fedul_flwr.data.decode import (
    BLOCK,
    EncodedImages,
    Images,
    PixelImages,
    as_written,
    join_blocks,
    list_batches,
    readable,
    refuse_unused_range,
    upright,
)
from fedul_flwr.data.encode import canonical
from fedul_flwr.data.safe_files import IN_MEMORY, build_by_content
from fedul_flwr.data.saying_columns import SAID, in_words, left_out, said_by, saying_feature
from fedul_flwr.data.sources import stratified_test
from fedul_flwr.data.table_files import (
    features_of,
    hub_table,
    label_column,
    of_array,
    storable,
)
from fedul_flwr.data.tables import NO_OPTIONS, Table, TableOptions, in_memory
from fedul_flwr.data.types import UNLABELED, Inputs, InputShape
from fedul_flwr.errors import UserError

# Points in memory, of any usual type, as the images and tables that the rest of the code reads.

_OF_PNG = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}
_OF_TIFF = {"I", "F", "I;16B"}
"""Modes of pictures that these formats keep without loss."""


def is_of(value: object, package: str, name: str) -> bool:
    """Whether ``value`` is an instance of class ``name`` of ``package``, which is not imported."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))


def is_frame(value: object) -> bool:
    """Whether ``value`` is a DataFrame of pandas or polars, or a table of Arrow."""
    is_stream = hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns")
    return is_of(value, "pandas", "DataFrame") or is_stream


def as_array(values: Any, what: str = "x") -> NDArray[Any]:
    """``values``, an array, a tensor, a list or a picture, as an array; NaN where it is masked."""
    first = values[0] if isinstance(values, list | tuple) and values else None
    try:
        if is_of(first, "torch", "Tensor") or isinstance(first, np.ndarray):
            return np.stack([as_array(part, what) for part in values])
        if hasattr(values, "toarray"):
            raise TypeError("sparse")
        if is_of(values, "torch", "Tensor"):
            values = values.detach().cpu().resolve_conj().resolve_neg()
            # NumPy has no bfloat16.
            narrow = values.is_floating_point() and values.element_size() < 4
            values = (values.float() if narrow else values).numpy()
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            values = np.ma.filled(values.astype(np.float64), np.nan)
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise UserError(
            f"{what} must be a dense array of numbers, all points of one shape.",
            "data-not-readable",
        ) from None
    return _of_numbers(array, what) if array.dtype == object else array


def _of_numbers(objects: NDArray[Any], what: str) -> NDArray[Any]:
    """float64 of objects that are numbers or missing; other arrays are unchanged."""
    import pandas as pd

    flat = pd.Series(objects.ravel(), dtype=object)
    missing = flat.isna()
    if not all(isinstance(v, Real | Decimal | np.number | np.bool_) for v in flat[~missing]):
        return objects
    return _as_float64(flat.mask(missing, np.nan), what).reshape(objects.shape)


def _as_float64(numbers: Any, where: str) -> NDArray[np.float64]:
    """A series of any numbers as float64, or a UserError where one is larger than that has."""
    try:
        return np.asarray(numbers.astype(np.float64))
    except OverflowError:
        raise UserError(
            f"{where} has a number beyond {np.finfo(np.float64).max:.1e}, the largest that can be "
            "read: scale it, or leave it out.",
            "cell-not-a-number",
        ) from None


def are_pictures(points: Any) -> bool:
    """Whether ``points`` is a list of pictures of Pillow."""
    of_many = isinstance(points, list | tuple) and bool(points)
    return of_many and is_of(points[0], "PIL.Image", "Image")


def encoded_pictures(pictures: Sequence[Any], what: str) -> list[bytes]:
    """Pictures of any size and mode as the content of image files, without loss, upright."""
    encoded = []
    for index, picture in enumerate(pictures):
        if not is_of(picture, "PIL.Image", "Image"):
            raise UserError(
                f"{what} holds a {type(picture).__name__} at {index} and pictures elsewhere; all "
                "points must be of one kind.",
                "array-wrong",
            )
        content = BytesIO()
        with readable(f"picture {index} of {what}"):
            converted = picture if picture.mode in _OF_PNG | _OF_TIFF else picture.convert("RGB")
            converted = upright(as_written(converted), picture)
            if converted.mode in _OF_PNG:
                converted.save(content, "PNG", compress_level=1)
            else:
                converted.save(content, "TIFF")
        encoded.append(content.getvalue())
    return encoded


def images_or_vectors(points: Any, what: str = "x") -> PixelImages | Table:
    """Images or vectors in memory.

    Parameters
    ----------
    points : array or tensor; images as uint8, or as floats in [0, 1]. Channels come last, or before
        height and width as in torch.
    """
    first = points[0] if isinstance(points, list | tuple) and points else points
    channels: Any = "first" if is_of(first, "torch", "Tensor") else "either"
    array = as_array(points, what)
    if array.ndim == 3 and array.dtype.kind == "f" and array.shape[1] != array.shape[2]:
        raise UserError(
            f"{what} has floats of the shape {array.shape}, which may be gray images or series: "
            "give images as (n, height, width, 1), as in x[..., None], and series as vectors, as "
            "in x.reshape(len(x), -1).",
            "array-wrong",
        )
    return of_array(array, what, channels=channels)


def arrow_table(frame: Any, what: str = "x") -> Any:
    """A DataFrame, or a table of Arrow, as an Arrow table without its index; categories are
    dictionaries of texts.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    if is_of(frame, "pandas", "DataFrame"):
        names = [column_name(str(name)) for name in frame.columns]
        columns = [_arrow_column(frame.iloc[:, k], name, what) for k, name in enumerate(names)]
    else:
        table = pa.table(frame)
        names = list(map(column_name, table.column_names))
        columns = [_plain_type(table.column(index)) for index in range(len(names))]
    refuse_twice(names, what)
    return pa.table(dict(zip(names, columns, strict=True)))


def _arrow_column(column: Any, name: str, what: str) -> Any:
    """A column of pandas as an Arrow array, intervals as texts."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(column.dtype, pd.SparseDtype):
        column = column.sparse.to_dense()
    if isinstance(column.dtype, pd.PeriodDtype):  # as dates, which no feature may be
        column = column.dt.to_timestamp()
    if isinstance(column.dtype, pd.CategoricalDtype | pd.IntervalDtype):
        texts = column.astype(object).map(str, na_action="ignore").map(canonical, "ignore")
        # A dictionary stays a category where all of its texts are numbers.
        return pa.chunked_array(
            [pa.array(texts, pa.large_string(), from_pandas=True)]
        ).dictionary_encode()
    try:
        return _plain_type(pa.chunked_array([pa.Array.from_pandas(column)]))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        if all(isinstance(value, Real | Decimal) for value in column.dropna()):  # beyond int64
            numbers = _as_float64(column, f"Column {name!r} of {what}")
            return pa.chunked_array([pa.array(numbers, from_pandas=True)])
        kinds = sorted({type(value).__name__ for value in column.dropna()})
        raise UserError(
            f"Column {name!r} of {what} holds values of the type {' and '.join(kinds)}; a column "
            "must have numbers or texts, and one kind of them.",
            "column-type",
        ) from None


def _plain_type(column: Any) -> Any:
    """A column of Arrow in a usual type: categories of texts."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        # Arrow cannot cast dictionaries of every type of texts.
        return pa.chunked_array(
            [part.dictionary.cast(pa.large_string()).take(part.indices) for part in column.chunks],
            pa.large_string(),
        ).dictionary_encode()
    if pa.types.is_string_view(kind):
        kind = pa.large_string()
    return column if kind == column.type else column.cast(kind)


def stored_points(
    points: Any, shape: InputShape | None = None, options: TableOptions = NO_OPTIONS
) -> Inputs:
    """Points as a model stores them: uint8 images ``(n, h, w, c)`` or float32 vectors ``(n, d)``.

    Examples
    --------
    >>> stored_points([[1, 2], [3, 4]])[:].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    where = "x"
    opened: Images | Table
    if are_pictures(points):
        items = [(f"picture {n} of x", one) for n, one in enumerate(encoded_pictures(points, "x"))]
        opened = EncodedImages(where, len(items), partial(list_batches, items))
    elif is_frame(points):
        table = _named_by_position(arrow_table(points), options)
        opened = features_of(in_memory(where, table), options, "")
    else:
        opened = images_or_vectors(points)
    if shape is not None and (len(shape) == 3) != isinstance(opened, Images):
        kind = "images" if isinstance(opened, Images) else "vectors"
        raise UserError(
            f"x holds {kind}; the model takes {'images' if len(shape) == 3 else 'others'}.",
            "points-of-another-kind",
        )
    columns, (stored,) = storable([opened], options)
    if shape is None and columns is not None:
        shape = (len(columns.features),)
    elif shape is None and isinstance(stored, Images):
        survey = stored.survey()
        shape = (*survey.size(where), survey.channels)
    return join_blocks(stored, shape or ())


def training_points(
    points: Any, shape: InputShape | None = None, options: TableOptions = NO_OPTIONS
) -> Inputs:
    """:func:`stored_points` to train on: images have to use the range of 8 bits."""
    stored = stored_points(points, shape, options)
    refuse_unused_range(np.asarray(stored), "x", options.bits)
    return stored


def _named_by_position(table: Any, options: TableOptions) -> Any:
    """A frame for a model of vectors that came without names: its columns count by their place."""
    names = options.columns.names if options.columns else ()
    is_unnamed = bool(names) and names == unnamed_columns(len(names)).names
    if not is_unnamed or {*table.column_names} == {*names} or table.num_columns != len(names):
        return table
    return table.rename_columns(list(names))


DATA = (
    "(x, y), a DataFrame, a data set of torch or of Hugging Face, "
    "{'train': …, 'test': …}, or the path or name of a data set"
)
CLIENT = "client of the point"
"""Column with the number of each point's client, if they are given."""


Rows = Any
"""Points: arrays by name, a table of Arrow, or a data set of Hugging Face."""


def _take(rows: Rows, numbers: Ints) -> Rows:
    if isinstance(rows, dict):
        return {name: array[numbers] for name, array in rows.items()}
    return rows.select(numbers) if is_of(rows, "datasets", "Dataset") else rows.take(numbers)


def _with_column(rows: Rows, name: str, values: NDArray[Any]) -> Rows:
    if isinstance(rows, dict):
        return rows | {name: values}
    if is_of(rows, "datasets", "Dataset"):
        return rows.add_column(name, values)
    return rows.append_column(name, [values])


def write_rows(rows: Rows, file: Path) -> Path:
    """Write points to a file without its suffix; the path with it."""
    if isinstance(rows, dict):
        np.savez(file.with_suffix(".npz"), **rows)
        return file.with_suffix(".npz")
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    file = file.with_suffix(".parquet")
    if not is_of(rows, "datasets", "Dataset"):
        pq.write_table(rows, file)
        return file
    from datasets.table import embed_table_storage

    schema = rows.features.arrow_schema
    with pq.ParquetWriter(file, schema) as writer:
        for batch in rows.with_format("arrow").iter(BLOCK):
            try:  # pictures may be paths
                writer.write_table(embed_table_storage(batch.cast(schema)).cast(schema))
            except FileNotFoundError as error:
                raise UserError(
                    f"The data set names a file that is missing ({error}).", "file-missing"
                ) from None
    return file


def client_names(clients: Any, count: int, of: str = "points") -> NDArray[Any]:
    """``(n,)``, whole numbers or texts: the clients that an array names."""
    codes, names = distinct_values(clients, "clients")
    if codes.shape != (count,) or (codes == UNLABELED).any():
        raise UserError(
            f"clients must be a number, or name a client for each of {count} {of}.",
            "clients-of-points",
        )
    numbers = [float(name) for name in names if isinstance(name, Real)]
    are_whole = len(numbers) == len(names) and all(
        number.is_integer() and abs(number) < 2**63 for number in numbers
    )
    texts = [int(name) if are_whole else str(name) for name in names]
    if len({*texts}) < len(texts):
        raise UserError(
            "clients names some of them in two ways that are the same text, as 1 and '1'.",
            "clients-of-points",
        )
    return np.asarray(texts)[codes]


def _without_said(
    rows: Rows, label: str, by: Mapping[str, Ints], named: Mapping[str, str]
) -> tuple[Rows, list[str]]:
    """Points without columns that say who has them, their class or their row; and their names.

    Parameters
    ----------
    by : numbers of groups ``(n,)``, by what they are.
    named : name of the series that said them, if it had one.
    """
    if isinstance(rows, dict):
        _refuse_said(rows, by)
        return rows, []
    said = {}
    for name in rows.column_names:
        if name == label:
            continue
        what = next((what for what, of in named.items() if of == name), "")
        is_plain = not is_of(rows, "datasets", "Dataset") and not _is_nested(rows, name)
        said[name] = what or (said_by(rows.column(name).to_pandas(), by) if is_plain else "")
    saying = left_out(said)
    for sentence in in_words(saying):
        print(sentence, file=sys.stderr)
    return _dropped(rows, [*saying]), [*saying]


def _is_nested(table: Any, name: str) -> bool:
    from pyarrow import types

    return bool(types.is_nested(table.schema.field(name).type))


def _dropped(rows: Rows, names: Sequence[str]) -> Rows:
    there = [] if isinstance(rows, dict) else [n for n in names if n in rows.column_names]
    if not there:
        return rows
    is_hub = is_of(rows, "datasets", "Dataset")
    return rows.remove_columns(there) if is_hub else rows.drop_columns(there)


def _refuse_said(rows: Mapping[str, NDArray[Any]], by: Mapping[str, Ints]) -> None:
    """Refuse vectors without names of which a column says who has a point, or its class."""
    if said := saying_feature(rows.get("vectors", np.empty((0, 0))), by):
        raise UserError(
            f"Column {said[0]} of x says {SAID[said[1]]}: it has a value of its own for each. "
            "Leave it out of x.",
            "array-wrong",
        )


def _name_of(series: Any) -> str:
    """The name of a series of pandas or polars, as columns have it."""
    name = getattr(series, "name", None)
    return "" if name is None or not isinstance(name, str) else column_name(name)


def number_of_clients(clients: Any) -> int | None:
    """Number of clients, from a number or from an array that names the client of each point."""
    if clients is None or isinstance(clients, int | np.integer):
        return None if clients is None else int(clients)
    return len(distinct_values(clients, "clients")[1])


def dataset_of(data: Any, test: Any = None, label_column: str = "", clients: Any = None) -> str:
    """The value of setting ``dataset`` for ``data``, which are written to disk if necessary.

    Parameters
    ----------
    data : ``(x, y)``, a DataFrame, a data set of torch or of Hugging Face, a mapping with
        ``"train"`` and ``"test"``, or the path or name of a data set.
    clients : ``(n,)``, the client of each point of ``data``, which column :data:`CLIENT` gets. A
        column that says the client, the class or the row of a point is no feature.
    """
    is_named = isinstance(data, str | Path)
    if (is_named and clients is not None) or (
        test is not None and isinstance(data, str | Path | Mapping)
    ):
        raise UserError(
            f"test and clients of each point have no effect with the data set {str(data)[:100]!r}, "
            "which has its own: leave them out, or take clients from a column (partition = "
            "'natural').",
            "argument-without-effect",
        )
    if is_named:
        return str(data)
    if isinstance(data, Mapping) and {"train", "test"} <= set(data):
        data, test = data["train"], data["test"]
    label_column = column_name(label_column)
    train, labels = _rows(data, label_column, "data")
    if clients is not None:
        frame = data if is_frame(data) else data[0] if isinstance(data, tuple | list) else None
        _refuse_other_order(frame, clients, "data and clients", "clients.loc[data.index]")
    said = _said(data, labels, clients)
    train, left_out = _without_said(train, label_column or "label", *said)
    if clients is not None:
        clients = client_names(clients, len(labels))
        train = _with_column(train, CLIENT, clients)
    if test is None:
        in_test = stratified_test(labels.numbers)
        lost = {*clients.tolist()} - {*clients[~in_test].tolist()} if clients is not None else ()
        if lost or not in_test.any():
            raise UserError(
                "data has too few labeled points for a fifth of every class to be split off as "
                "test data: give more points, or test data as test=…",
                "too-few-points",
            )
        train, of_test = (_take(train, np.flatnonzero(part)) for part in (~in_test, in_test))
    else:
        of_test = _dropped(_rows(test, label_column, "test")[0], left_out)
        if isinstance(of_test, dict) != isinstance(train, dict):
            raise UserError(
                "Training and test data are a table and arrays; both must be in the same form.",
                "splits-differ",
            )

    def write(folder: Path) -> None:
        write_rows(train, folder / "train")
        write_rows(of_test, folder / "test")

    return str(build_by_content(IN_MEMORY, write))


def _said(data: Any, labels: ClassLabels, clients: Any) -> tuple[dict[str, Ints], dict[str, str]]:
    """Numbers of points' clients, classes given apart, and rows; and the names of their series."""
    by: dict[str, Ints] = {}
    named: dict[str, str] = {}
    if clients is not None:
        by["clients"] = distinct_values(clients, "clients")[0]
        named["clients"] = _name_of(clients)
    pair = isinstance(data, tuple | list)
    if pair:
        by["y"], named["y"] = labels.numbers, _name_of(data[1])
    frame = data[0] if pair else data
    if is_of(frame, "pandas", "DataFrame") and frame.index.is_unique:
        by["rows"] = np.arange(len(labels))
        named["rows"] = "" if frame.index.name is None else str(frame.index.name)
    return by, {what: name for what, name in named.items() if name}


def features_apart(data: Any, clients: Any) -> Any:
    """The points of ``(x, y)`` to compare; of a table without columns that are no features."""
    x, y = data
    if not is_frame(x):
        return x
    table = arrow_table(x)
    by_point = None if isinstance(clients, int | np.integer) else clients
    said = _said(data, class_labels(y, "y", table.num_rows), by_point)
    return _without_said(table, "", *said)[0]


def _rows(data: Any, chosen: str, what: str) -> tuple[Rows, ClassLabels]:
    """Points with their labels, and these as numbers of classes."""
    if is_frame(data):
        table = in_memory(what, arrow_table(data, what))
        return table.content, _labels(table, chosen)
    if is_of(data, "datasets", "Dataset"):
        return _hub_data(data, chosen, what)
    if isinstance(data, tuple | list) and len(data) == 2:
        x, y = data
        if not is_frame(x):
            return _arrays(x, y, what)
        _refuse_other_order(x, y, f"{what}: x and y", "y.loc[x.index]")
        features, name = arrow_table(x, f"x of {what}"), chosen or "label"
        refuse_twice([*features.column_names, name], f"{what} with its labels")
        labels = class_labels(y, "y", features.num_rows)
        return features.append_column(name, [labels.cells()]), labels
    if is_of(data, "torch.utils.data", "Dataset"):
        return _from_torch(data, what)
    raise UserError(f"{what} is a {type(data).__name__}; it must be {DATA}.", "data-not-readable")


def _refuse_other_order(x: Any, y: Any, what: str, remedy: str) -> None:
    """Refuse a column of labels or clients whose index has the rows in another order than the
    frame's."""
    if not is_of(x, "pandas", "DataFrame") or not is_of(y, "pandas", "Series"):
        return
    one, other = x.index, y.index
    if one.equals(other):
        return
    if one.is_unique and other.is_unique and len(one) == len(one.intersection(other)) == len(other):
        raise UserError(
            f"{what} have their rows in different orders: {remedy}.", "points-and-labels-differ"
        )


def rows_of(points: Any, what: str) -> Rows:
    """Points without labels, in any form but a data set of torch or of Hugging Face."""
    if is_frame(points):
        return arrow_table(points, what)
    if are_pictures(points):  # as files have them, of any size and mode
        import pyarrow as pa

        return pa.table({"image": encoded_pictures(points, what)})
    stored = images_or_vectors(points, what)
    if isinstance(stored, PixelImages):
        return {"images": stored.pixels}
    return {"vectors": stored.vectors}


def _arrays(x: Any, y: Any, what: str) -> tuple[Rows, ClassLabels]:
    rows = rows_of(x, f"x of {what}")
    labels = class_labels(y, f"y of {what}", len(x))
    if isinstance(rows, dict):
        return {**rows, "labels": labels.cells()}, labels
    return rows.append_column("label", [labels.cells()]), labels


def _hub_data(dataset: Any, chosen: str, what: str) -> tuple[Rows, ClassLabels]:
    import datasets

    if dataset.format["type"] == "custom":
        raise UserError(
            f"{what} has a transform, which is computed whenever a point is read: apply it once by "
            "map(), or take it away by reset_format().",
            "data-not-readable",
        )
    dataset = dataset.with_format(None)
    for name, feature in dataset.features.items():
        if isinstance(feature, datasets.Image):  # also pictures that are not to be decoded
            dataset = dataset.cast_column(name, datasets.Image())
    return dataset, _labels(hub_table(what, dataset), chosen)


def _labels(table: Table, chosen: str) -> ClassLabels:
    label = label_column(table, chosen)
    return class_labels(table.column(label), f"Column {label!r} of {table.where}")


def _from_torch(dataset: Any, what: str) -> tuple[Rows, ClassLabels]:
    try:
        examples = [dataset[index] for index in range(len(dataset))]
    except (TypeError, NotImplementedError):
        examples = []
    if not examples or any(not isinstance(one, tuple | list) or len(one) != 2 for one in examples):
        raise UserError(
            f"{what} is a data set of torch; it must have a length, and its points must be (x, y).",
            "data-not-readable",
        )
    for index in range(0, len(examples), -(-len(examples) // _DRAWN_TWICE)):
        if not _is_same(dataset[index], examples[index]):
            raise UserError(
                f"{what} is a data set of torch whose point {index} is another one each time that "
                "it is read: take its random transform away (setting augment changes points anew "
                "in every epoch).",
                "data-not-readable",
            )
    points, labels = map(list, zip(*examples, strict=True))
    return _arrays(points, labels, what)


_DRAWN_TWICE = 30
"""Points of a data set of torch that are read a second time. One with a transform that changes half
of them stays unseen once in a billion times."""


def _is_same(one: Any, other: Any) -> bool:
    """Whether two draws of a point, nested as they may be, have equal values."""
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    first, second = np.asarray(one), np.asarray(other)
    is_float = first.dtype.kind in "fc"
    return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=is_float))


def class_names_of(data: Any, label_column: str = "") -> tuple[str, ...]:
    """Names of the classes of labeled points, in the order of a run."""
    if isinstance(data, str | Path):
        raise UserError(
            f"data = {str(data)[:100]!r}: with sets, the labeled points of the server are in "
            "memory, as (x, y) or a DataFrame.",
            "argument-not-allowed",
        )
    return tuple(_rows(data, label_column, "data")[1].names)


@contextmanager
def naming_data(dataset: str) -> Iterator[None]:
    """Context in which errors name data in memory as the caller does, not their files."""
    try:
        yield
    except UserError as error:
        text = str(error)
        for split, name in (("train", "data"), ("test", "the test data")):
            for suffix in (".parquet", ".npz"):
                text = text.replace(str(Path(dataset) / f"{split}{suffix}"), name)
        error.args = (text,)
        raise


def missing_values(y: Any) -> NDArray[np.bool_]:
    """``(n,)``, whether a value is None, NaN, masked or another missing one."""
    import pandas as pd

    missing = np.asarray(pd.isna(np.asarray(y, dtype=object)), dtype=bool)
    return missing | np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else missing


def unmasked(values: Any) -> Any:
    """A masked array with NaN in place of masked values; others are unchanged."""
    return as_array(values) if isinstance(values, np.ma.MaskedArray) else values
