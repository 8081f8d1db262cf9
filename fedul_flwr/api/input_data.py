"""Data that a program has in memory, as a data set on disk that a run can name.

They are written once, into a folder of the cache that only this user can open and that is named by
their content.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from io import BytesIO
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.base import AUTO, Scalar, Settings, column_name
from fedul_flwr.config.user_files import flatten, with_rounds
from fedul_flwr.data.cache import IN_MEMORY, build_once, cache_directory, cache_key
from fedul_flwr.data.class_labels import ClassLabels, class_labels, distinct_values
from fedul_flwr.data.columns import unnamed_columns
from fedul_flwr.data.decode import (
    BLOCK,
    EncodedImages,
    Images,
    PixelImages,
    as_written,
    join_blocks,
    list_batches,
    readable,
    upright,
)
from fedul_flwr.data.encode import canonical, infer_columns
from fedul_flwr.data.formats import as_pixels
from fedul_flwr.data.local_files import as_points
from fedul_flwr.data.sources import stratified_test
from fedul_flwr.data.tables import (
    NO_OPTIONS,
    Table,
    TableOptions,
    VectorPoints,
    columns_by_name,
    in_memory,
    refuse_too_wide,
)
from fedul_flwr.data.types import UNLABELED, Inputs, InputShape, Ints
from fedul_flwr.errors import UserError

# Points in memory, of any usual type, as the images and tables that the rest of the code reads.

FORMS = "images (n, h, w), (n, h, w, 1 or 3), or (n, 1 or 3, h, w); vectors (n, d)"

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
    if is_of(first, "torch", "Tensor") or isinstance(first, np.ndarray):
        try:
            return np.stack([as_array(part, what) for part in values])
        except ValueError as error:
            raise UserError(f"The points of {what}: {error}.", "points-shape") from None
    if is_of(values, "torch", "Tensor"):
        import torch

        if values.layout != torch.strided:
            raise UserError(f"{what} is sparse; it must be dense.", "data-not-readable")
        values = values.detach().cpu().resolve_conj().resolve_neg()
        # NumPy has no bfloat16.
        narrow = values.is_floating_point() and values.element_size() < 4
        values = (values.float() if narrow else values).numpy()
    elif hasattr(values, "toarray"):
        raise UserError(f"{what} is sparse; it must be dense.", "data-not-readable")
    try:
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            values = np.ma.filled(values.astype(np.float64), np.nan)
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise UserError(
            f"{what} must be an array of numbers, all points of one shape.", "data-not-readable"
        ) from None
    return _of_numbers(array) if array.dtype == object else array


def _of_numbers(objects: NDArray[Any]) -> NDArray[Any]:
    """float64 of objects that are numbers or missing; other arrays are unchanged."""
    import pandas as pd

    flat = pd.Series(objects.ravel(), dtype=object)
    missing = flat.isna()
    if not all(isinstance(v, Real | Decimal | np.number | np.bool_) for v in flat[~missing]):
        return objects
    return flat.mask(missing, np.nan).astype(np.float64).to_numpy().reshape(objects.shape)


def are_pictures(points: Any) -> bool:
    """Whether ``points`` is a list of pictures of Pillow."""
    return isinstance(points, list | tuple) and bool(points) and is_picture(points[0])


def is_picture(value: object) -> bool:
    """Whether ``value`` is a picture of Pillow."""
    return is_of(value, "PIL.Image", "Image")


def encoded_pictures(pictures: Sequence[Any], what: str) -> list[bytes]:
    """Pictures of any size and mode as the content of image files, without loss, upright."""
    encoded = []
    for index, picture in enumerate(pictures):
        if not is_picture(picture):
            raise UserError(
                f"{what} holds a {type(picture).__name__} at {index} and pictures elsewhere; all "
                "points must be of one kind.",
                "points-type",
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


def images_or_vectors(points: Any, what: str = "x") -> NDArray[Any]:
    """Images as uint8 ``(n, h, w, 1 or 3)``, or vectors ``(n, d)``.

    Parameters
    ----------
    points : array or tensor; images as uint8, or as floats in [0, 1]. Channels come last, or before
        height and width as in torch.
    """
    array = as_array(points, what)
    if array.dtype.kind not in "fiub":
        raise UserError(
            f"{what} holds {array.dtype}; it must hold numbers: {FORMS}.", "points-type"
        )
    if array.ndim == 2:
        refuse_too_wide(array.shape[1], what)
        return array.astype(np.float64 if array.itemsize > 4 else np.float32)
    first = points[0] if isinstance(points, list | tuple) else points
    of_torch = is_of(first, "torch", "Tensor") and array.ndim == 4
    if array.ndim == 3:
        array = array[..., np.newaxis]
    channels, is_image = (1, 3), array.ndim == 4 and 0 not in array.shape[1:]
    if is_image and array.shape[1] in channels and (of_torch or array.shape[3] not in channels):
        array = array.transpose(0, 2, 3, 1)
    if not is_image or array.shape[3] not in channels:
        raise UserError(f"{what} has the shape {array.shape}; it must be {FORMS}.", "points-shape")
    pixels = as_pixels(array)
    if pixels is None:
        got = array.dtype if array.dtype.kind != "f" else "numbers outside of [0, 1], or NaN"
        raise UserError(
            f"{what} holds {got}; images must be uint8, or floats in [0, 1].", "points-type"
        )
    return pixels


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
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(
                f"{what} has several columns called {name!r}; give each its own name.", "name-twice"
            )
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
            return pa.chunked_array([pa.Array.from_pandas(column.astype(np.float64))])
        kinds = sorted({type(value).__name__ for value in column.dropna()})
        raise UserError(
            f"Column {name!r} of {what} holds values of the type {' and '.join(kinds)}; a column "
            "must have numbers or texts, and one kind of them.",
            "column-type",
        ) from None


def _plain_type(column: Any) -> Any:
    """A column of Arrow in a usual type: categories of texts, and floats for decimals."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        # Arrow cannot cast dictionaries of every type of texts.
        return pa.chunked_array(
            [part.dictionary.cast(pa.large_string()).take(part.indices) for part in column.chunks],
            pa.large_string(),
        ).dictionary_encode()
    if pa.types.is_decimal(kind):
        kind = pa.float64()
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
        if shape is None:
            survey = opened.survey()
            shape = (*survey.size(where), survey.channels)
        if len(shape) != 3:
            raise UserError("x holds pictures; the model takes vectors.", "points-shape")
    elif is_frame(points):
        from fedul_flwr.data.table_files import features_of

        table = _named_by_position(arrow_table(points), options, where)
        opened = features_of(in_memory(where, table), options, "")
        if options.columns is None and not options.trained:
            options = replace(options, columns=infer_columns([opened]))
    else:
        array = images_or_vectors(points)
        opened = PixelImages(where, array) if array.ndim == 4 else Table(where, vectors=array)
        if shape is None:
            shape = array.shape[1:]
        if len(shape) != array.ndim - 1:
            kinds = {1: "vectors", 3: "images"}
            raise UserError(
                f"x holds {kinds[array.ndim - 1]}; the model takes {kinds[len(shape)]}.",
                "points-shape",
            )
    (stored,) = as_points([opened], shape or (1,), options)
    if shape is None:
        assert isinstance(stored, VectorPoints)
        shape = stored.values.shape[1:]
    return join_blocks(stored, shape)


