"""A data owner's own points on a device: unlabeled sets, points with labels, points to predict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from fedul_flwr.config.base import any_of
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.cache import build_once, cache_key
from fedul_flwr.data.class_labels import class_of_cell
from fedul_flwr.data.decode import Images
from fedul_flwr.data.formats import (
    IMAGE_SUFFIXES,
    composed,
    file_images,
    find_entry,
    is_hidden,
    list_images,
)
from fedul_flwr.data.local_files import (
    COUNTS_FILE,
    PRIORS_FILE,
    TEXT_FILES,
    copy_notes,
    data_files,
    decoded_copy,
    open_file,
    own_data,
    read_rows,
    read_stated_priors,
    refuse_empty,
)
from fedul_flwr.data.safe_files import open_array
from fedul_flwr.data.table_files import open_table, read_table, usual_label
from fedul_flwr.data.tables import NO_OPTIONS, Table, TableOptions, Texts
from fedul_flwr.data.types import (
    UNLABELED,
    InputShape,
    Ints,
    PartlyLabeledPoints,
    UnlabeledSets,
)
from fedul_flwr.errors import OwnDataError, UserError


@own_data()
def load_unlabeled_sets(
    path: str | Path,
    class_names: Sequence[str] | None,
    num_classes: int,
    input_shape: InputShape,
    *,
    table: TableOptions = NO_OPTIONS,
) -> UnlabeledSets:
    """Load a client's unlabeled sets and their class priors.

    Labels are never read, even if a set's file has some.
    """
    root = _data_folder(path, f"{PRIORS_FILE} and the sets")
    names = list(map(str, range(num_classes)))
    if class_names is not None:
        names = list(map(composed, class_names))
    priors = read_stated_priors(root, names)
    sets = list(priors.names)
    collections = _find_sets(root, sets, priors.file, input_shape, table)
    files = [file for paths, _ in collections for file in paths]
    counts = [len(paths) for paths, _ in collections]
    key = cache_key([str(root), sets, counts, list(input_shape), *table.identity], files)
    home = decoded_copy(key, [read for _, read in collections], input_shape, table)
    sizes = open_array(home / "sizes.npy")
    priors = priors.with_sizes(sizes)
    return UnlabeledSets(
        inputs=open_array(home / "inputs.npy"),
        points=np.arange(sizes.sum(), dtype=np.int64),
        sets=np.repeat(np.arange(len(sets), dtype=np.int64), sizes),
        priors=priors.posterior.means,
        names=priors.names,
        posterior=priors.posterior,
        tolerances=priors.tolerances,
        notes=(*copy_notes(home), *priors.notes),
    )


def _data_folder(path: str | Path, content: str) -> Path:
    root = user_path(path)
    if not root.is_dir():
        raise UserError(
            f"The data folder {path} does not exist; it must hold {content}.", "folder-missing"
        )
    return root


def client_folders(path: str | Path, num_clients: int) -> list[Path]:
    """Folders of a simulation's clients: the sub-folders of ``path``, sorted by name."""
    root = Path(path)
    if not root.is_dir():
        raise UserError(
            f"Setting client-data = {str(path)!r}: there is no such folder.",
            "folder-missing",
            setting="client-data",
        )
    folders = sorted(e for e in root.iterdir() if e.is_dir() and not is_hidden(e.name))
    if len(folders) != num_clients:
        raise UserError(
            f"Setting client-data: {root} holds {len(folders)} folders, one per client, "
            f"so the run needs that many clients, not {num_clients}.",
            "number-of-clients",
            setting="client-data",
        )
    return folders


