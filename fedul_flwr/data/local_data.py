"""A data owner's own points on a device: unlabeled sets, points with labels, points to predict."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedul_flwr.arrays import Floats, Ints
from fedul_flwr.config.base import SUM_TOLERANCE, any_of
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.class_labels import class_of_cell
from fedul_flwr.data.columns import Column, refuse_twice
from fedul_flwr.data.csv_files import read_rows
from fedul_flwr.data.decode import (
    IMAGE_SUFFIXES,
    file_images,
    identity,
    list_images,
    refuse_shared,
    refuse_unused_range,
)
from fedul_flwr.data.encode import values_of
from fedul_flwr.data.headers import UNITS_FILE, unit_files
from fedul_flwr.data.safe_files import (
    build_once,
    cache_directory,
    cache_key,
    composed,
    find_entry,
    open_array,
    visible,
    write_blocks,
)
from fedul_flwr.data.set_priors import Dirichlet
from fedul_flwr.data.table_files import (
    Opened,
    Points,
    npz_images,
    open_parquet,
    open_table,
    read_table,
    refuse_empty,
    storable,
    table_images,
    usual_label,
)
from fedul_flwr.data.tables import NO_OPTIONS, Table, TableOptions, reading_notes
from fedul_flwr.data.types import UNLABELED, Inputs, InputShape, PartlyLabeledPoints, UnlabeledSets
from fedul_flwr.errors import OwnDataError, UserError

LABELS_FILE, PRIORS_FILE, COUNTS_FILE = "labels.csv", "priors.csv", "counts.csv"
NO_POINTS = (LABELS_FILE, PRIORS_FILE, COUNTS_FILE, UNITS_FILE)
"""Files in an owner's folder that hold no points."""
UNLABELED_FOLDER = "unlabeled"
"""Name of the folder of images without a label, next to class folders."""
_SUFFIXES = {0: (".parquet", ".csv"), 1: (".parquet", ".npz", ".csv"), 3: (".parquet", ".npz")}
"""Endings of files with many points, by the number of axes of a point."""


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
    """Refuse a folder into which this user cannot write, with an OwnDataError."""
    if not os.access(folder, os.W_OK):
        raise OwnDataError(
            f"{what} cannot be written to {folder}: it must be a folder that this user can write "
            "to.",
            "file-not-writable",
        )


# Files with points: which there are, and how they are read.


@dataclass(frozen=True)
class PointFiles:
    """A table, an image, or all images of a folder, with points of one shape."""

    path: Path
    files: list[Path]
    shape: InputShape

    @classmethod
    def at(cls, path: Path, shape: InputShape, besides: Collection[Path] = ()) -> PointFiles:
        """Those of a file or a folder; other entries of the folder than images are refused."""
        of_images = len(shape) > 1
        suffixes = (*_SUFFIXES[len(shape)], *(IMAGE_SUFFIXES if of_images else ()))
        if path.is_dir() and of_images:
            return cls(path, list_images(path, besides), shape)
        if not path.exists():
            raise UserError(
                f"{path} does not exist; it must be {_forms('', shape)}.", "file-missing"
            )
        if path.is_dir() or path.suffix.lower() not in suffixes:
            raise UserError(
                f"{path} must be {_forms('', shape)}, of points of the run's kind.",
                "folder-layout",
            )
        return cls(path, [path], shape)

    @property
    def is_table(self) -> bool:
        """Whether all points are in one file."""
        return self.path.suffix.lower() in _SUFFIXES[len(self.shape)] and self.path.is_file()

    def names(self, count: int) -> list[str]:
        """Names of ``count`` points: paths of images, or numbers of rows."""
        if self.is_table:
            return list(map(str, range(count)))
        root = self.path if self.path.is_dir() else self.path.parent
        return [file.relative_to(root).as_posix() for file in self.files]

    def read(self, options: TableOptions) -> Opened:
        """The points, before they are decoded or encoded."""
        if len(self.shape) < 2:
            return read_table(self.path, options)[1]
        if not self.is_table:
            return file_images(str(self.path), self.files)
        if self.path.suffix.lower() == ".npz":
            return npz_images(self.path)
        return table_images(open_parquet(self.path))


def _forms(name: str, shape: InputShape) -> str:
    """The forms of points called ``name``."""
    folder = [f"a folder {name}/ of images" if name else "a folder of images"]
    files = [f"{name}{suffix}" for suffix in _SUFFIXES[len(shape)]]
    return any_of([*(folder if len(shape) > 1 else []), *files])


