"""Data that a program has in memory, as a data set on disk that a run can name.

They are written once, into a folder of the cache that only this user can open and that is named by
their content.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.api.points import (
    are_pictures,
    arrow_table,
    encoded_pictures,
    images_or_vectors,
    is_frame,
    is_of,
)
from fedul_flwr.config.base import column_name
from fedul_flwr.data.cache import IN_MEMORY, build_once, cache_directory, cache_key
from fedul_flwr.data.class_labels import ClassLabels, class_labels, distinct_values
from fedul_flwr.data.decode import BLOCK
from fedul_flwr.data.sources import stratified_test
from fedul_flwr.data.tables import columns_by_name
from fedul_flwr.data.types import UNLABELED, Ints
from fedul_flwr.errors import UserError

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
    test : test data in one of these forms; by default a fifth of the points of every class.
    label_column : column of the labels in a table; by default ``label`` or another usual name.
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
        if (labels.numbers == UNLABELED).all():
            raise UserError(
                "data holds no label: -1 and missing values are none.", "labels-missing"
            )
        in_test = stratified_test(labels.numbers)
        if not in_test.any():
            raise UserError(
                "data is too small for a fifth of every class to be split off as test data: "
                "give more points, or test data as test=…",
                "too-few-points",
            )
        if clients is not None and (lost := {*clients.tolist()} - {*clients[~in_test].tolist()}):
            raise UserError(
                f"{len(lost)} of the clients have test points alone, if a fifth of every class "
                "is split off: give test data as test=…",
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