def open_points(
    path: str | Path,
    input_shape: InputShape,
    table: TableOptions = NO_OPTIONS,
    id_column: str = "",
) -> tuple[list[str], Images | Table | Texts]:
    """Open points for prediction, before they are decoded or encoded."""
    shape = (0, 0, 0) if input_shape is None else input_shape
    single = IMAGE_SUFFIXES if len(shape) > 1 else ()
    tables = data_files(shape)
    root = user_path(path)
    if not root.exists():
        kinds = "an image, a folder of images, " if single else ""
        raise UserError(
            f"{path} does not exist; give {kinds}a {any_of(tables)} file.", "file-missing"
        )
    points: Images | Table | Texts
    if id_column and (single or root.suffix.lower() == ".npz"):
        raise UserError(
            f"--id-column {id_column!r} is for tables in .csv and .parquet files.",
            "option-without-effect",
            option="--id-column",
        )
    if root.is_dir() and single:
        files = list_images(root)
        names = [file.relative_to(root).as_posix() for file in files]
        points = file_images(str(root), files)
    elif root.suffix.lower() in single:
        names, points = [root.name], file_images(str(root), [root])
    elif root.suffix.lower() in tables and root.is_file():
        if single:
            points = open_file(root, shape, table)
            names = [str(row) for row in range(len(points))]
        else:
            names, points = read_table(root, table, id_column)
    else:
        raise UserError(
            f"{path} has an unknown type; allowed are {', '.join((*single, *tables))}.",
            "folder-layout",
        )
    refuse_empty(points)
    return names, points


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
            raise UserError(
                f"{entry} is not a set that {naming} names ({', '.join(sets)}), as "
                f"{_forms('', tables)}; nothing else may lie there.",
                "folder-layout",
            )
        if name in entries:
            raise UserError(
                f"The set {name!r} is both {entries[name]} and {entry}; only one may.",
                "files-contradict",
            )
        entries[name] = entry
    readers: list[tuple[list[Path], Callable[[], Images | Table | Texts]]] = []
    for name in sets:
        if name not in entries:
            raise UserError(
                f"{root} holds no set {name!r}; {naming} names it, so "
                f"{_forms(name, tables)} is needed.",
                "set-missing",
            )
        entry = entries[name]
        if entry.is_dir():
            files = list_images(entry)
            readers.append((files, partial(file_images, str(entry), files)))
        elif entry.suffix.lower() in tables:
            readers.append(([entry], partial(open_file, entry, input_shape, options)))
        else:
            raise UserError(f"The set {entry} must be {_forms('', tables)}.", "folder-layout")
    return readers


def _lower_suffix(name: str, suffixes: Sequence[str]) -> str:
    """``jan.csv`` for ``jan.CSV``; names with none of the ``suffixes`` stay as they are."""
    path = Path(name)
    return f"{path.stem}{path.suffix.lower()}" if path.suffix.lower() in suffixes else name


def _forms(name: str, tables: Sequence[str]) -> str:
    """The forms of a set called ``name``."""
    folder = [] if ".csv" in tables else [f"a folder {name}/" if name else "a folder"]
    return any_of([*folder, *(f"{name}{suffix}" for suffix in tables)])


LABELS_FILE = "labels.csv"
UNLABELED_FOLDER = "unlabeled"
"""Name of the folder of images without a label, next to class folders."""


@own_data()
def load_partly_labeled(
    path: str | Path,
    class_names: Sequence[str],
    input_shape: InputShape,
    *,
    form: str = "auto",
    known_labels: str | Path = "",
    table: TableOptions = NO_OPTIONS,
) -> PartlyLabeledPoints:
    """Load a client's points and the labels it has.

    Parameters
    ----------
    path : a folder in one of two forms. ``files``: images in any sub-folders, or one ``.parquet``
        or ``.npz``, and optionally ``labels.csv`` next to them. Its columns are ``name``, a file's
        path in the folder or a row number from 0, and ``label``, the name of a class. Images that
        it does not list, or with an empty label, are unlabeled. ``class-folders``: a folder of
        images for each class, with the name of the class, and optionally one named ``unlabeled``;
        images in their sub-folders count too.
    """
    class_names = [composed(name) for name in class_names]
    root = _data_folder(path, f"images, and {LABELS_FILE} for those that have a label")
    labels_file = _labels_file(root, known_labels)
    by_folder = _has_class_folders(root, class_names, form, labels_file)
    files, read = _find_points(root, labels_file, input_shape, table)
    key = cache_key(["partly labeled", str(root), list(input_shape), *table.identity], files)
    home = decoded_copy(key, [read], input_shape, table)
    inputs = open_array(home / "inputs.npy")
    one = files[0] if files[0].suffix.lower() in data_files(input_shape) else None
    names = [composed(file.relative_to(root).as_posix()) for file in files]
    if one is not None:
        names = [str(row) for row in range(len(inputs))]
    notes: tuple[str, ...] = ()
    if by_folder:
        classes = {name: k for k, name in enumerate(class_names)}
        of_folders = [classes.get(name.partition("/")[0], UNLABELED) for name in names]
        labels = np.array(of_folders, dtype=np.int64)
    else:
        where = str(one or root)
        labels, notes = _read_labels(labels_file, names, class_names, where, files=one is None)
    order = _order(home)
    return PartlyLabeledPoints(
        inputs=inputs,
        points=order,
        labels=labels[order],
        new=np.zeros(len(order), dtype=np.bool_),
        names=tuple(names[point] for point in order),
        notes=(*copy_notes(home), *notes),
    )