def open_points(
    path: str | Path,
    input_shape: InputShape,
    table: TableOptions = NO_OPTIONS,
    id_column: str = "",
) -> tuple[list[str], Opened]:
    """Names of points for prediction, and the points before they are decoded or encoded."""
    source = PointFiles.at(user_path(path), input_shape)
    suffix = source.path.suffix.lower()
    if id_column and (len(input_shape) > 1 or suffix == ".npz"):
        raise UserError(
            f"--id-column {id_column!r} is for tables in .csv and .parquet files.",
            "option-without-effect",
            option="--id-column",
        )
    if id_column:
        names, points = read_table(source.path, table, id_column)
    else:
        points = source.read(table)
        names = source.names(len(points))
    return names, points


def as_points(parts: Sequence[Opened], options: TableOptions) -> list[Points]:
    """Points of one owner that can be stored.

    Where the columns do not say what fills a missing value, all tables together do, unless
    the columns are those of a trained model.
    """
    for part in parts:
        refuse_empty(part)
        if isinstance(part, Table) and part.names and options.columns is None:
            raise UserError(
                f"{part.where} has columns with names, and the run does not say which of them it "
                "takes, and in which order: setting columns has to name a columns file.",
                "columns-file-needed",
            )
    return storable(parts, options)[1]


class _Copy(NamedTuple):
    """The decoded points of several files, and how these were read.

    ``order`` has the points' positions in an order that depends on inputs only. Paths or rows often
    list points class by class: then XCLP's server, which sees rows of points, could infer labels.
    """

    inputs: Inputs
    sizes: Ints
    order: Ints
    notes: tuple[str, ...]


def _decoded_copy(groups: Sequence[PointFiles], shape: InputShape, options: TableOptions) -> _Copy:
    """All points, built on first use.

    Like the originals they are confidential, so no other user can open them.
    """

    def build(directory: Path) -> None:
        parts = [group.read(options) for group in groups]
        collections = as_points(parts, options)
        sizes = np.array([len(points) for points in collections], dtype=np.int64)
        blocks = (block for points in collections for block in points.blocks(shape))
        # Texts of one set may be longer than those of another.
        dtype = np.result_type(*(points.dtype for points in collections))
        write_blocks(directory / "inputs.npy", (int(sizes.sum()), *shape), dtype, blocks)
        inputs = np.load(directory / "inputs.npy", mmap_mode="r")
        refuse_unused_range(inputs, str(groups[0].path), options.bits)
        digests = [sha256(point.tobytes()).digest() for point in inputs]
        order = np.array(sorted(range(len(inputs)), key=digests.__getitem__), dtype=np.int64)
        for name, array in (("sizes", sizes), ("order", order)):
            np.save(directory / f"{name}.npy", array, allow_pickle=False)
        notes = json.dumps(reading_notes(parts), indent=1)
        (directory / "notes.json").write_text(notes, encoding="utf-8")

    counts = [[str(group.path), len(group.files)] for group in groups]
    files = [file for group in groups for file in group.files]
    beside = unit_files(files) if len(shape) < 2 else []
    key = cache_key([counts, list(shape), *options.identity], [*files, *beside])
    home = build_once(cache_directory() / "owned" / key, build, private=True)
    notes = json.loads((home / "notes.json").read_text(encoding="utf-8"))
    inputs, sizes, order = (open_array(home / f"{n}.npy") for n in ("inputs", "sizes", "order"))
    return _Copy(inputs, sizes, order, tuple(notes))


def _data_folder(path: str | Path, content: str) -> Path:
    root = user_path(path)
    if not root.is_dir():
        raise UserError(
            f"The data folder {path} does not exist; it must hold {content}.", "folder-missing"
        )
    return root


def client_folders(path: str | Path, num_clients: int) -> list[Path]:
    """Folders of a simulation's clients: the sub-folders of ``path``, sorted by name."""
    root = _data_folder(path, "a folder for each client (setting client-data)")
    folders = [entry for entry in visible(root) if entry.is_dir()]
    if len(folders) != num_clients:
        raise UserError(
            f"Setting client-data: {root} holds {len(folders)} folders, one per client, "
            f"so the run needs that many clients, not {num_clients}.",
            "number-of-clients",
            setting="client-data",
        )
    refuse_shared({folder.name: [folder] for folder in folders})
    return folders