def _named_by_position(table: Any, options: TableOptions, where: str) -> Any:
    """A frame for a model of vectors that came without names: its columns count by their place."""
    columns = options.columns
    count = len(columns.columns) if columns else 0
    if not columns or columns.names != unnamed_columns(count).names:
        return table
    if set(table.column_names) == set(columns.names):
        return table
    if table.num_columns != count:
        raise UserError(
            f"{where} has {table.num_columns} columns; the model was trained on vectors of {count} "
            "numbers.",
            "points-shape",
        )
    return table.rename_columns(list(columns.names))


DATA = (
    "(x, y), a DataFrame, a data set of torch or of Hugging Face, "
    "{'train': …, 'test': …}, or the path or name of a data set"
)
NAME = "data"
"""Name of the data set's folder, which titles show."""
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


def _write(rows: Rows, file: Path) -> None:
    if isinstance(rows, dict):
        np.savez(file.with_suffix(".npz"), **rows)
        return
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    file = file.with_suffix(".parquet")
    if not is_of(rows, "datasets", "Dataset"):
        pq.write_table(rows, file)
        return
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


def client_numbers(clients: Any, num_points: int) -> Ints:
    """``(n,)``, numbers from 0 of the clients that an array names, in the order of their names."""
    codes, names = _distinct_clients(clients)
    if codes.shape != (num_points,):
        raise UserError(
            f"clients has {len(codes)} values; it must be a number, or name a client for each of "
            f"{num_points} points.",
            "clients-of-points",
        )
    numbers = np.empty(len(names), dtype=np.int64)
    numbers[sorted(range(len(names)), key=lambda i: _sort_key(names[i]))] = np.arange(len(names))
    return numbers[codes]


def _distinct_clients(clients: Any) -> tuple[Ints, list[Any]]:
    codes, names = distinct_values(clients, "clients")
    if (codes == UNLABELED).any():
        raise UserError(
            "clients names no client for some points; each point needs one.", "clients-of-points"
        )
    return codes, names