def _order(home: Path) -> Ints:
    """Positions in an order that depends on inputs only, computed once for the copy ``home``.

    Paths or rows often list points class by class. Then XCLP's server, which sees rows of points,
    could infer labels from their positions.
    """

    def build(directory: Path) -> None:
        inputs = open_array(home / "inputs.npy")
        digests = [sha256(point.tobytes()).digest() for point in inputs]
        order = np.array(sorted(range(len(inputs)), key=digests.__getitem__), dtype=np.int64)
        np.save(directory / "order.npy", order, allow_pickle=False)

    return open_array(
        build_once(home.with_name(f"{home.name}-order"), build, private=True) / "order.npy"
    )


def _labels_file(root: Path, known_labels: str | Path) -> Path:
    """Path of the file of labels; the folder's own may not exist."""
    inside = find_entry(root, LABELS_FILE)
    if not known_labels:
        return inside
    chosen = user_path(known_labels)
    if not chosen.is_file():
        raise OwnDataError(
            f"Node config known-labels = {known_labels}: no such file.", "file-missing"
        )
    if inside.exists() and chosen != inside:
        raise OwnDataError(
            f"{inside} and known-labels = {known_labels} both give labels; only one may.",
            "files-contradict",
        )
    return chosen


# Class folders


def _has_class_folders(
    root: Path, class_names: Sequence[str], form: str, labels_file: Path
) -> bool:
    """Whether folders define the labels; refuses ambiguous cases, and folders of other names."""
    if form == "files":
        return False
    entries = [entry for entry in sorted(root.iterdir()) if not is_hidden(entry.name)]
    entries = [entry for entry in entries if entry.name.lower() != LABELS_FILE]
    folders = {composed(entry.name): entry for entry in entries if entry.is_dir()}
    classes = [folders[name] for name in (*class_names, UNLABELED_FOLDER) if name in folders]
    odd = [entry for entry in entries if entry not in classes]
    if odd or not folders.keys() & set(class_names):
        if form == "auto" and (labels_file.exists() or not folders.keys() & set(class_names)):
            return False
        raise OwnDataError(
            f"{odd[0] if odd else root} is no folder of a class; they must be called "
            f"{', '.join(class_names)} or {UNLABELED_FOLDER}, with nothing beside them; if folders "
            "are no classes, say format = 'files' in the node config.",
            "folder-layout",
        )
    if labels_file.exists():
        raise OwnDataError(
            f"{root} holds class folders, and {labels_file} gives labels too; remove one of them, "
            "or say format = 'files' in the node config to read the file.",
            "files-contradict",
        )
    return True


# Files


