"""``fedul-flwr deploy columns``: a columns file for the tables of one owner or of several.

Reads cells, and says nothing of them but what the columns file would hold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.arrays import Floats
from fedul_flwr.config.base import column_name
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.csv_files import open_csv, plain_numbers
from fedul_flwr.data.encode import (
    MAX_CATEGORIES,
    Cells,
    category_counts,
    numbers,
    odd_texts,
    truth_counts,
    with_bounds,
)
from fedul_flwr.data.headers import split_header
from fedul_flwr.data.local_data import NO_POINTS
from fedul_flwr.data.safe_files import visible
from fedul_flwr.data.table_files import LABEL_NAMES, open_parquet
from fedul_flwr.data.tables import Table, is_text
from fedul_flwr.errors import UserError

RARE = 5
"""A category in fewer rows of an owner than this may tell of single patients."""
BELOW = 0.5
"""Share of its bound that a cell such as ``<0.5`` becomes: half, as is usual."""
_LONGEST_CATEGORY = 60
_MANY = 10
"""Up to so many texts are categories whatever their number of rows."""
_CODE = re.compile(r"[^\W\d_]{0,3}\d[\w./-]*")
_UNFIT = {
    "column-of-dates": "dates or times",
    "decimal-mark": "numbers with a decimal comma",
}
"""Why a column is neither a number nor a category, by the code of the error that says so."""
_ID_NAME = re.compile(
    r"(?i:(^|[\W_\d])(id|nr|no|number|nummer|mrn|pid|uuid|index)($|[\W_\d]))|I[dD]$"
)


@dataclass
class _Facts:
    """What one column holds at one owner."""

    kind: str
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    is_identifier: bool = False
    bounded: int = 0
    """Cells such as ``<0.5``."""
    truth: Counter[str] = field(default_factory=Counter)
    """Rows of ``true`` and ``false``, if it has nothing else: numbers, or words beside others."""


@dataclass(frozen=True)
class Proposal:
    """A columns file, and what it does not have."""

    columns: Columns
    left_out: Mapping[str, str]
    differences: Sequence[str]
    rare: Mapping[str, Sequence[str]]
    owners: int
    rows: int
    notes: Sequence[str]

    def lines(self) -> Iterator[str]:
        """The report for a reader."""
        yield from self.notes
        owners = "1 owner" if self.owners == 1 else f"{self.owners} owners"
        yield f"Proposed: {len(self.columns.columns)} columns, from {self.rows} rows of {owners}."
        for column in self.columns.columns:
            values = "number" if column.categories is None else ", ".join(column.values)
            if column.below is not None:
                values += f'; a cell such as <2 becomes {2 * column.below:g} ("below")'
            yield f"  {column.name!r}: {values}"
        if self.left_out:
            yield "Left out:"
            yield from (f"  {name!r}: {why}" for name, why in self.left_out.items())
        if self.differences:
            yield "Owners differ in:"
            yield from (f"  {line}" for line in self.differences)
        if any(column.categories for column in self.columns.columns):
            yield "Categories stand in the columns file, and all who take part read them."
        for name, few in self.rare.items():
            yield (
                f"  {name!r}: an owner has fewer than {RARE} rows of {', '.join(few)}; take out "
                "what must not be known."
            )


def propose_columns(folders: Sequence[str | Path], label: str = "") -> Proposal:
    """Propose the columns that all tables in the owners' ``folders`` have."""
    label = column_name(label)
    paths = [user_path(folder) for folder in folders]
    short = [path.name for path in paths]
    names = [path.name if short.count(path.name) == 1 else str(path) for path in paths]
    notes: list[str] = []
    owners = {name: _read_owner(path, notes) for name, path in zip(names, paths, strict=True)}
    columns: list[Column] = []
    left_out: dict[str, str] = {}
    differences: list[str] = []
    rare: dict[str, list[str]] = {}
    for name in dict.fromkeys(column for facts, _ in owners.values() for column in facts):
        facts = {owner: parts[name] for owner, (parts, _) in owners.items() if name in parts}
        if any(one.kind == "category" for one in facts.values()):
            facts = {
                owner: replace(one, kind="category", counts=one.truth) if one.truth else one
                for owner, one in facts.items()
            }
        is_label = name == label or (not label and name in LABEL_NAMES)
        why, difference = ("the label", "") if is_label else _why_left_out(name, facts, [*owners])
        if difference:
            differences.append(f"{name!r}: {difference}")
        if why:
            left_out[name] = why
            continue
        if next(iter(facts.values())).kind == "number":
            is_bounded = any(one.bounded for one in facts.values())
            bare, unit = split_header(name)
            taken = [
                *(n for parts, _ in owners.values() for n in parts),
                *(c.name for c in columns),
            ]
            if bare in taken:
                bare, unit = name, ""
            columns.append(Column(bare, below=BELOW if is_bounded else None, unit=unit or None))
            continue
        total: Counter[str] = sum((one.counts for one in facts.values()), Counter())
        of_codes = _are_codes(total)
        values = sorted(value for value in total if not of_codes or total[value] >= RARE)
        columns.append(Column(name, tuple(values), other=of_codes))
        for value in values:
            at = [owner for owner, one in facts.items() if one.counts[value]]
            if len(at) < len(facts):
                differences.append(f"{name!r}: {value} only at {', '.join(at)}")
            if any(0 < one.counts[value] < RARE for one in facts.values()):
                rare.setdefault(name, []).append(value)
    if not columns:
        reasons = "; ".join(f"{name!r}: {why}" for name, why in [*left_out.items()][:5])
        raise UserError(f"No column is left to propose ({reasons}).", "column-missing")
    rows = sum(count for _, count in owners.values())
    return Proposal(Columns((*columns,)), left_out, differences, rare, len(owners), rows, notes)


