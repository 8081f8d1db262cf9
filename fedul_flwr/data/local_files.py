"""Helpers for reading a data owner's folder: tables, CSV files, the decoded copy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedul_flwr.data.cache import build_once, cache_directory
from fedul_flwr.data.common_form import Points
from fedul_flwr.data.csv_files import read_cell, read_csv_rows
from fedul_flwr.data.decode import Images
from fedul_flwr.data.encode import encode, fit, infer_columns
from fedul_flwr.data.formats import composed, npz_images
from fedul_flwr.data.safe_files import write_blocks
from fedul_flwr.data.tables import Table, TableOptions, Texts, reading_notes
from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import OwnDataError, UserError

TABLES = (".parquet", ".npz")
"""Suffixes of files with many images."""
TEXT_FILES = (".parquet", ".csv")
"""Suffixes of files with a column of texts."""
VECTOR_FILES = (".parquet", ".npz", ".csv")
"""Suffixes of files of vectors."""


@contextmanager
def own_data() -> Iterator[None]:
    """Context that turns every error about files into an :class:`OwnDataError`."""
    try:
        yield
    except OwnDataError:
        raise
    except UserError as error:
        raise OwnDataError(str(error), error.code, **error.values) from error
    except OSError as error:
        raise OwnDataError(
            f"{error.filename} cannot be used ({error.strerror}).", "file-not-readable"
        ) from error


def refuse_unwritable(folder: Path, what: str) -> None:
    """Refuse a folder into which this user cannot write, with an OwnDataError.

    Parameters
    ----------
    what : what would be written, as the beginning of a sentence.
    """
    if not os.access(folder, os.W_OK):
        raise OwnDataError(
            f"{what} cannot be written to {folder}: it must be a folder that this user can write "
            "to.",
            "file-not-writable",
        )


def data_files(shape: InputShape) -> tuple[str, ...]:
    """Suffixes of files with many points of this kind."""
    return {0: TEXT_FILES, 1: VECTOR_FILES}.get(len(shape), TABLES)


def open_file(path: Path, shape: InputShape, options: TableOptions) -> Images | Table | Texts:
    """The points of a file, images, vectors or texts by the ``shape`` of one of them.

    Labels in it are never read.
    """
    if len(shape) < 2:
        from fedul_flwr.data.table_files import read_table

        return read_table(path, options)[1]
    if path.suffix.lower() == ".npz":
        return npz_images(path)
    from fedul_flwr.data.table_files import open_parquet, table_images

    return table_images(open_parquet(path))


def as_points(
    parts: Sequence[Images | Table | Texts], shape: InputShape, options: TableOptions
) -> list[Points]:
    """Points of one owner that can be stored.

    Where the columns do not say what fills a missing value, all tables together do, unless
    the columns are those of a trained model.
    """
    for inputs in parts:
        refuse_empty(inputs)
    images = [inputs for inputs in parts if not isinstance(inputs, Table | Texts)]
    if len(shape) > 1:
        return [inputs.read_with(options.bits, options.window) for inputs in images]
    if images:
        wanted = f"vectors of {shape[0]} numbers" if shape else "texts"
        raise UserError(
            f"{images[0].where} is a folder of images; the run takes {wanted}.",
            "points-of-another-kind",
        )
    texts = [inputs for inputs in parts if isinstance(inputs, Texts)]
    if texts:
        return [*texts]
    tables = [inputs for inputs in parts if isinstance(inputs, Table)]
    for table in tables if options.columns is None else ():
        if table.names:
            raise UserError(
                f"{table.where} has columns with names, and the run does not say which of them it "
                "takes, and in which order: setting columns has to name a columns file.",
                "columns-file-needed",
            )
    columns = options.columns or infer_columns(tables)
    if not options.trained:
        columns = fit(tables, columns, options.missing)
    return [*encode(tables, columns)]


def refuse_empty(inputs: Images | Table | Texts) -> None:
    """Refuse a collection without points."""
    if len(inputs) == 0:
        what = "rows" if isinstance(inputs, Table | Texts) else "images"
        raise UserError(
            f"{inputs.where} holds no {what}; one or more are needed.", "points-missing"
        )


def read_rows(file: Path) -> tuple[list[list[str]], str]:
    """Rows of a CSV file with composed letters, and how it was read if not as usual
    (:func:`~fedul_flwr.data.csv_files.read_csv_rows`).
    """
    with own_data():
        rows, note = read_csv_rows(file)
    return [[composed(read_cell(cell)) for cell in row] for row in rows], note


def copy_notes(home: Path) -> tuple[str, ...]:
    """How the files of a decoded copy were read, where they are not as usual."""
    meta = json.loads((home / "meta.json").read_text(encoding="utf-8"))
    return tuple(meta["notes"])


def decoded_copy(
    key: str,
    readers: Sequence[Callable[[], Images | Table | Texts]],
    shape: InputShape,
    options: TableOptions,
) -> Path:
    """Folder with the points of all ``readers`` and the number of each, built on first use.

    ``inputs.npy`` is ``(n, *shape)``, ``sizes.npy`` int64. Like the originals they are
    confidential, so no other user can open them.
    """

    def build(directory: Path) -> None:
        parts = [read() for read in readers]
        collections = as_points(parts, shape, options)
        sizes = np.array([len(points) for points in collections], dtype=np.int64)
        blocks = (block for points in collections for block in points.blocks(shape))
        # Texts of one set may be longer than those of another.
        dtype = np.result_type(*(points.dtype for points in collections))
        file = directory / "inputs.npy"
        write_blocks(file, (int(sizes.sum()), *shape), dtype, blocks)
        np.save(directory / "sizes.npy", sizes, allow_pickle=False)
        meta = {
            "sets": [points.where for points in collections],
            "input_shape": list(shape),
            "notes": reading_notes(parts),
        }
        (directory / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")

    return build_once(cache_directory() / "owned" / key, build, private=True)