def _find_points(
    root: Path, labels: Path, input_shape: InputShape, options: TableOptions
) -> tuple[list[Path], Callable[[], Images | Table | Texts]]:
    """Return the files below ``root``, all images or one table, and a reader of their points."""
    suffixes = data_files(input_shape)
    inside = find_entry(root, LABELS_FILE)
    apart = (inside, labels)
    entries = [e for e in sorted(root.iterdir()) if not is_hidden(e.name) and e not in apart]
    tables = [entry for entry in entries if entry.suffix.lower() in suffixes]
    of_images = len(input_shape) > 1
    if tables:
        if len(entries) > 1:
            other = next(entry for entry in entries if entry != tables[0])
            images = "be images, or " if of_images else ""
            raise UserError(
                f"{root} holds {tables[0].name} and {other.name}; besides {LABELS_FILE} there may "
                f"{images}one {any_of(suffixes)} file.",
                "files-contradict",
            )
        return tables, partial(open_file, tables[0], input_shape, options)
    if not of_images:
        kind = "vectors" if input_shape else "texts"
        raise UserError(
            f"{root} holds no {kind}; one {' or '.join(suffixes)} file is needed.", "file-missing"
        )
    files = list_images(root, besides=inside)
    if not files:
        raise UserError(f"{root} holds no images; one or more are needed.", "points-missing")
    return files, partial(file_images, str(root), files)


def _read_labels(
    file: Path, names: Sequence[str], class_names: Sequence[str], where: str, *, files: bool
) -> tuple[Ints, tuple[str, ...]]:
    """The label of each of ``names`` in ``where``, ``-1`` for none, and how the file was read."""
    labels = np.full(len(names), UNLABELED, dtype=np.int64)
    if not file.exists():
        folders = f", and no folder is called {' or '.join(class_names)}" if files else ""
        return labels, (f"no point has a label, as there is no {file.name}{folders}",)
    rows, note = read_rows(file)
    if rows[0] != ["name", "label"]:
        raise OwnDataError(f"{file} must begin with the header 'name,label'.", "labels-file-wrong")
    numbers = {name: index for index, name in enumerate(names)}
    if len(numbers) < len(names):
        name, _ = Counter(names).most_common(1)[0]
        raise OwnDataError(f"{where} holds two images called {name!r}; one may.", "name-twice")
    classes = {name: k for k, name in enumerate(class_names)}
    named: set[str] = set()
    for written, label in rows[1:]:
        # Windows and `find` write a path as 2024\x.png or ./2024/x.png.
        path = written.replace("\\", "/").removeprefix("./")
        name = written if written in numbers else path
        if name not in numbers:
            raise OwnDataError(
                f"{file} names {written!r}, which {where} does not hold; names are paths of images "
                "in the folder, or row numbers from 0.",
                "labels-file-wrong",
            )
        if name in named:
            raise OwnDataError(
                f"{file} names {name!r} more than once; one row per image.", "name-twice"
            )
        number = class_of_cell(label, classes)
        if number is None:
            raise OwnDataError(
                f"{file} gives {name!r} the label {label!r}; it must be one of "
                f"{', '.join(class_names)}, or empty.",
                "label-unknown",
            )
        named.add(name)
        labels[numbers[name]] = number
    return labels, (f"{file.name}: {note}",) if note else ()


# What its tables hold


def survey_tables(folder: Path, options: TableOptions) -> Iterator[str]:
    """Lines about the tables in an owner's folder."""
    used: dict[str, None] = {}
    left_out: dict[str, None] = {}
    missing: Counter[str] = Counter()
    rows = 0
    for path in _tables(folder):
        with own_data():
            table = open_table(path, options)
            features = _features(table, options)
            for name in features:
                missing[name] += int(table.column(name).to_pandas().isna().sum())
        rows += len(table)
        used |= dict.fromkeys(features)
        left_out |= dict.fromkeys(name for name in table.names if name not in features)
    if used:
        yield f"columns used: {', '.join(used)}"
    if left_out:
        yield f"columns left out: {', '.join(left_out)}"
    if missing.total():
        cells = ", ".join(f"{name} {count}" for name, count in missing.items() if count)
        yield f"missing cells filled (missing = {options.missing!r}), of {rows} rows: {cells}"


def _features(table: Table, options: TableOptions) -> list[str]:
    """The columns that become features, or the column of texts."""
    if options.text:
        return [options.text]
    if options.columns is not None and set(options.columns.names) <= set(table.names):
        return list(options.columns.names)
    label = usual_label(table.names, options.label)
    return [name for name in table.names if name != label]


def _tables(folder: Path) -> list[Path]:
    named = (PRIORS_FILE, COUNTS_FILE, LABELS_FILE)
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in TEXT_FILES
        and path.name.lower() not in named
        and not is_hidden(path.name)
    ]