def _why_left_out(name: str, facts: Mapping[str, _Facts], owners: Sequence[str]) -> tuple[str, str]:
    """Why a column is no feature, empty if it is one, and how owners differ in it."""
    if not name:
        return "it has no name", ""
    if without := [owner for owner in owners if owner not in facts]:
        return f"not at {', '.join(without)}", f"only at {', '.join(facts)}"
    kinds = {one.kind for one in facts.values()}
    if len(kinds) > 1:
        listed = (f"{one.kind} at {owner}" for owner, one in facts.items())
        return "not the same at all owners", ", ".join(listed)
    [kind] = kinds
    if kind not in ("number", "category"):
        return kind, ""
    total: Counter[str] = sum((one.counts for one in facts.values()), Counter())
    rows = sum(one.rows for one in facts.values())
    if all(len(one.counts) == 1 for one in facts.values()):
        of = "of an owner " if len(total) > 1 else ""
        return f"constant: all rows {of}have the same value", ""
    if any(one.is_identifier for one in facts.values()):
        what = "free text or an identifier" if kind == "category" else "an identifier"
        return f"{what}: every row has another value", ""
    if kind == "number" or _are_codes(total):
        return "", ""
    if max(map(len, total)) > _LONGEST_CATEGORY or len(total) > MAX_CATEGORIES:
        return f"free text: {len(total)} different texts, or long ones", ""
    if len(total) > _MANY and rows < 3 * len(total):
        return f"free text: {len(total)} different texts in {rows} rows", ""
    return "", ""


def _are_codes(total: Counter[str]) -> bool:
    """Whether texts are codes, such as ICD's, of which later rows may have others."""
    frequent = any(count >= RARE for count in total.values())
    return len(total) > _MANY and frequent and all(map(_CODE.fullmatch, total))


def _read_owner(folder: Path, notes: list[str]) -> tuple[dict[str, _Facts], int]:
    """What every column of an owner's tables holds, and the number of rows."""
    import pyarrow as pa  # type: ignore[import-untyped]

    parts: dict[str, list[Any]] = {}
    why: dict[str, str] = {}
    files = _table_files(folder)
    rows = 0
    for file in files:
        table, unfit = _read_file(file, notes)
        rows += len(table)
        why |= unfit
        for name in table.names:
            parts.setdefault(name, []).append(table.column(name))
    for name, part in parts.items():
        if len(part) < len(files):
            why.setdefault(name, f"not in all files of {folder.name}")
    facts = {name: _Facts(reason) for name, reason in why.items()}
    for name in parts.keys() - why.keys():
        kinds = {column.type for column in parts[name]}
        columns = [c.cast(pa.string()) if len(kinds) > 1 else c for c in parts[name]]
        chunks = [chunk for column in columns for chunk in column.chunks]
        facts[name] = _facts(name, pa.chunked_array(chunks, columns[0].type))
    return {name: facts[name] for name in [*parts, *(n for n in why if n not in parts)]}, rows