# Unlabeled sets.


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
    copy = _decoded_copy(_find_sets(root, priors, input_shape), input_shape, table)
    priors = priors.with_sizes(copy.sizes)
    return UnlabeledSets(
        inputs=copy.inputs,
        points=np.arange(len(copy.inputs), dtype=np.int64),
        sets=np.repeat(np.arange(len(copy.sizes), dtype=np.int64), copy.sizes),
        priors=priors.posterior.means,
        names=priors.names,
        posterior=priors.posterior,
        tolerances=priors.tolerances,
        notes=(*copy.notes, *priors.notes),
    )


def _find_sets(root: Path, priors: StatedPriors, shape: InputShape) -> list[PointFiles]:
    """The files of every set that the owner's file names, and of no other."""
    suffixes = _SUFFIXES[len(shape)]
    named = {_lower_suffix(name, suffixes): name for name in priors.names}
    named |= {name: name for name in priors.names}
    entries: dict[str, Path] = {}
    for entry in visible(root, NO_POINTS[1:]):
        name = _lower_suffix(composed(entry.name), suffixes)
        if name not in named and entry.is_file() and entry.suffix.lower() in suffixes:
            name = composed(entry.stem)
        if name not in named:
            raise UserError(
                f"{entry} is not a set that {priors.file} names ({', '.join(priors.names)}), as "
                f"{_forms('', shape)}; nothing else may lie there.",
                "folder-layout",
            )
        if named[name] in entries:
            raise UserError(
                f"The set {name!r} is both {entries[named[name]]} and {entry}; only one may.",
                "files-contradict",
            )
        entries[named[name]] = entry
    if missing := [name for name in priors.names if name not in entries]:
        raise UserError(
            f"{root} holds no set {missing[0]!r}; {priors.file} names it, so "
            f"{_forms(missing[0], shape)} is needed.",
            "set-missing",
        )
    return [PointFiles.at(entries[name], shape) for name in priors.names]


def _lower_suffix(name: str, suffixes: Sequence[str]) -> str:
    """``jan.csv`` for ``jan.CSV``; names with none of the ``suffixes`` stay as they are."""
    path = Path(name)
    return f"{path.stem}{path.suffix.lower()}" if path.suffix.lower() in suffixes else name


# Class priors of sets as their owner writes them: shares or intervals, or counts of labels.

LARGEST_TOLERANCE = 0.05
"""No sum of class priors may be further from 1 than this, however coarsely they are rounded."""
_FLOATING = 1e-9
"""Errors of floating point in a sum are below this."""
_COMMA = re.compile(r",(?=\d)")
_INTERVAL = re.compile(r"(\d*\.?\d+)\s*[-–]\s*(\d*\.?\d+)")


@dataclass(frozen=True)
class StatedPriors:
    """What an owner's file says of its sets.

    Attributes
    ----------
    tolerances : ``(M,)``, how far the sum of a row may be from 1 by rounding.
    counts : ``(M, K)``, labels of each class, if the file has these.
    """

    file: str
    names: tuple[str, ...]
    posterior: Dirichlet
    tolerances: Floats
    notes: tuple[str, ...]
    counts: Floats | None = None

    def with_sizes(self, sizes: Ints) -> StatedPriors:
        """The same by the sets' sizes ``(M,)``: counts of all points of a set are exact, others
        those of a sample, with Jeffreys' prior."""
        if self.counts is None:
            return self
        totals = self.counts.sum(axis=1)
        whole = totals == sizes
        sampled, notes = totals[~whole], [*self.notes]
        if whole.any():
            notes.append(
                f"the counts of {whole.sum()} of {len(whole)} sets are of all their points"
            )
        if len(sampled):
            notes.append(
                f"the class shares of {len(sampled)} sets are estimates from {sampled.min():.0f} "
                f"to {sampled.max():.0f} labels per set, by Jeffreys' prior"
            )
        means, worth = self.posterior.means.copy(), self.posterior.concentrations.copy()
        means[whole] = self.counts[whole] / totals[whole, None]
        worth[whole] = np.inf
        return replace(self, posterior=Dirichlet(means, worth), notes=(*notes,))


