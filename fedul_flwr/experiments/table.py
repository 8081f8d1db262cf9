"""A paper's table: a Python file with its columns, its rows and the settings of each.

The file defines ``TABLE``. Its path below the folder of all tables, with dashes and without its
ending, is its name: ``fedul/table-1`` is ``fedul/table_1.py``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Literal

from fedul_flwr.config.base import nearest
from fedul_flwr.config.user_files import attribute, naming, read_text, user_path
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.metrics import METRICS
from fedul_flwr.experiments.search_space import Search
from fedul_flwr.experiments.trial_plan import Overrides, refuse_one_folder

Size = Literal["full", "quick"]
SIZES: tuple[Size, ...] = ("full", "quick")
Figure = float | tuple[float, float]
"""A paper's mean, or its mean and standard deviation."""
START_FROM = "start-from"
"""Setting with the weights that runs start from."""


@dataclass(frozen=True)
class Column:
    """A column at one size.

    Attributes
    ----------
    name : its name; no comma.
    settings : flat settings that all rows share. A row whose method does not use one leaves it out.
    rows : flat settings of each row alone; they win over the shared ones.
    clients : number of clients, at least 1.
    start : settings of the run whose model the runs start from; ``start-from`` among ``settings``
        names that run.
    """

    name: str
    settings: Overrides
    rows: Mapping[str, Overrides]
    clients: int
    start: Overrides | None = None

    def __post_init__(self) -> None:
        if self.start is not None and not str(self.settings.get(START_FROM)).startswith("runs/"):
            raise UserError(
                f"Column {self.name!r} starts from a run that {START_FROM} does not name: write "
                f"a path below runs/.",
                "table-file-wrong",
            )


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    title, source : what it shows; the paper and its number there.
    measures : names of :data:`~fedul_flwr.experiments.metrics.METRICS`.
    columns : yields the columns of full size, or with True those of quick runs; None if a benchmark
        measures the table.
    paper : the paper's figures by measure, column and row.
    note : what a reader must know to compare the figures.
    unranked : rows without a mean rank, as they learn from more than the others.
    search : what ``fedul-flwr tune`` tries.
    chosen_with : rows that train as another one, and so have the settings that its search chose.
    benchmark : command that measures a table without ``columns``.
    name, file : set by :func:`read_table`.
    """

    title: str
    source: str
    measures: Sequence[str]
    columns: Callable[[bool], Iterable[Column]] | None = None
    paper: Mapping[str, Mapping[str, Mapping[str, Figure]]] = field(default_factory=dict)
    note: str = ""
    unranked: Collection[str] = ()
    search: Search = field(default_factory=Search)
    chosen_with: Mapping[str, str] = field(default_factory=dict)
    benchmark: str = ""
    name: str = ""
    file: Path = Path()

    @cached_property
    def by_size(self) -> Mapping[Size, Mapping[str, Column]]:
        """The columns by size and name; of a benchmark those with figures of the paper."""
        if self.columns is not None:
            of_size = {size: list(self.columns(size == "quick")) for size in SIZES}
            refuse_one_folder("Columns", [one.name for one in of_size["full"]])
            return {size: {one.name: one for one in columns} for size, columns in of_size.items()}
        rows: dict[str, dict[str, Overrides]] = {}
        for of_measure in self.paper.values():
            for column, figures in of_measure.items():
                rows.setdefault(column, {}).update({row: {} for row in figures})
        measured = {name: Column(name, {}, of_column, 0) for name, of_column in rows.items()}
        return dict.fromkeys(SIZES, measured)

    def column(self, name: str, size: Size = "full") -> Column:
        """A column at one size."""
        return self.by_size[size][name]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.by_size["full"])

    @property
    def rows(self) -> list[str]:
        """Names of all rows in the order in which the columns have them."""
        return list(dict.fromkeys(row for one in self.by_size["full"].values() for row in one.rows))

    def figure(self, measure: str, column: str, row: str) -> tuple[float, float]:
        """The paper's mean and standard deviation; NaN where it has none."""
        value = self.paper.get(measure, {}).get(column, {}).get(row, math.nan)
        return value if isinstance(value, tuple) else (value, math.nan)