def _table_files(folder: Path) -> list[Path]:
    entries = visible(folder, NO_POINTS) if folder.is_dir() else []
    suffixes = {entry.suffix.lower() for entry in entries if entry.is_file()}
    if not entries or not suffixes <= {".csv", ".parquet"} or any(map(Path.is_dir, entries)):
        raise UserError(
            f"{folder} must be the folder of an owner, with .csv and .parquet files that have "
            "names of columns, and nothing else.",
            "folder-layout",
        )
    return entries


def _read_file(file: Path, notes: list[str]) -> tuple[Table, dict[str, str]]:
    """A table with plain numbers, and why other columns cannot be read."""
    is_csv = file.suffix.lower() == ".csv"
    table = open_csv(file) if is_csv else open_parquet(file)
    why = dict.fromkeys(table.twice, f"several columns of {file.name} have this name")
    if is_csv:
        names, table = table.names, _readable(table)
        doubtful = "its numbers can be read in two ways, or are written otherwise than others"
        why |= dict.fromkeys((name for name in names if name not in table.names), doubtful)
    if table.note:
        notes.append(f"{file.parent.name}/{file.name}: {table.note}")
    return table, why


def _readable(table: Table) -> Table:
    """The columns of a CSV file whose numbers can be told."""
    with suppress(UserError):
        return plain_numbers(table, table.names)
    readable: list[str] = []
    for name in table.names:
        with suppress(UserError):
            plain_numbers(table, [*readable, name])
            readable.append(name)
    return plain_numbers(replace(table, content=table.content.select(readable)), readable)


def _facts(name: str, column: Any) -> _Facts:
    cells, bounded = with_bounds(Cells(name, "", column), BELOW)
    if 2 * bounded >= len(column):
        cells, bounded = Cells(name, "", column), 0
    try:
        counts = category_counts(cells)
        if counts is None:
            values = numbers(cells)
            facts = _number_facts(name, values[~np.isnan(values)])
            return replace(facts, bounded=bounded, truth=truth_counts(cells))
    except UserError as error:  # its sentence has a cell, which nobody else may read
        return _Facts(_UNFIT.get(error.code) or _not_numbers(cells))
    rows = counts.total()
    is_identifier = len(counts) == rows and (rows >= RARE or bool(_ID_NAME.search(name)))
    return _Facts("category" if rows else "empty", rows, counts, is_identifier)


def _not_numbers(cells: Cells) -> str:
    """How many cells are no numbers, and the form of one: digits are 0, long words are cut off."""
    if not is_text(cells.column.type):
        return f"cells of type {cells.column.type}"
    odd = odd_texts(cells)
    form = re.sub(r"[^\W\d_]{3,}", "…", re.sub(r"\d", "0", odd[0]))[:20]
    return (
        f"{len(odd)} of {len(cells.column)} cells are no numbers, such as {form!r} (digits are 0 "
        "here): write plain numbers, leave these cells empty, or name categories in the columns "
        "file"
    )


def _number_facts(name: str, values: Floats) -> _Facts:
    if not len(values):
        return _Facts("empty")
    if (np.abs(values) > np.finfo(np.float32).max).any():
        return _Facts("numbers that are infinite or too large for float32")
    unique = np.unique(values)
    counts = Counter({str(value): 1 for value in unique[:2]})
    whole = len(unique) == len(values) > 1 and bool((values == np.floor(values)).all())
    counted = len(values) >= 20 and bool(unique[-1] - unique[0] < 2 * len(values))
    rising = len(values) >= 20 and bool((np.diff(values) > 0).all())
    is_identifier = whole and (counted or rising or bool(_ID_NAME.search(name)))
    return _Facts("number", len(values), counts, is_identifier)