def read_stated_priors(folder: Path, class_names: list[str]) -> StatedPriors:
    """Read ``priors.csv`` or ``counts.csv`` in ``folder``; one of them must be there.

    The first column is ``set``, the others are the classes by name, or by number from 0, in any
    order. In ``priors.csv`` a cell is a share or an interval ``0.2-0.4``; decimals may follow a
    comma. In ``counts.csv`` it is a number of points with a known label: of all points of the set,
    or of some that were chosen at random.

    Rows that sum to 1 within what rounding explains are divided by their sum; the others are left
    as they are, for :func:`~fedul_flwr.data.set_priors.check_sets` to refuse.
    """
    file, counted = find_entry(folder, PRIORS_FILE), find_entry(folder, COUNTS_FILE)
    if file.exists() and counted.exists():
        raise OwnDataError(f"{file} and {counted} both exist; only one may.", "files-contradict")
    if not file.exists() and not counted.exists():
        raise OwnDataError(
            f"{file} is missing; it names the sets and their class shares "
            f"({COUNTS_FILE} may take its place).",
            "file-missing",
        )
    file = counted if counted.exists() else file
    rows, notes = read_rows(file)
    numbers = list(map(str, range(len(class_names))))
    listed = numbers if sorted(rows[0][1:]) == sorted(numbers) else class_names
    if rows[0][0] != "set" or sorted(rows[0][1:]) != sorted(listed) or len(rows) == 1:
        raise OwnDataError(
            f"{file} must begin with the header 'set,{','.join(class_names)}', in any order of the "
            "classes, and have a row for each set.",
            "priors-header",
        )
    names = tuple(row[0] for row in rows[1:])
    refuse_twice(names, str(file))
    order = [rows[0].index(name, 1) for name in listed]
    cells = [[row[column] for column in order] for row in rows[1:]]
    if file == counted:
        counts = np.array([[_count(file, cell) for cell in row] for row in cells], np.float64)
        tolerances = np.full(len(names), SUM_TOLERANCE)
        posterior = Dirichlet.from_counts(counts)
        return StatedPriors(file.name, names, posterior, tolerances, notes, counts)
    # Shares are at most 1, so that a comma in one can only stand before decimals.
    plain = [[_COMMA.sub(".", cell) for cell in row] for row in cells]
    return _from_shares(file, names, plain, notes)


def sum_tolerance(cells: list[str]) -> float:
    """How far the sum of a row may be from 1: K values rounded to d decimals, K · 0.5 · 10^-d.

    d is that of the cell with most decimals. At least :data:`SUM_TOLERANCE`, at most
    :data:`LARGEST_TOLERANCE`.
    """
    exponents = [Decimal(cell).as_tuple().exponent for cell in cells]
    digits = max(-exponent for exponent in exponents if isinstance(exponent, int))
    return min(max(len(cells) * 0.5 * 10.0**-digits, SUM_TOLERANCE), LARGEST_TOLERANCE)


def _from_shares(
    file: Path, names: tuple[str, ...], cells: list[list[str]], notes: tuple[str, ...]
) -> StatedPriors:
    rows, tolerances, rounded, intervals = [], [], [], []
    for name, row in zip(names, cells, strict=True):
        low, high = np.array([_ends(file, cell) for cell in row]).T
        tolerance = SUM_TOLERANCE
        if (low != high).any():
            if (low > high).any() or not low.sum() - tolerance <= 1 <= high.sum() + tolerance:
                raise _wrong_cell(file, ", ".join(row), "intervals allow a sum of 1")
            priors = Dirichlet.from_intervals(low[None], high[None])
            worth = float(priors.concentrations[0])
            intervals.append(f"the intervals of set {name!r} are worth {worth:.3g} labels")
        else:
            tolerance = sum_tolerance(row)
            off = abs(low.sum() - 1)
            # Sums that differ by floating point alone keep the numbers as they are.
            if _FLOATING < off <= tolerance + _FLOATING and (low >= 0).all():
                rounded.append((off, tolerance))
                low = low / low.sum()
            priors = Dirichlet.exact(low[None])
        rows.append(priors)
        tolerances.append(tolerance)
    if rounded:
        off, tolerance = max(rounded)
        notes = (
            *notes,
            f"the class shares of {len(rounded)} of {len(names)} sets do not sum to 1 exactly and "
            f"were divided by their sum (off by at most {off:.2g}; rounding explains "
            f"{tolerance:.2g})",
        )
    posterior = Dirichlet(
        np.concatenate([row.means for row in rows]),
        np.concatenate([row.concentrations for row in rows]),
    )
    return StatedPriors(file.name, names, posterior, np.array(tolerances), (*notes, *intervals))