def figures_of(
    rows: Sequence[str], figures: Mapping[str, Sequence[Figure]]
) -> dict[str, dict[str, Figure]]:
    """A paper's figures by column and row, from those of each column in the order of ``rows``."""
    return {column: dict(zip(rows, of, strict=True)) for column, of in figures.items()}


def by_row(
    columns: Sequence[str], figures: Mapping[str, Sequence[Figure]]
) -> dict[str, dict[str, Figure]]:
    """The same from the figures of each row in the order of ``columns``."""
    return {
        column: {row: of_row[position] for row, of_row in figures.items()}
        for position, column in enumerate(columns)
    }


def table_names(experiments: Path) -> list[str]:
    """Names of all tables below a folder."""
    if not (files := _files(experiments)):
        raise UserError(
            f"{experiments} holds no tables: name their folder with --experiments.",
            "folder-missing",
        )
    return sorted(files)


def _files(experiments: Path) -> dict[str, Path]:
    """The Python files below a folder that define ``TABLE``, by the names of their tables."""
    return {
        _name(file.relative_to(experiments)): file
        for file in experiments.rglob("*.py")
        if re.search(r"^TABLE\b", read_text(file) or "", re.MULTILINE)
    }


def _name(path: Path) -> str:
    return path.with_suffix("").as_posix().replace("_", "-")


def tables_of(experiments: Path, name: str) -> list[str]:
    """The table ``name`` alone, or the tables of the folder ``name``.

    A name that is neither is returned as it is: :func:`read_table` refuses it.
    """
    folder = f"{_name(Path(name))}/"
    return sorted(one for one in _files(experiments) if one.startswith(folder)) or [name]


def read_table(experiments: Path, name: str) -> Table:
    """Read the table ``name``, or that of a path ``my_table.py``."""
    if name.endswith(".py"):
        file = user_path(name)
        experiments, named = file.parent, _name(Path(file.name))
    else:
        named = _name(Path(name))
        pick(named, table_names(experiments), "table")
        file = _files(experiments)[named]
    table = replace(attribute(file, "TABLE", Table, experiments), name=named, file=file)
    with naming(file):
        _check(table)
    return table


def pick(wanted: str | None, available: Sequence[str], noun: str) -> list[str]:
    """Names of a list such as ``FedUL,FedPL`` in the order of ``available``; None: all names."""
    if wanted is None:
        return list(available)
    names = [part.strip() for part in wanted.split(",") if part.strip()]
    for name in names or [wanted]:
        if name not in available:
            hint = nearest(name, available) or "."
            raise UserError(
                f"Unknown {noun} {name!r}; there are {', '.join(available)}{hint}", "unknown-name"
            )
    return [name for name in available if name in names]


def _check(table: Table) -> None:
    """Refuse names that no command could tell apart, and names of nothing."""
    for noun, names in (("column", table.names), ("row", table.rows)):
        if comma := next((name for name in names if "," in name), None):
            raise UserError(
                f"The {noun} {comma!r}: a comma separates {noun}s on the command line.",
                "table-file-wrong",
            )
    if table.names != list(table.by_size["quick"]):
        raise UserError("Quick runs have other columns than full size.", "table-file-wrong")
    for measure in (*table.measures, *table.paper):
        pick(measure, list(METRICS), "name")
    for row in (*table.unranked, *chain(*table.chosen_with.items())):
        pick(row, table.rows, "name")
    for of_measure in table.paper.values():
        for column, figures in of_measure.items():
            pick(column, table.names, "name")
            for row in figures:
                pick(row, list(table.column(column).rows), "name")