def _sort_key(client: Any) -> tuple[str, Any]:
    """Numbers in their order, others by their text."""
    is_number = isinstance(client, int | float)
    return ("", client) if is_number else (type(client).__name__, str(client))


def number_of_clients(clients: Any) -> int | None:
    """Number of clients, from a number or from an array that names the client of each point."""
    if clients is None or isinstance(clients, int | np.integer):
        return None if clients is None else int(clients)
    return len(_distinct_clients(clients)[1])


def dataset_of(data: Any, test: Any = None, label_column: str = "", clients: Any = None) -> str:
    """The value of setting ``dataset`` for ``data``, which are written to disk if necessary.

    Parameters
    ----------
    data : ``(x, y)``, a DataFrame, a data set of torch or of Hugging Face, a mapping with
        ``"train"`` and ``"test"``, or the path or name of a data set.
    clients : ``(n,)``, the client of each point of ``data``, which column :data:`CLIENT` gets.
    """
    if isinstance(data, str | Path):
        if clients is not None:
            raise UserError(
                f"clients must be a number with the data set {str(data)!r}: setting partition = "
                "'natural' takes the clients from a column of it.",
                "clients-of-points",
            )
        if test is not None:
            raise UserError(
                f"test has no effect with the data set {str(data)!r}: leave it out.",
                "argument-without-effect",
            )
        return str(data)
    if isinstance(data, Mapping):
        if test is not None or not {"train", "test"} <= set(data):
            raise UserError(
                "data is a mapping: it must have 'train' and 'test', and no other argument test.",
                "data-not-readable",
            )
        data, test = data["train"], data["test"]
    label_column = column_name(label_column)
    train, labels = _rows(data, label_column, "data")
    if clients is not None:
        frame = data if is_frame(data) else data[0] if isinstance(data, tuple | list) else None
        _refuse_other_order(frame, clients, "data and clients", "clients.loc[data.index]")
        clients = client_numbers(clients, len(labels))
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
        of_test, _ = _rows(test, label_column, "test")
        if isinstance(of_test, dict) != isinstance(train, dict):
            raise UserError(
                "Training and test data are a table and arrays; both must be in the same form.",
                "splits-differ",
            )

    def write(folder: Path) -> None:
        _write(train, folder / "train")
        _write(of_test, folder / "test")

    return str(write_once(write))


def _rows(data: Any, label_column: str, what: str) -> tuple[Rows, ClassLabels]:
    """Points with their labels, and these as numbers of classes."""
    if is_frame(data):
        table = arrow_table(data, what)
        label = _label(table.column_names, label_column, what)
        return table, class_labels(table.column(label), f"Column {label!r} of {what}")
    if is_of(data, "datasets", "Dataset"):
        return _hub_data(data, label_column, what)
    if isinstance(data, tuple | list) and len(data) == 2:
        x, y = data
        if not is_frame(x):
            return _arrays(x, y, what)
        _refuse_other_order(x, y, f"{what}: x and y", "y.loc[x.index]")
        table, name = arrow_table(x, f"x of {what}"), label_column or "label"
        if name in table.column_names:
            raise UserError(
                f"{what}: x has a column {name!r}, the name of the labels y.", "name-twice"
            )
        labels = class_labels(y, "y", table.num_rows)
        return table.append_column(name, [labels.cells()]), labels
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


def _arrays(x: Any, y: Any, what: str) -> tuple[Rows, ClassLabels]:
    if are_pictures(x):  # as files have them, of any size and mode
        import pyarrow as pa

        labels = class_labels(y, f"y of {what}", len(x))
        return pa.table({"image": encoded_pictures(x, what), "label": labels.cells()}), labels
    points = images_or_vectors(x, f"x of {what}")
    labels = class_labels(y, f"y of {what}", len(points))
    kind = "images" if points.ndim == 4 else "vectors"
    return {kind: points, "labels": labels.cells()}, labels


def _hub_data(dataset: Any, label_column: str, what: str) -> tuple[Rows, ClassLabels]:
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
    places, _ = columns_by_name(dataset.column_names)
    label = dataset.column_names[places[_label([*places], label_column, what)]]
    column = dataset.select_columns(label).with_format("arrow")[:].column(0)
    return dataset, class_labels(column, f"Column {label!r} of {what}")


def _label(columns: list[str], named: str, what: str) -> str:
    from fedul_flwr.data.table_files import usual_label

    label = usual_label(columns, named)
    if label not in columns:
        raise UserError(
            f"{what} has no column {named or 'of labels'!r}; its columns are "
            f"{', '.join(columns[:20])}: name it with label_column=…",
            "column-missing",
        )
    return label


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
    points, labels = map(list, zip(*examples, strict=True))
    return _arrays(points, labels, what)


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


