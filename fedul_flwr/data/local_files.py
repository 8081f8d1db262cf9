"""Helpers for reading a data owner's folder: tables, CSV files, the decoded copy."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np

from fedul_flwr.config.base import SUM_TOLERANCE
from fedul_flwr.data.cache import build_once, cache_directory
from fedul_flwr.data.csv_files import read_cell, read_csv_rows
from fedul_flwr.data.decode import Images
from fedul_flwr.data.encode import encode, fit, infer_columns
from fedul_flwr.data.formats import Points, composed, find_entry, npz_images
from fedul_flwr.data.safe_files import write_blocks
from fedul_flwr.data.set_priors import Dirichlet
from fedul_flwr.data.tables import Table, TableOptions, Texts, reading_notes
from fedul_flwr.data.types import Floats, InputShape, Ints
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
    """Refuse a folder into which this user cannot write, with an OwnDataError."""
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
    """The points of a file, images, vectors or texts by the ``shape`` of one of them."""
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
        return [inputs.with_bits(options.bits) for inputs in images]
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


# Class priors of sets as their owner writes them: shares or intervals, or counts of labels.

PRIORS_FILE = "priors.csv"
COUNTS_FILE = "counts.csv"
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
                f"class priors of {len(sampled)} sets are estimates from {sampled.min():.0f} to "
                f"{sampled.max():.0f} labels per set, by Jeffreys' prior"
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
    as they are, for :func:`~fedul_flwr.data.set_check.check_sets` to refuse.
    """
    file, counted = find_entry(folder, PRIORS_FILE), find_entry(folder, COUNTS_FILE)
    if file.exists() and counted.exists():
        raise OwnDataError(f"{file} and {counted} both exist; only one may.", "files-contradict")
    if not file.exists() and not counted.exists():
        raise OwnDataError(
            f"{file} is missing; it names the sets and their class priors "
            f"({COUNTS_FILE} may take its place).",
            "file-missing",
        )
    if counted.exists():
        names, cells, notes = _read_cells(counted, class_names)
        priors = _from_counts(counted, names, cells)
    else:
        names, cells, notes = _read_cells(file, class_names)
        # Shares are at most 1, so that a comma in one can only stand before decimals.
        plain = [[_COMMA.sub(".", cell) for cell in row] for row in cells]
        priors = _from_shares(file, names, plain)
    return replace(priors, notes=(*notes, *priors.notes))


def sum_tolerance(cells: list[str]) -> float:
    """How far the sum of a row may be from 1: K values rounded to d decimals, K · 0.5 · 10^-d.

    d is that of the cell with most decimals. At least :data:`SUM_TOLERANCE`, at most
    :data:`LARGEST_TOLERANCE`.
    """
    exponents = [Decimal(cell).as_tuple().exponent for cell in cells]
    digits = max(-exponent for exponent in exponents if isinstance(exponent, int))
    return min(max(len(cells) * 0.5 * 10.0**-digits, SUM_TOLERANCE), LARGEST_TOLERANCE)


def _from_counts(file: Path, names: list[str], cells: list[list[str]]) -> StatedPriors:
    for name, row in zip(names, cells, strict=True):
        for cell in row:
            if not cell.isascii() or not cell.isdigit():
                raise OwnDataError(
                    f"The row of set {name!r} in {file} holds {cell!r}; counts must be whole "
                    "numbers, 0 or more.",
                    "priors-cell",
                )
    counts = np.array([[int(cell) for cell in row] for row in cells], dtype=np.float64)
    posterior = Dirichlet.from_counts(counts)
    tolerances = np.full(len(names), SUM_TOLERANCE)
    return StatedPriors(file.name, tuple(names), posterior, tolerances, (), counts)


