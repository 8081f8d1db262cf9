"""A data owner's own points on a device, some of them with labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fedul_flwr.data.cache import cache_key, open_array
from fedul_flwr.data.decode import Images
from fedul_flwr.data.formats import file_images, is_hidden, list_images
from fedul_flwr.data.owned_files import TABLES, decoded_copy, read_rows, table_images
from fedul_flwr.data.types import UNLABELED, Ints, PartlyLabeledPoints
from fedul_flwr.errors import UserError

LABELS_FILE = "labels.csv"


def load_partly_labeled(
    path: str | Path,
    class_names: Sequence[str],
    image_shape: tuple[int, int, int],
    cache: Path | None = None,
) -> PartlyLabeledPoints:
    """Load a client's points and the labels it has.

    Parameters
    ----------
    path : a folder of images (with its sub-folders), or with one ``.parquet`` or ``.npz``, and
        perhaps ``labels.csv`` beside them. Its columns are ``name``, a file's path in the folder or
        a row number from 0, and ``label``, the name of a class. What it does not name is unlabeled,
        as is a name with an empty label.
    class_names : the model's K classes in order.
    image_shape : the model's ``(height, width, channels)``; images are converted to it.
    cache : folder for decoded data; default ``$FEDUL_CACHE`` or ``~/.cache/fedul-flwr``.

    Returns
    -------
    PartlyLabeledPoints with images in the order of their names (or rows), none of them new;
    ``images`` is memory-mapped read-only.

    Raises
    ------
    UserError
        The folder, ``labels.csv`` or an image is not as described above.
    """
    root = Path(path).expanduser().resolve()
    if not root.is_dir():
        raise UserError(
            f"The data folder {path} does not exist; it must hold images, and {LABELS_FILE} for "
            "those that have a label."
        )
    files, read = _find_images(root)
    key = cache_key(["partly labeled", str(root), list(image_shape)], files)
    images = open_array(decoded_copy(key, [read], image_shape, cache) / "images.npy")
    table = files[0] if files[0].suffix.lower() in TABLES else None
    names = (
        tuple(file.relative_to(root).as_posix() for file in files)
        if table is None
        else tuple(map(str, range(len(images))))
    )
    return PartlyLabeledPoints(
        images=images,
        points=np.arange(len(names), dtype=np.int64),
        labels=_read_labels(root / LABELS_FILE, names, list(class_names), str(table or root)),
        new=np.zeros(len(names), dtype=np.bool_),
        names=names,
    )


def _find_images(root: Path) -> tuple[list[Path], Callable[[], Images]]:
    """Return the files below ``root``, all images or one table, and what opens their images."""
    labels = root / LABELS_FILE
    entries = [e for e in sorted(root.iterdir()) if not is_hidden(e.name) and e != labels]
    tables = [entry for entry in entries if entry.suffix.lower() in TABLES]
    if tables:
        if len(entries) > 1:
            other = next(entry for entry in entries if entry != tables[0])
            raise UserError(
                f"{root} holds {tables[0].name} and {other.name}; besides {LABELS_FILE} there may "
                "be images, or one .parquet or .npz file."
            )
        return tables, partial(table_images, tables[0])
    files = list_images(root, besides=labels)
    if not files:
        raise UserError(f"{root} holds no images; one or more are needed.")
    return files, partial(file_images, str(root), files)


def _read_labels(file: Path, names: Sequence[str], class_names: Sequence[str], where: str) -> Ints:
    """Return the label of every one of ``names`` in ``where``, ``-1`` where it has none."""
    labels = np.full(len(names), UNLABELED, dtype=np.int64)
    if not file.exists():
        return labels
    rows = read_rows(file)
    if not rows or rows[0] != ["name", "label"]:
        raise UserError(f"{file} must begin with the header 'name,label'.")
    places = {name: place for place, name in enumerate(names)}
    classes = {name: k for k, name in enumerate(class_names)} | {"": UNLABELED}
    named: set[str] = set()
    for row in rows[1:]:
        name = row[0]
        if len(row) != 2:
            raise UserError(
                f"The row of {name!r} in {file} has {len(row)} values; it needs a name and a label."
            )
        if name not in places:
            raise UserError(
                f"{file} names {name!r}, which {where} does not hold; names are paths of images in "
                "the folder, or row numbers from 0."
            )
        if name in named:
            raise UserError(f"{file} names {name!r} more than once; one row per image.")
        if row[1] not in classes:
            raise UserError(
                f"{file} gives {name!r} the label {row[1]!r}; it must be one of "
                f"{', '.join(class_names)}, or empty."
            )
        named.add(name)
        labels[places[name]] = classes[row[1]]
    return labels
