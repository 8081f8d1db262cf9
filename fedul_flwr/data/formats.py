"""Readers of folders of images and of ``.npz`` files, and checks common to all formats.

Images and labels are read separately: a function that returns images never opens the labels.
"""

from __future__ import annotations

import os
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.user_files import regular_file
from fedul_flwr.data.class_labels import ClassLabels, class_labels, class_text, refuse_two_spellings
from fedul_flwr.data.decode import (
    BLOCK,
    EncodedImages,
    Images,
    Item,
    PixelImages,
    list_batches,
)
from fedul_flwr.data.tables import Table, Texts, VectorPoints
from fedul_flwr.data.types import Bytes
from fedul_flwr.errors import UserError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
_STRAYS = {
    *("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "__macosx", "@eadir", "#recycle"),
    *("$recycle.bin", "system volume information", "lost+found"),
}
"""Files and folders, in lower case, that Windows, macOS and network storage leave beside data."""


Points = Images | VectorPoints | Texts
"""Points that can be written in blocks of one shape."""


@dataclass(frozen=True)
class Split:
    """One split of a data set as read from its files.

    Attributes
    ----------
    inputs : the images, not decoded yet, the table of features, or texts.
    labels : ``n`` labels; another split may have other classes, unless the format lists them.
    columns : further integer and text columns, ``(n,)`` each.
    """

    inputs: Images | Table | Texts
    labels: ClassLabels
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def is_hidden(name: str) -> bool:
    """Whether ``name`` is that of a hidden file, or of one that systems leave beside data."""
    return name.startswith(".") or name.lower() in _STRAYS


def composed(name: str) -> str:
    """``name`` with composed letters (Unicode NFC), so that names of files and classes compare."""
    return unicodedata.normalize("NFC", name)


def find_entry(folder: Path, name: str) -> Path:
    """Path in ``folder`` of what is called ``name`` in any case, as Windows writes ``TRAIN.CSV``;
    nothing may be there.
    """
    matches = sorted(e for e in folder.iterdir() if e.name.lower() == name.lower())
    if len(matches) > 1:
        raise UserError(
            f"{folder} holds {matches[0].name} and {matches[1].name}, whose names differ only "
            "in upper and lower case; only one of them may be there.",
            "files-contradict",
        )
    return matches[0] if matches else folder / name


def list_images(folder: Path, *, besides: Path | None = None) -> list[Path]:
    """Return all image files under ``folder`` except ``besides``, sorted by path."""
    images: list[Path] = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for name in files:
            if is_hidden(name) or Path(parent) / name == besides:
                continue
            if not name.lower().endswith(IMAGE_SUFFIXES):
                raise UserError(
                    f"{Path(parent) / name} is not an image; only "
                    f"{', '.join(IMAGE_SUFFIXES)} files may lie in a folder of images.",
                    "folder-layout",
                )
            images.append(Path(parent) / name)
    return sorted(images)


def file_images(where: str, files: Sequence[Path]) -> Images:
    """Return the images of ``files``, in this order."""
    items: list[Item] = [(str(file), file) for file in files]
    return EncodedImages(where, len(items), partial(list_batches, items))


def class_folders(root: Path) -> dict[str, list[Path]]:
    """Return the image files of every class: one sub-folder of ``root`` per class."""
    classes: dict[str, list[Path]] = {}
    for entry in sorted(root.iterdir()):
        if is_hidden(entry.name):
            continue
        if not entry.is_dir():
            raise UserError(
                f"{entry} lies beside the class folders; only folders may lie there.",
                "folder-layout",
            )
        name = class_text(entry.name)
        if name in classes:
            raise UserError(
                f"{root} holds two folders called {name!r}; one per class.", "name-twice"
            )
        classes[name] = list_images(entry)
    refuse_two_spellings(list(classes), str(root))
    return classes


def folder_split(root: Path, class_names: Sequence[str]) -> Split:
    """Read a split laid out as one sub-folder per class; ``class_names`` may have more classes."""
    classes = class_folders(root)
    files = [file for name in class_names for file in classes.get(name, [])]
    counts = [len(classes.get(name, [])) for name in class_names]
    labels = np.repeat(np.arange(len(class_names), dtype=np.int64), counts)
    return Split(file_images(str(root), files), ClassLabels(labels, tuple(class_names)))


def npz_images(path: Path) -> Images:
    """Return the array ``images`` of an ``.npz`` file."""
    array = npz_array(path, "images")
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.ndim != 4 or array.shape[3] not in (1, 3) or 0 in array.shape[1:]:
        raise UserError(
            f"Array 'images' of {path} has shape {array.shape}; allowed are (n, height, width) "
            "and (n, height, width, 1 or 3).",
            "array-wrong",
        )
    pixels = as_pixels(array)
    if pixels is None:
        raise UserError(
            f"Array 'images' of {path} holds {array.dtype}; images must be uint8, or floats in "
            "[0, 1].",
            "array-wrong",
        )
    return PixelImages(str(path), pixels)


def as_pixels(images: NDArray[Any]) -> Bytes | None:
    """Images as uint8 if they are, or are floats in [0, 1]; else None."""
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        return None
    pixels = np.empty(images.shape, dtype=np.uint8)
    for start in range(0, len(images), BLOCK):
        block = images[start : start + BLOCK]
        if not ((block >= 0) & (block <= 1)).all():  # NaN fails both
            return None
        pixels[start : start + BLOCK] = np.rint(block.astype(np.float64) * 255)
    return pixels


def npz_split(path: Path, inputs: Images | Table) -> Split:
    """Read ``labels`` and perhaps further ``(n,)`` arrays of an ``.npz`` file with ``inputs``."""
    count = len(inputs)
    labels = class_labels(npz_array(path, "labels"), f"Array 'labels' of {path}", count)
    columns = {}
    for name in npz_names(path):
        if name in {"images", "vectors", "labels"}:
            continue
        if name == "class_names":
            names = npz_array(path, name)
            if names.ndim != 1 or names.dtype.kind != "U" or not len(names):
                raise UserError(
                    f"Array 'class_names' of {path} must hold a text for each class.", "array-wrong"
                )
            labels = labels.numbered_by(tuple(map(str, names)), str(path))
            continue
        values = npz_array(path, name)
        if values.ndim == 1 and values.dtype.kind in "iubU":
            if len(values) != count:
                raise UserError(
                    f"Array {name!r} of {path} has {len(values)} entries for {count} points; "
                    "it needs one for every point.",
                    "array-wrong",
                )
            columns[name] = values
    return Split(inputs, labels, columns)


def npz_names(path: Path) -> list[str]:
    """Names of the arrays in an ``.npz`` file."""
    unreadable = f"{path} cannot be read as an .npz file; it may be damaged."
    with (
        _readable_npz(path, unreadable),
        np.load(regular_file(path), allow_pickle=False) as file,
    ):
        return list(file.files)


def npz_array(path: Path, name: str) -> NDArray[Any]:
    """One array of an ``.npz`` file; refused if it is missing or damaged."""
    names = npz_names(path)
    if name not in names:
        raise UserError(
            f"{path} has no array {name!r}; its arrays are: {', '.join(names)}.", "array-wrong"
        )
    unreadable = f"Array {name!r} of {path} cannot be read; it must hold numbers and be whole."
    with _readable_npz(path, unreadable), np.load(path, allow_pickle=False) as file:
        return np.asarray(file[name])


@contextmanager
def _readable_npz(path: Path, unreadable: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise UserError(
            f"{path} needs more memory than there is ({error}).", "not-enough-memory"
        ) from error
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        # TypeError: a plain .npy array under this name is not a context manager.
        raise UserError(unreadable, "file-not-readable") from error