def _from_shares(file: Path, names: list[str], cells: list[list[str]]) -> StatedPriors:
    rows, tolerances, rounded, intervals, notes = [], [], [], [], []
    for name, row in zip(names, cells, strict=True):
        ends = [_ends(file, name, cell) for cell in row]
        if any(low != high for low, high in ends):
            low, high = np.array(ends).T
            _check_interval_sums(file, name, low, high)
            priors = Dirichlet.from_intervals(low[None], high[None])
            rows.append(priors)
            tolerances.append(SUM_TOLERANCE)
            intervals.append((name, float(priors.concentrations[0])))
            continue
        shares, tolerance = np.array([low for low, _ in ends]), sum_tolerance(row)
        off = abs(shares.sum() - 1)
        # Sums that differ by floating point alone keep the numbers as they are.
        if _FLOATING < off <= tolerance + _FLOATING and (shares >= 0).all():
            rounded.append((off, tolerance))
            shares = shares / shares.sum()
        rows.append(Dirichlet.exact(shares[None]))
        tolerances.append(tolerance)
    if rounded:
        off, tolerance = max(rounded)
        notes.append(
            f"the class priors of {len(rounded)} of {len(names)} sets do not sum to 1 exactly and "
            f"were divided by their sum (off by at most {off:.2g}; rounding explains "
            f"{tolerance:.2g})"
        )
    for name, worth in intervals:
        notes.append(f"the intervals of set {name!r} are worth {worth:.3g} labels")
    posterior = Dirichlet(
        np.concatenate([row.means for row in rows]),
        np.concatenate([row.concentrations for row in rows]),
    )
    return StatedPriors(file.name, tuple(names), posterior, np.array(tolerances), tuple(notes))


def _check_interval_sums(file: Path, name: str, low: Floats, high: Floats) -> None:
    turned = (low > high).any()
    if turned or low.sum() > 1 + SUM_TOLERANCE or high.sum() < 1 - SUM_TOLERANCE:
        raise OwnDataError(
            f"The intervals of set {name!r} in {file} allow sums from {low.sum():.4g} to "
            f"{high.sum():.4g}; class priors sum to 1.",
            "priors-cell",
        )


def _ends(file: Path, name: str, cell: str) -> tuple[float, float]:
    """Ends of an interval; a number is both."""
    if interval := _INTERVAL.fullmatch(cell):
        return float(interval[1]), float(interval[2])
    try:
        value = float(Decimal(cell))
    except InvalidOperation:
        value = math.nan
    if not math.isfinite(value):
        raise OwnDataError(
            f"The row of set {name!r} in {file} holds {cell!r}; priors must be finite numbers, or "
            "intervals such as 0.2-0.4.",
            "priors-cell",
        )
    return value, value


def _read_cells(
    file: Path, class_names: list[str]
) -> tuple[list[str], list[list[str]], tuple[str, ...]]:
    """Names of the sets, their cells with columns in the order of ``class_names``, and how the file
    was read."""
    rows, note = read_rows(file)
    if rows[0][0] != "set":
        raise OwnDataError(
            f"{file} must begin with the header 'set,{','.join(class_names)}'.", "priors-header"
        )
    numbers = [str(k) for k in range(len(class_names))]
    header = rows[0][1:]
    if sorted(header) == sorted(class_names):
        order = [header.index(name) for name in class_names]
    elif sorted(header) == sorted(numbers):
        order = [header.index(name) for name in numbers]
    else:
        raise OwnDataError(
            f"The class columns of {file} are {', '.join(header) or 'missing'}; they must be "
            f"exactly {', '.join(class_names)} in any order.",
            "priors-header",
        )
    if len(rows) == 1:
        raise OwnDataError(f"{file} names no set; one row per set is needed.", "set-missing")
    sets = [row[0] for row in rows[1:]]
    for row in rows[1:]:
        if sets.count(row[0]) > 1:
            raise OwnDataError(
                f"{file} names the set {row[0]!r} more than once; one row per set.", "name-twice"
            )
    notes = (f"{file.name}: {note}",) if note else ()
    return sets, [[row[1 + column] for column in order] for row in rows[1:]], notes