def write_once(write: Callable[[Path], None]) -> Path:
    """Folder of the cache with files that ``write`` puts into an empty one.

    It is named by their content, so that the same data are kept once.
    """
    root = cache_directory() / IN_MEMORY
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="writing-", dir=root) as writing:
            written = Path(writing) / NAME
            written.mkdir()
            write(written)
            files = sorted(path for path in written.rglob("*") if path.is_file())
            content = [[str(file.relative_to(written)), _digest(file)] for file in files]

            def build(folder: Path) -> None:
                written.rename(folder / NAME)

            return build_once(root / cache_key(content), build, private=True) / NAME
    except OSError as error:
        raise UserError(
            f"The data cannot be written to {root} ({error.strerror or error}); "
            "set FEDUL_CACHE to a folder that is writable and has room.",
            "file-not-writable",
        ) from error


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# Settings as keyword arguments, and parameters of the estimators by the same rules.


def flat_settings(keywords: Mapping[str, Any]) -> dict[str, Scalar]:
    """Flat settings by the names that the command line uses, ``{"fedul.num-sets": 5}``.

    Underscores stand for dashes, and a table is a dict. A sequence, such as
    ``test_prior=[0.9, 0.1]``, becomes its values separated by commas, and ``None`` leaves a setting
    out.

    Examples
    --------
    >>> flat_settings({"local_epochs": 1, "fedul": {"num_sets": 5}, "test_prior": [0.9, 0.1]})
    {'local-epochs': 1, 'fedul.num-sets': 5, 'test-prior': '0.9,0.1'}
    """
    return with_rounds(flatten(_plain(keywords)))


def settings_of_call(
    keywords: Mapping[str, Any], data: Any, test: Any, rounds: int | None, clients: Any
) -> dict[str, Scalar]:
    """Flat settings of a call: its keywords, its data (:func:`dataset_of`) and its rounds.

    An array ``clients`` with the client of each point becomes a natural partition.
    """
    settings = flat_settings(keywords)
    for key, name in (("num-rounds", "rounds"), ("dataset", "data")):
        if key in settings:
            raise UserError(
                f"Setting {key} is given as {name}=… in Python.",
                "argument-not-allowed",
                setting=key,
            )
    owners = None if clients is None or isinstance(clients, int | np.integer) else clients
    if owners is not None:
        for key in ("partition", "natural.column"):
            if key in settings:
                raise UserError(
                    f"Setting {key} contradicts clients, which name one of each point.",
                    "settings-contradict",
                    setting=key,
                )
        if data is None:
            raise UserError(
                "clients name the client of each point of data: give data=…",
                "argument-without-effect",
            )
        settings |= {"partition": "natural", "natural.column": CLIENT}
    if data is not None:
        settings["dataset"] = dataset_of(data, test, str(settings.get("label-column", "")), owners)
    elif test is not None:
        raise UserError(
            "test has no effect without data: leave it out, or give data=….",
            "argument-without-effect",
        )
    if rounds is not None:
        settings["num-rounds"] = _value(rounds)
    return settings


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        str(name).replace("_", "-"): _value(value)
        for name, value in values.items()
        if value is not None
    }


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return ",".join(str(_value(part)) for part in value)
    return value


Rules = Mapping[str, "tuple[type[Settings], str]"]
"""For each parameter the settings, and the setting in them, whose rules it has."""


def check_parameters(estimator: Any, rules: Rules) -> None:
    """Refuse parameters that the settings of a run would refuse."""
    for name, (kind, setting) in rules.items():
        value = getattr(estimator, name)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, str) and value == AUTO and name != "device":
            raise ValueError(f"{name} = {value!r}: an estimator needs the value itself.")
        try:
            kind.parse({setting: value})
        except UserError as error:
            rule = str(error).partition(": ")[2]
            if name != "device":
                rule = rule.replace(f" or {AUTO!r}", "")
            raise ValueError(f"{name} = {value!r}: {rule}") from None


def missing_values(y: Any) -> NDArray[np.bool_]:
    """``(n,)``, whether a value is None, NaN, masked or another missing one."""
    import pandas as pd

    missing = np.asarray(pd.isna(np.asarray(y, dtype=object)), dtype=bool)
    return missing | np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else missing


def unmasked(values: Any) -> Any:
    """A masked array with NaN in place of masked values; others are unchanged."""
    return as_array(values) if isinstance(values, np.ma.MaskedArray) else values