def _count(file: Path, cell: str) -> int:
    if not cell.isascii() or not cell.isdigit():
        raise _wrong_cell(file, cell, "counts are whole numbers, 0 or more")
    return int(cell)


def _ends(file: Path, cell: str) -> tuple[float, float]:
    """Ends of an interval; a number is both."""
    if interval := _INTERVAL.fullmatch(cell):
        return float(interval[1]), float(interval[2])
    try:
        value = float(Decimal(cell))
    except InvalidOperation:
        value = math.nan
    if not math.isfinite(value):
        raise _wrong_cell(file, cell, "priors are finite numbers, or intervals such as 0.2-0.4")
    return value, value


def _wrong_cell(file: Path, cell: str, rule: str) -> OwnDataError:
    return OwnDataError(f"{file} holds {cell!r}; {rule}.", "priors-cell")


# Points of which some have labels.


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
    root = _data_folder(path, f"points, and {LABELS_FILE} for those that have a label")
    inside = find_entry(root, LABELS_FILE)
    labels_file = user_path(known_labels) if known_labels else inside
    if inside.exists() and labels_file != inside:
        raise OwnDataError(
            f"{inside} and known-labels = {known_labels} both give labels; only one may.",
            "files-contradict",
        )
    by_folder = _has_class_folders(root, class_names, form, labels_file)
    apart = (inside, labels_file, find_entry(root, UNITS_FILE))
    points = _find_points(root, apart, input_shape)
    copy = _decoded_copy([points], input_shape, table)
    names = list(map(composed, points.names(len(copy.inputs))))
    notes: tuple[str, ...] = ()
    if by_folder:
        of_classes = [entry for entry in visible(root) if entry.is_dir()]
        refuse_shared({folder.name: list_images(folder) for folder in of_classes})
        classes = {name: k for k, name in enumerate(class_names)}
        of_folders = [classes.get(name.partition("/")[0], UNLABELED) for name in names]
        labels = np.array(of_folders, dtype=np.int64)
    elif known_labels or labels_file.exists():
        labels, notes = _read_labels(labels_file, names, class_names, points)
    else:
        labels = np.full(len(names), UNLABELED, dtype=np.int64)
        folders = f", and no folder is called {' or '.join(class_names)}"
        folders = "" if points.is_table else folders
        notes = (f"no point has a label, as there is no {labels_file.name}{folders}",)
    order = copy.order
    return PartlyLabeledPoints(
        inputs=copy.inputs,
        points=order,
        labels=labels[order],
        new=np.zeros(len(order), dtype=np.bool_),
        names=tuple(names[point] for point in order),
        notes=(*copy.notes, *notes),
    )


def _has_class_folders(
    root: Path, class_names: Sequence[str], form: str, labels_file: Path
) -> bool:
    """Whether folders define the labels; refuses ambiguous cases, and folders of other names."""
    if form == "files":
        return False
    entries = visible(root, [LABELS_FILE])
    folders = {composed(entry.name): entry for entry in entries if entry.is_dir()}
    classes = [folders[name] for name in (*class_names, UNLABELED_FOLDER) if name in folders]
    odd = [entry for entry in entries if entry not in classes]
    has_classes = bool(folders.keys() & set(class_names))
    if form == "auto" and (not has_classes or (odd and labels_file.exists())):
        return False
    if odd or not has_classes or labels_file.exists():
        raise OwnDataError(
            f"{root} holds {odd[0].name if odd else 'class folders'}, and may hold folders called "
            f"{', '.join(class_names)} and {UNLABELED_FOLDER} alone, without {labels_file.name}; "
            "if folders are no classes, say format = 'files' in the node config.",
            "folder-layout",
        )
    return True


def _find_points(root: Path, apart: Collection[Path], shape: InputShape) -> PointFiles:
    """The files below ``root``, all images or one table."""
    entries = [entry for entry in visible(root) if entry not in apart]
    tables = [entry for entry in entries if entry.suffix.lower() in _SUFFIXES[len(shape)]]
    if len(shape) > 1 and not tables:
        return PointFiles.at(root, shape, apart)
    if len(entries) != 1 or not tables:
        raise UserError(
            f"{root} holds {len(entries)} files or folders; besides {LABELS_FILE} there must be "
            f"one of {_forms('', shape)}.",
            "folder-layout",
        )
    return PointFiles.at(tables[0], shape)


