"""Helpers for reading a data owner's folder: tables, CSV files, the decoded copy."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedul_flwr.config.user_files import regular_file
from fedul_flwr.data.cache import build_once, cache_directory, write_blocks
from fedul_flwr.data.csv_cells import read_cell
from fedul_flwr.data.decode import Images, Shape
from fedul_flwr.data.formats import npz_images
from fedul_flwr.errors import OwnDataError, Refusal, UserError

TABLES = (".parquet", ".npz")
"""Suffixes of files with many images."""


@contextmanager
def own_data() -> Iterator[None]:
    """Context that turns every error about files into an :class:`OwnDataError`."""
    try:
        yield
    except OwnDataError:
        raise
    except UserError as error:
        raise OwnDataError(str(error)) from error
    except OSError as error:
        raise OwnDataError(f"{error.filename} cannot be used ({error.strerror}).") from error


def table_images(path: Path) -> Images:
    """The images of a ``.parquet`` or ``.npz`` file; labels in it are never read."""
    if path.suffix.lower() == ".npz":
        return npz_images(path)
    from fedul_flwr.data.arrow import arrow_images, open_parquet

    return arrow_images(open_parquet(path))


def refuse_empty(images: Images) -> None:
    """Refuse a collection without images."""
    if len(images) == 0:
        raise UserError(f"{images.where} holds no images; one or more are needed.")


def read_rows(file: Path, refusal: Refusal) -> list[list[str]]:
    """Rows of a CSV file in UTF-8, with cells stripped of spaces, without empty rows.

    Raises
    ------
    OwnDataError
        If it cannot be read, with ``refusal`` as kind of error.
    """
    try:
        with regular_file(file).open(encoding="utf-8-sig", newline="") as stream:
            return [
                [read_cell(cell.strip()) for cell in row] for row in csv.reader(stream) if any(row)
            ]
    except (OSError, UnicodeDecodeError, csv.Error, UserError) as error:
        raise OwnDataError(f"{file} cannot be read as a CSV file in UTF-8.", refusal) from error


def decoded_copy(
    key: str, readers: Sequence[Callable[[], Images]], shape: Shape, cache: Path | None
) -> Path:
    """Folder with the images of all ``readers`` and the number of each, built on first use.

    ``inputs.npy`` is uint8 ``(n, *shape)``, ``sizes.npy`` int64. Like the originals they are
    confidential, so no other user can open them.
    """

    def build(directory: Path) -> None:
        collections = [read() for read in readers]
        for images in collections:
            refuse_empty(images)
        sizes = np.array([len(images) for images in collections], dtype=np.int64)
        blocks = (block for images in collections for block in images.blocks(shape))
        write_blocks(directory / "inputs.npy", (int(sizes.sum()), *shape), blocks)
        np.save(directory / "sizes.npy", sizes, allow_pickle=False)
        meta = {"sets": [images.where for images in collections], "input_shape": list(shape)}
        (directory / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")

    caches = cache_directory() if cache is None else cache
    return build_once(caches / "owned" / key, build, private=True)
