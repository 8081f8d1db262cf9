"""Data that a program has in memory, as a data set on disk that a run can name.

They are written once, into a folder of the cache that only this user can open and that is named by
their content.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.api.points import (
    arrow_table,
    as_array,
    images_or_vectors,
    is_frame,
    is_of,
)
from fedul_flwr.data.cache import GIVEN, build_once, cache_directory, cache_key
from fedul_flwr.data.digits import stratified_test
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


class _Rows(Protocol):
    """Points with labels, ready to be written."""

    @property
    def labels(self) -> Ints:
        """``(n,)``, the number of each point's class; -1 without one."""

    def take(self, rows: Ints) -> Self:
        """Some of them."""

    def write(self, folder: Path, split: str) -> None:
        """Write a file that :mod:`fedul_flwr.data.sources` reads."""


@dataclass(frozen=True)
class _Arrays:
    """Images or vectors, labels, and the names of the classes if they are no numbers."""

    points: NDArray[Any]
    labels: Ints
    names: tuple[str, ...]

    def take(self, rows: Ints) -> _Arrays:
        return _Arrays(self.points[rows], self.labels[rows], self.names)

    def write(self, folder: Path, split: str) -> None:
        kind = "images" if self.points.ndim == 4 else "vectors"
        named = {"class_names": np.array(self.names)} if self.names else {}
        arrays: dict[str, Any] = {kind: self.points, "labels": self.labels, **named}
        np.savez(folder / f"{split}.npz", **arrays)


@dataclass(frozen=True)
class _Table:
    """A table of Arrow with a column of labels."""

    table: Any
    label: str

    @property
    def labels(self) -> Ints:
        return class_numbers(self.table.column(self.label).to_pylist())[0]

    def take(self, rows: Ints) -> _Table:
        return _Table(self.table.take(rows), self.label)

    def write(self, folder: Path, split: str) -> None:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        pq.write_table(self.table, folder / f"{split}.parquet")


@dataclass(frozen=True)
class _HubData:
    """A data set of Hugging Face."""

    dataset: Any
    label: str

    @property
    def labels(self) -> Ints:
        return class_numbers(self.dataset[self.label][:])[0]

    def take(self, rows: Ints) -> _HubData:
        return _HubData(self.dataset.select(rows), self.label)

    def write(self, folder: Path, split: str) -> None:
        self.dataset.to_parquet(folder / f"{split}.parquet")


@dataclass(frozen=True)
class _OfClients:
    """Points with labels whose clients are given."""

    rows: _Rows
    clients: Ints

    @property
    def labels(self) -> Ints:
        return self.rows.labels

    def take(self, rows: Ints) -> _OfClients:
        return _OfClients(self.rows.take(rows), self.clients[rows])

    def write(self, folder: Path, split: str) -> None:
        self.rows.write(folder, split)
        _add_column(next(folder.glob(f"{split}.*")), CLIENT, self.clients)


def _add_column(file: Path, name: str, values: Ints) -> None:
    import pyarrow.parquet as pq

    if file.suffix == ".npz":
        with np.load(file) as found:
            arrays: dict[str, Any] = {**found, name: values}
        np.savez(file, **arrays)
    else:
        pq.write_table(pq.read_table(file).append_column(name, [values]), file)


def client_numbers(clients: Any, num_points: int) -> Ints:
    """``(n,)``, numbers from 0 of the clients that an array names, in the order of their names.

    Raises
    ------
    UserError
        If it does not name one client for each point.
    """
    import pandas as pd

    given = as_array(clients, "clients")
    if given.shape != (num_points,):
        raise UserError(
            f"clients has the shape {given.shape}; it must be a number, or name a client for each "
            f"of {num_points} points."
        )
    if pd.isna(given).any():
        raise UserError("clients names no client for some points; each point needs one.")
    try:
        _, numbers = np.unique(given, return_inverse=True)
    except TypeError:
        raise UserError("clients holds numbers and texts; one kind of them is allowed.") from None
    return np.asarray(numbers, dtype=np.int64)


def number_of_clients(clients: Any) -> int | None:
    """Number of clients, from a number or from an array that names the client of each point."""
    if clients is None or isinstance(clients, int | np.integer):
        return None if clients is None else int(clients)
    return int(client_numbers(clients, len(as_array(clients, "clients"))).max(initial=-1)) + 1


def dataset_of(data: Any, test: Any = None, label_column: str = "", clients: Any = None) -> str:
    """The value of setting ``dataset`` for ``data``, which are written to disk if necessary.

    Parameters
    ----------
    data : ``(x, y)``, a DataFrame, a data set of torch or of Hugging Face, a mapping with
        ``"train"`` and ``"test"``, or the path or name of a data set.
    test : test data in one of these forms; by default a fifth of the points of every class.
    label_column : column of the labels in a table; by default ``label`` or another usual name.
    clients : ``(n,)``, the client of each point of ``data``, which column :data:`CLIENT` gets.

    Raises
    ------
    UserError
        If the data have none of these forms, or cannot be read.
    """
    if isinstance(data, str | Path):
        if clients is not None:
            raise UserError(
                f"clients must be a number with the data set {str(data)!r}: setting partition = "
                "'natural' takes the clients from a column of it."
            )
        if test is not None:
            raise UserError(f"test has no effect with the data set {str(data)!r}: leave it out.")
        return str(data)
    if isinstance(data, Mapping):
        if test is not None or not {"train", "test"} <= set(data):
            raise UserError(
                "data is a mapping: it must have 'train' and 'test', and no other argument test."
            )
        data, test = data["train"], data["test"]
    train = _rows(data, label_column, "data")
    if clients is not None:
        train = _OfClients(train, client_numbers(clients, len(train.labels)))
    if test is None:
        labels = train.labels
        in_test = stratified_test(labels) if (labels >= 0).any() else np.zeros(len(labels), bool)
        if not in_test.any():
            raise UserError(
                "data is too small for a fifth of every class to be split off as test data: "
                "give more points, or test data as test=…"
            )
        everything = train
        train, held = (train.take(np.flatnonzero(part)) for part in (~in_test, in_test))
        if isinstance(everything, _OfClients) and isinstance(held, _OfClients):
            if lost := {*everything.clients.tolist()} - {*everything.clients[~in_test].tolist()}:
                raise UserError(
                    f"{len(lost)} of the clients have test points alone, if a fifth of every class "
                    "is split off: give test data as test=…"
                )
            held = held.rows
    else:
        held = _rows(test, label_column, "test")
    return str(_written({"train": train, "test": held}))


