"""Tables of the papers as ``table.toml`` files describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from fedul_flwr.comparison.plan import Overrides, read_runs, slug
from fedul_flwr.config.base import Settings
from fedul_flwr.config.overrides import read_toml
from fedul_flwr.errors import UserError
from fedul_flwr.reproduction.measures import MEASURES

FILE = "table.toml"
Size = Literal["full", "quick"]
Figure = Annotated[list[float], Field(min_length=1, max_length=2)]
"""A mean, and its standard deviation where the paper has one."""


class Column(Settings):
    """One setting of a table."""

    noun = "key"
    page = "experiments/README.md"

    file: str = ""
    """Its experiment, a TOML file that lies beside ``table.toml``; the quick one has the same name
    in ``quick/``. Empty in a table that a benchmark measures."""
    clients: int = Field(default=0, ge=0)
    """Number of clients where the table has another; 0: the table's. ``quick_clients`` wins."""
    runs: str = ""
    """In place of the table's ``runs``; empty: the same. Where quick runs have a file of their own,
    that wins."""
    quick_runs: str = ""
    """In place of the table's ``quick_runs``; empty: the same."""
    paper: dict[str, dict[str, Figure]] = Field(default_factory=dict)
    """The paper's figures by measure and row."""


class TableSettings(Settings):
    """Content of a ``table.toml``."""

    noun = "key"
    page = "experiments/README.md"

    title: str
    """What it shows."""
    source: str
    """Paper and number of the table."""
    measures: list[str] = Field(min_length=1)
    """Of :data:`~fedul_flwr.reproduction.measures.MEASURES`."""
    clients: int = Field(default=0, ge=0)
    """Number of clients."""
    quick_clients: int = Field(default=0, ge=0)
    """Number of clients of quick runs; 0: as many as of full ones."""
    runs: str = ""
    """Rows: a file of named runs, relative to ``table.toml``."""
    quick_runs: str = ""
    """The file for quick runs; empty: the same."""
    row: str = ""
    """In place of ``runs``: name of the only row, the experiments as they are."""
    benchmark: str = ""
    """In place of experiments: command that measures the table."""
    note: str = ""
    """What has to be known to compare."""
    picture: str = ""
    """Column whose errors over rounds are drawn beside the tables; empty: none."""
    columns: dict[str, Column] = Field(min_length=1)
    """By label."""


@dataclass(frozen=True)
class Table:
    """A table and where it is; ``name`` is its folder below the experiments, ``fedul/table-1``."""

    name: str
    folder: Path
    settings: TableSettings

    @property
    def columns(self) -> Mapping[str, Column]:
        """Its columns by label."""
        return self.settings.columns

    def rows_of(self, column: str, size: Size) -> dict[str, Overrides]:
        """Own settings of every row in a column."""
        if self.settings.row:
            return {self.settings.row: {}}
        if self.settings.benchmark:
            measured = self.columns[column].paper.values()
            return {row: {} for figures in measured for row in figures}
        own, shared = self.columns[column], self.settings
        quick = (own.quick_runs or shared.quick_runs) if size == "quick" else ""
        return dict(read_runs(self.folder / (quick or own.runs or shared.runs)))

    def rows(self) -> list[str]:
        """All rows, in the order of the columns."""
        return list(
            dict.fromkeys(row for column in self.columns for row in self.rows_of(column, "full"))
        )

    def experiment(self, column: str, size: Size) -> Path:
        """The TOML file of a column."""
        file = self.folder / self.columns[column].file
        return file.parent / "quick" / file.name if size == "quick" else file

    def num_clients(self, column: str, size: Size) -> int:
        """Clients of a run."""
        full = self.columns[column].clients or self.settings.clients
        return (self.settings.quick_clients or full) if size == "quick" else full


def table_names(experiments: Path) -> list[str]:
    """Names of all tables below a folder.

    Raises
    ------
    UserError
        If there is none.
    """
    found = sorted(path.parent.relative_to(experiments) for path in experiments.rglob(FILE))
    if not found:
        raise UserError(f"{experiments} holds no {FILE}: name the folder with --experiments.")
    return [path.as_posix() for path in found]


def read_table(experiments: Path, name: str) -> Table:
    """Read and check one table.

    Raises
    ------
    UserError
        Naming what there is, or the file and the key that is wrong.
    """
    known = table_names(experiments)
    if name not in known:
        raise UserError(f"Unknown table {name!r}; there are {', '.join(known)}.")
    folder = experiments / name
    try:
        settings = TableSettings.parse(read_toml(folder / FILE))
        table = Table(name, folder, settings)
        _check(table)
    except UserError as error:
        path = folder / FILE
        text = str(error)
        raise UserError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    return table


def pick(wanted: str | None, known: Sequence[str], what: str) -> list[str]:
    """Names of a list such as ``FedUL,FedPL``, in the order of ``known``; None stands for all.

    Raises
    ------
    UserError
        Naming what is not ``known``; ``what`` says what names are of.
    """
    if wanted is None:
        return list(known)
    names = [part.strip() for part in wanted.split(",") if part.strip()]
    for name in names or [wanted]:
        if name not in known:
            raise UserError(f"Unknown {what} {name!r}; there are {', '.join(known)}.")
    return [name for name in known if name in names]


def _check(table: Table) -> None:
    settings = table.settings
    if sum(map(bool, (settings.runs, settings.row, settings.benchmark))) != 1:
        raise UserError("It needs one of the keys runs, row and benchmark.")
    for measure in settings.measures:
        if measure not in MEASURES:
            raise UserError(f"Unknown measure {measure!r}; there are {', '.join(MEASURES)}.")
    if settings.picture and settings.picture not in settings.columns:
        raise UserError(f"Key picture: there is no column {settings.picture!r}.")
    folders: dict[str, str] = {}
    for label, column in settings.columns.items():
        place = f"columns.{label!r}"
        if "," in label:
            raise UserError(f"Key {place}: a comma separates columns on the command line.")
        if settings.benchmark:
            continue
        other = folders.setdefault(slug(label), label)
        if other != label:
            raise UserError(f"Key {place}: its runs would share the directory of {other!r}.")
        for size in ("full", "quick"):
            if not table.experiment(label, size).is_file():
                raise UserError(f"Key {place}.file: {table.experiment(label, size)} is no file.")
        if not table.num_clients(label, "full"):
            raise UserError(f"Key {place}.clients is missing, and so is the table's.")
        rows = table.rows_of(label, "full")
        if comma := next((row for row in rows if "," in row), None):
            raise UserError(f"Row {comma!r}: a comma separates rows on the command line.")
        if lone := set(rows) ^ set(table.rows_of(label, "quick")):
            raise UserError(f"Key {place}: full and quick do not both have row {min(lone)!r}.")
        for measure, figures in column.paper.items():
            if measure not in settings.measures:
                raise UserError(f"Key {place}.paper.{measure}: not a measure of the table.")
            if unknown := [row for row in figures if row not in rows]:
                raise UserError(f"Key {place}.paper.{measure}.{unknown[0]}: there is no such row.")
