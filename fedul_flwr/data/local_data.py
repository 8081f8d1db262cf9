"""A data owner's own points on a device: unlabeled sets for training, any points for prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.cache import cache_key, open_array
from fedul_flwr.data.decode import Images, join_blocks
from fedul_flwr.data.formats import IMAGE_SUFFIXES, composed, file_images, is_hidden, list_images
from fedul_flwr.data.local_files import (
    as_points,
    copy_notes,
    data_files,
    decoded_copy,
    open_file,
    own_data,
    refuse_empty,
)
from fedul_flwr.data.table_files import read_with_ids
from fedul_flwr.data.tables import NO_OPTIONS, Table, TableOptions
from fedul_flwr.data.texts import Texts
from fedul_flwr.data.told_priors import COUNTS_FILE, PRIORS_FILE, read_told_priors
from fedul_flwr.data.types import Inputs, InputShape, UnlabeledSets
from fedul_flwr.errors import UserError


@own_data()
def load_unlabeled_sets(
    path: str | Path,
    class_names: Sequence[str] | None,
    num_classes: int,
    input_shape: InputShape,
    *,
    table: TableOptions = NO_OPTIONS,
    cache: Path | None = None,
) -> UnlabeledSets:
    """Load a client's unlabeled sets and their class priors.

    Labels are never read, even if a set's file has some.

    Parameters
    ----------
    path : a folder with ``priors.csv`` or ``counts.csv``
        (:func:`~fedul_flwr.data.told_priors.read_told_priors`) and, for every set it names, a
        sub-folder of images, a ``.parquet`` or an ``.npz`` file of that name; for vectors one of
        these files or a ``.csv``.
    class_names : the model's ``num_classes`` classes in order; None if they only have numbers.
    num_classes : K.
    input_shape : shape of the model's inputs; images of another size are resized (bilinear), gray
        and RGB are converted into each other.
    table : rules for tables of features.
    cache : folder for decoded data; default ``$FEDUL_CACHE`` or ``~/.cache/fedul-flwr``.

    Returns
    -------
    UnlabeledSets with the sets in the order of ``priors.csv`` and priors float64 ``(M, K)`` in the
    order of ``class_names``. Shares are only checked to be finite numbers; ``images`` is
    memory-mapped read-only.

    Raises
    ------
    OwnDataError
        If the folder, ``priors.csv``, a set or an image is not as described above.
    """
    root = user_path(path)
    if not root.is_dir():
        raise UserError(
            f"The data folder {path} does not exist; it must hold {PRIORS_FILE} and the sets."
        )
    names = list(map(str, range(num_classes)))
    if class_names is not None:
        names = list(map(composed, class_names))
    if len(names) != num_classes:
        raise UserError(f"{len(names)} class names were given for {num_classes} classes.")
    told = read_told_priors(root, names)
    sets = list(told.names)
    collections = _find_sets(root, sets, told.file, input_shape, table)
    files = [file for paths, _ in collections for file in paths]
    counts = [len(paths) for paths, _ in collections]
    key = cache_key([str(root), sets, counts, list(input_shape), *table.identity], files)
    home = decoded_copy(key, [read for _, read in collections], input_shape, table, cache)
    sizes = open_array(home / "sizes.npy")
    return UnlabeledSets(
        inputs=open_array(home / "inputs.npy"),
        points=np.arange(sizes.sum(), dtype=np.int64),
        sets=np.repeat(np.arange(len(sets), dtype=np.int64), sizes),
        priors=told.posterior.means,
        names=told.names,
        posterior=told.posterior,
        tolerances=told.tolerances,
        notes=(*copy_notes(home), *told.notes),
    )


def client_folders(path: str | Path, num_clients: int) -> list[Path]:
    """Folders of a simulation's clients: the sub-folders of ``path``, sorted by name.

    Raises
    ------
    UserError
        If ``path`` is not a folder, or does not contain exactly ``num_clients`` folders.
    """
    root = Path(path)
    if not root.is_dir():
        raise UserError(f"Setting client-data = {str(path)!r}: there is no such folder.")
    folders = sorted(entry for entry in root.iterdir() if not is_hidden(entry.name))
    for entry in folders:
        if not entry.is_dir():
            raise UserError(
                f"{entry} is no folder; client-data holds one folder per client and nothing else."
            )
    if len(folders) != num_clients:
        raise UserError(
            f"Setting client-data: {root} holds {len(folders)} folders, one per client, "
            f"so the run needs that many clients, not {num_clients}."
        )
    return folders


def load_points(
    path: str | Path, input_shape: InputShape | None = None, table: TableOptions = NO_OPTIONS
) -> tuple[list[str], Inputs]:
    """Load points without labels, for prediction.

    Parameters
    ----------
    path : an image file, a folder of images (with its sub-folders), a ``.parquet`` or ``.npz``; for
        vectors a ``.parquet``, ``.npz`` or ``.csv``.
    input_shape : shape of the model's inputs, to which images are converted; None is for images and
        keeps their size, which must then be the same for all, with 3 channels if any has color.
    table : rules for tables of features.

    Returns
    -------
    names : file names relative to ``path``, sorted, or row numbers from 0.
    inputs : ``n`` images or vectors.

    Raises
    ------
    UserError
        If the path does not exist, has no points, or one that cannot be read.
    """
    names, found = open_points(path, input_shape, table)
    if input_shape is None:
        assert not isinstance(found, Table | Texts)
        input_shape = found.survey().shape(found.where)
    (points,) = as_points([found], input_shape, table)
    return names, join_blocks(points, input_shape)


def open_points(
    path: str | Path,
    input_shape: InputShape | None = None,
    table: TableOptions = NO_OPTIONS,
    id_column: str = "",
) -> tuple[list[str], Images | Table | Texts]:
    """The same points before they are decoded or encoded, and their names.

    Parameters
    ----------
    id_column : the column of a table that has their names; without it they are numbers of rows.

    Raises
    ------
    UserError
        If the path does not exist, or has no points.
    """
    shape = (0, 0, 0) if input_shape is None else input_shape
    single = IMAGE_SUFFIXES if len(shape) > 1 else ()
    tables = data_files(shape)
    root = user_path(path)
    if not root.exists():
        kinds = "an image, a folder of images, " if single else ""
        raise UserError(f"{path} does not exist; give {kinds}a {_either(tables)} file.")
    found: Images | Table | Texts
    if id_column and single:
        raise UserError(
            f"--id-column {id_column!r} is for tables in .csv and .parquet files; images are named "
            "by their files."
        )
    if root.is_dir() and single:
        files = list_images(root)
        names = [file.relative_to(root).as_posix() for file in files]
        found = file_images(str(root), files)
    elif root.suffix.lower() in single:
        names, found = [root.name], file_images(str(root), [root])
    elif root.suffix.lower() in tables and root.is_file():
        if id_column:
            names, found = read_with_ids(root, table, id_column)
        else:
            found = open_file(root, shape, table)
            names = [str(row) for row in range(len(found))]
    else:
        raise UserError(f"{path} has an unknown type; allowed are {', '.join((*single, *tables))}.")
    refuse_empty(found)
    return names, found


def _either(suffixes: Sequence[str]) -> str:
    return f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"


def _find_sets(
    root: Path, sets: list[str], naming: str, input_shape: InputShape, options: TableOptions
) -> list[tuple[list[Path], Callable[[], Images | Table | Texts]]]:
    """The files of every set and a function that opens its points; file ``naming`` names them."""
    tables = data_files(input_shape)
    entries: dict[str, Path] = {}
    named = {_lower_suffix(name, tables): name for name in sets} | {name: name for name in sets}
    for entry in sorted(root.iterdir()):
        if is_hidden(entry.name) or entry.name.lower() in (PRIORS_FILE, COUNTS_FILE):
            continue
        entry_name = composed(entry.name)
        name = named.get(entry_name) or named.get(_lower_suffix(entry_name, tables)) or entry_name
        if name not in sets and entry.is_file() and entry.suffix.lower() in tables:
            name = composed(entry.stem)
        if name not in sets:
            if entry.is_file() and entry_name.split(".")[0] in sets:  # jan.tsv, jan.csv.gz
                raise UserError(f"The set {entry} must be {_forms('', tables)}.")
            raise UserError(
                f"{entry} is not a set that {naming} names ({', '.join(sets)}); nothing else "
                "may lie there."
            )
        if name in entries:
            raise UserError(f"The set {name!r} is both {entries[name]} and {entry}; only one may.")
        entries[name] = entry
    found: list[tuple[list[Path], Callable[[], Images | Table | Texts]]] = []
    for name in sets:
        if name not in entries:
            raise UserError(
                f"{root} holds no set {name!r}; {naming} names it, so "
                f"{_forms(name, tables)} is needed."
            )
        entry = entries[name]
        if entry.is_dir():
            files = list_images(entry)
            found.append((files, partial(file_images, str(entry), files)))
        elif entry.suffix.lower() in tables:
            found.append(([entry], partial(open_file, entry, input_shape, options)))
        else:
            raise UserError(f"The set {entry} must be {_forms('', tables)}.")
    return found


def _lower_suffix(name: str, suffixes: Sequence[str]) -> str:
    """``jan.csv`` for ``jan.CSV``; names with none of the ``suffixes`` stay as they are."""
    path = Path(name)
    return f"{path.stem}{path.suffix.lower()}" if path.suffix.lower() in suffixes else name


def _forms(name: str, tables: Sequence[str]) -> str:
    """The forms of a set called ``name``."""
    folder = [] if ".csv" in tables else [f"a folder {name}/" if name else "a folder"]
    return _either([*folder, *(f"{name}{suffix}" for suffix in tables)])