def _read_labels(
    file: Path, names: Sequence[str], class_names: Sequence[str], points: PointFiles
) -> tuple[Ints, tuple[str, ...]]:
    """The label of each of ``names``, ``-1`` for none, and a note if the file is unusual."""
    labels = np.full(len(names), UNLABELED, dtype=np.int64)
    rows, notes = read_rows(file)
    refuse_twice(names, "The folder of images")
    numbers = {name: index for index, name in enumerate(names)}
    classes = {name: k for k, name in enumerate(class_names)}
    # Windows and `find` write a path as 2024\x.png or ./2024/x.png.
    named = [
        row[0] if row[0] in numbers else row[0].replace("\\", "/").removeprefix("./")
        for row in rows[1:]
    ]
    if not points.is_table and not numbers.keys() >= set(named):  # by a link
        of_file = {identity(path): name for path, name in zip(points.files, names, strict=True)}
        named = [of_file.get(identity(points.path / name), name) for name in named]
    odd = [name for name in named if name not in numbers]
    if odd or rows[0] != ["name", "label"]:
        what = f"names {odd[0]!r}" if odd else f"has the columns {', '.join(rows[0])}"
        raise OwnDataError(
            f"{file} {what}; its columns are name and label, and names are paths of images in the "
            "folder, or row numbers from 0.",
            "labels-file-wrong",
        )
    refuse_twice(named, str(file))
    for name, (_, label) in zip(named, rows[1:], strict=True):
        number = class_of_cell(label, classes)
        if number is None:
            raise OwnDataError(
                f"{file} gives {name!r} the label {label!r}; it must be one of "
                f"{', '.join(class_names)}, or empty.",
                "label-unknown",
            )
        labels[numbers[name]] = number
    return labels, notes


def survey_tables(folder: Path, options: TableOptions) -> Iterator[str]:
    """Lines about the tables in an owner's folder, for its eyes only: columns used and left out,
    and what each has."""
    used: dict[str, None] = {}
    left_out: dict[str, None] = {}
    tables: list[Table] = []
    for path in visible(folder, NO_POINTS):
        if path.suffix.lower() not in _SUFFIXES[0]:
            continue
        with own_data():
            table = open_table(path, options)
            label = usual_label(table.names, options.label)
            features = [name for name in table.names if name != label]
            if options.text:
                features = [options.text]
            elif options.columns is not None and {*options.columns.names} <= {*table.names}:
                features = [*options.columns.names]
                tables.append(table)
        used |= dict.fromkeys(features)
        left_out |= dict.fromkeys(name for name in table.names if name not in features)
    if used:
        yield f"columns used: {', '.join(used)}"
    if left_out:
        yield f"columns left out: {', '.join(left_out)}"
    if tables and options.columns:
        yield f"missing cells are filled (missing = {options.missing!r}), if the run has no fill"
        for column in options.columns.columns:
            yield _in_short(tables, column)


def _in_short(tables: Sequence[Table], column: Column) -> str:
    """Least, quartiles and largest number of a column, or rows of its categories, and gaps."""
    width = np.arange(len(column.features))
    values = np.concatenate([values_of(table, [column], width) for table in tables])
    present = values[~np.isnan(values[:, 0])]
    parts = [f"{len(values) - len(present)} of {len(values)} missing"]
    if column.categories is not None:
        counts = zip(column.values, present.sum(axis=0), strict=True)
        parts.insert(0, ", ".join(f"{value} {count:.0f}" for value, count in counts))
    elif len(present):
        numbers = [f"{number:.4g}" for number in np.quantile(present, np.linspace(0, 1, 5))]
        parts.insert(0, f"{numbers[0]} | {' | '.join(numbers[1:4])} | {numbers[4]}")
    if column.bounds is not None:
        parts.append(f"allowed {column.bounds[0]:g} to {column.bounds[1]:g}")
    steps = {table.units.get(column.name, (1.0, 0.0)) for table in tables} - {(1.0, 0.0)}
    parts += [f"after your numbers times {factor:g} plus {more:g}" for factor, more in steps]
    unit = f" in {column.unit}" if column.unit else ""
    return f"column {column.name}{unit}: {'; '.join(parts)}"