def class_numbers(values: Any) -> tuple[Ints, tuple[str, ...]]:
    """Labels of any type as numbers of classes, and the classes' names.

    Whole numbers stay as they are, and have no names; -1, None and NaN are no labels.
    """
    given = as_array(values, "y")
    if given.ndim != 1:
        raise UserError(f"y has the shape {given.shape}; it must have one label for every point.")
    if given.dtype.kind == "f":
        given = np.where(np.isnan(given), UNLABELED, given)
        if not (given == np.floor(given)).all():
            raise UserError("y holds numbers that are not whole; labels are 0 to K - 1, or texts.")
        given = given.astype(np.int64)
    if given.dtype.kind in "iu":
        if given.min(initial=0) < UNLABELED:
            raise UserError(f"y holds {given.min()}; labels are 0 to K - 1, or -1 for none.")
        return given.astype(np.int64), ()
    known = np.array([v is not None and v == v and v != "" for v in given], dtype=bool)
    names, numbers = np.unique([str(v) for v in given[known]], return_inverse=True)
    if names.size and all(name.isdigit() for name in names):  # objects that are whole numbers
        numbers, names = np.array([int(v) for v in given[known]]), np.array([])
    labels = np.full(len(given), UNLABELED, dtype=np.int64)
    labels[known] = numbers
    return labels, tuple(map(str, names))


def _rows(data: Any, label_column: str, what: str) -> _Rows:
    if is_frame(data):
        return _table(data, label_column, what)
    if is_of(data, "datasets", "Dataset"):
        return _HubData(data, _label(data.column_names, label_column, what))
    if isinstance(data, tuple | list) and len(data) == 2:
        x, y = data
        if is_frame(x):
            name = label_column or "label"
            if name in x.columns:
                raise UserError(f"{what}: x has a column {name!r}, the name of the labels y.")
            return _table(x.assign(**{name: as_array(y, "y")}), name, what)
        return _arrays(x, y, what)
    if is_of(data, "torch.utils.data", "Dataset"):
        return _from_torch(data, what)
    raise UserError(f"{what} is a {type(data).__name__}; it must be {DATA}.")


def _arrays(x: Any, y: Any, what: str) -> _Arrays:
    points = images_or_vectors(x, f"x of {what}")
    labels, names = class_numbers(y)
    if len(labels) != len(points):
        raise UserError(f"{what} has {len(points)} points and {len(labels)} labels; one for each.")
    return _Arrays(points, labels, names)


def _table(frame: Any, label_column: str, what: str) -> _Table:
    table = arrow_table(frame, what)
    return _Table(table, _label(table.column_names, label_column, what))


def _label(columns: list[str], named: str, what: str) -> str:
    from fedul_flwr.data.arrow import LABEL_NAMES

    found = next((name for name in ([named] if named else LABEL_NAMES) if name in columns), None)
    if found is None:
        raise UserError(
            f"{what} has no column {named or 'of labels'!r}; its columns are "
            f"{', '.join(columns[:20])}: name it with label_column=…"
        )
    return found


def _from_torch(dataset: Any, what: str) -> _Arrays:
    try:
        pairs = [tuple(dataset[index]) for index in range(len(dataset))]
    except TypeError as error:
        raise UserError(
            f"{what} is a data set of torch without a length, or without numbered points ({error})."
        ) from None
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise UserError(f"{what} is a data set of torch; each of its points must be (x, y).")
    points, labels = zip(*pairs, strict=True)
    if is_of(points[0], "torch", "Tensor"):
        import torch

        try:
            stacked: Any = torch.stack(points)
        except RuntimeError:
            raise UserError(f"The points of {what} differ in shape; all must be alike.") from None
        # Pictures without an axis for channels are images, too.
        return _arrays(stacked, [int(label) for label in labels], what)
    return _arrays(np.stack([as_array(p) for p in points]), [int(v) for v in labels], what)


def _written(splits: Mapping[str, _Rows]) -> Path:
    """Folder of the cache with these splits."""

    def write(folder: Path) -> None:
        for name, rows in splits.items():
            rows.write(folder, name)

    return write_given(write)


def write_given(write: Callable[[Path], None]) -> Path:
    """Folder of the cache with files that ``write`` puts into an empty one.

    It is named by their content, so that the same data are kept once.

    Raises
    ------
    UserError
        If the cache cannot be written.
    """
    root = cache_directory() / GIVEN
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="writing-", dir=root) as place:
            written = Path(place) / NAME
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
            "set FEDUL_CACHE to a folder that is writable and has room."
        ) from error


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
