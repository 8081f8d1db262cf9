"""The file of a paper's table: its columns, its rows, and the settings of each."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from fedul_flwr.config.base import Scalar, Settings, nearest, unknown_key
from fedul_flwr.config.overrides import flatten, read_toml
from fedul_flwr.config.run_config import default_flat
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.trial import METRICS
from fedul_flwr.experiments.trial_plan import Overrides, read_runs, refuse_one_folder

Size = Literal["full", "quick"]
SIZES: tuple[Size, ...] = ("full", "quick")
CLIENTS = "clients"
"""Key of the number of clients in an override."""
ONLY = "only"
"""Key of the names of rows in an override: columns with it have no other rows."""
Value = tuple[int, str]
"""A value of the matrix: the number of its axis and its name."""


@dataclass(frozen=True)
class Override:
    """Settings of some of a table's columns, or of a row in them.

    Attributes
    ----------
    key : key in the table's file.
    values : the override applies to columns with all of these values.
    settings : flat settings; without a row :data:`CLIENTS` and :data:`ONLY` may be among them.
    row : the row that has the settings; None: all rows share them.
    quick : whether the override applies to quick runs only.
    """

    key: str
    values: frozenset[Value]
    settings: Mapping[str, Any]
    row: str | None = None
    quick: bool = False


@dataclass(frozen=True)
class Column:
    """A column at both sizes.

    Attributes
    ----------
    settings : settings that all rows share.
    rows : own settings of each row.
    clients : number of clients.
    """

    settings: Mapping[Size, Overrides]
    rows: Mapping[Size, Mapping[str, Overrides]]
    clients: Mapping[Size, int]


def expand(content: Mapping[str, Any], rows: Mapping[str, Overrides]) -> dict[str, Column]:
    """Make the columns of a table by their names; the values of the last axis change first.

    Overrides apply in this order, and the later one wins: settings of the table, of a value of the
    matrix, of ``when``, of quick runs. The own settings of a row win over these, and an override
    that names the row wins over its own settings.

    Parameters
    ----------
    content : ``clients``, ``only``, ``settings``, ``matrix``, ``when`` and ``quick`` of the file.
    rows : own settings of every row.
    """
    axes = [list(values) for values in content["matrix"].values()]
    overrides = list(_overrides(content, axes, rows))
    columns: dict[str, frozenset[Value]] = {}
    for names in product(*axes):
        label = " ".join(names)
        if label in columns:
            raise UserError(f"Key matrix: two columns have the name {label!r}.", "name-twice")
        columns[label] = frozenset(enumerate(names))
    _refuse_ineffective(overrides, list(columns.values()), rows)
    return {label: _column(overrides, label, values, rows) for label, values in columns.items()}


def _column(
    overrides: Sequence[Override],
    label: str,
    values: frozenset[Value],
    rows: Mapping[str, Overrides],
) -> Column:
    settings, of_rows, clients = {}, {}, {}
    for size in SIZES:
        shared = _shared(overrides, values, size, rows)
        of_rows[size] = {
            row: {**rows[row], **_merged(overrides, values, size, row)} for row in shared.pop(ONLY)
        }
        number = clients[size] = shared.pop(CLIENTS, None)
        settings[size] = shared
        if number is None:
            raise UserError(
                f"Key clients is missing, and column {label!r} has none of its own.",
                "table-file-wrong",
            )
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise UserError(
                f"Key clients = {number!r} of column {label!r} must be a number above 0.",
                "table-file-wrong",
            )
    return Column(settings, of_rows, clients)


def _overrides(
    content: Mapping[str, Any], axes: Sequence[Sequence[str]], rows: Mapping[str, Overrides]
) -> Iterator[Override]:
    """All overrides in the order in which they apply."""
    for key in (CLIENTS, ONLY):
        if key in content["settings"]:
            raise UserError(
                f"Key settings.{key}: write it above the first table of the file.",
                "table-file-wrong",
            )
    shared = {key: content[key] for key in (CLIENTS, ONLY) if content[key]}
    yield Override(
        "settings", frozenset(), _settings("settings", content["settings"] | shared, rows)
    )
    for number, (axis, of_axis) in enumerate(content["matrix"].items()):
        for value, overrides in of_axis.items():
            where = f"matrix.{axis}.{value!r}"
            yield Override(where, frozenset({(number, value)}), _settings(where, overrides, rows))
    for text, overrides in content["when"].items():
        where = f"when.{text!r}"
        values, row = _parse_values(text, axes, list(rows), where)
        settings = _settings(where, overrides, rows)
        for key in {CLIENTS, ONLY} & settings.keys() if row else ():
            raise UserError(f"Key {where}.{key}: columns have it, rows do not.", "table-file-wrong")
        yield Override(where, values, settings, row)
    quick = {key: value for key, value in content["quick"].items() if key not in ("when", "start")}
    settings = flat_settings("quick", quick, CLIENTS)
    yield Override("quick", frozenset(), settings, quick=True)
    for text, overrides in part(content["quick"], "quick.when").items():
        where = f"quick.when.{text!r}"
        values, row = _parse_values(text, axes, list(rows), where)
        settings = flat_settings(where, overrides, *(() if row else (CLIENTS,)))
        yield Override(where, values, settings, row, quick=True)


def _settings(
    where: str, content: Mapping[str, Any], rows: Mapping[str, Overrides]
) -> dict[str, Any]:
    """Flat settings of an override, which may have :data:`CLIENTS` and :data:`ONLY`."""
    settings: dict[str, Any] = {
        **flat_settings(where, {k: v for k, v in content.items() if k != ONLY}, CLIENTS)
    }
    if ONLY in content:
        if not isinstance(content[ONLY], list):
            raise UserError(
                f"Key {where}.only = {content[ONLY]!r} must be a list of rows.", "table-file-wrong"
            )
        _require(f"Key {where}.only", content[ONLY], rows, "row")
        settings[ONLY] = content[ONLY]
    return settings


def part(content: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The table at ``where`` in ``content``, empty if there is none."""
    table = content.get(where.rpartition(".")[2], {})
    if not isinstance(table, dict):
        raise UserError(f"Key {where} = {table!r} must be a table.", "table-file-wrong")
    return table


def flat_settings(where: str, content: Any, *others: str) -> dict[str, Scalar]:
    """Flatten the settings at ``where`` of the file; the keys ``others`` are allowed, too."""
    if not isinstance(content, dict):
        raise UserError(
            f"Key {where} = {content!r} must be a table of settings.", "table-file-wrong"
        )
    names = {*default_flat(), *others}
    try:
        flat = flatten(content)
        for key in flat:
            if key not in names:
                raise unknown_key(key, names)
    except UserError as error:
        raise UserError(f"Key {where}: {error}", error.code, **error.values) from None
    return flat


def _parse_values(
    text: str, axes: Sequence[Sequence[str]], rows: Sequence[str], where: str
) -> tuple[frozenset[Value], str | None]:
    """The values and the row that ``MNIST M=10 FedUL`` names, in the order of the axes."""
    names = [*axes, rows]
    readings = list(_readings(text, names))
    if not readings:
        values = "; ".join(", ".join(values) for values in names)
        raise UserError(
            f"Key {where} names no values of the matrix and no row: {values}.", "unknown-name"
        )
    if len(readings) > 1:
        raise UserError(
            f"Key {where} can be read in {len(readings)} ways: rename a value.", "table-file-wrong"
        )
    row = next((name for number, name in readings[0] if number == len(axes)), None)
    return frozenset(value for value in readings[0] if value[0] < len(axes)), row


def _readings(
    text: str, axes: Sequence[Sequence[str]], first: int = 0
) -> Iterator[frozenset[Value]]:
    for number in range(first, len(axes)):
        for value in axes[number]:
            if text == value:
                yield frozenset({(number, value)})
            elif text.startswith(f"{value} "):
                for rest in _readings(text[len(value) + 1 :], axes, number + 1):
                    yield rest | {(number, value)}


def _merged(
    overrides: Sequence[Override], values: frozenset[Value], size: Size, row: str | None = None
) -> dict[str, Any]:
    """Settings of a column's overrides that name ``row``, or of those that name no row."""
    merged: dict[str, Any] = {}
    for one in overrides:
        if one.row == row and one.values <= values and (size == "quick" or not one.quick):
            merged |= one.settings
    return merged


def _shared(
    overrides: Sequence[Override],
    values: frozenset[Value],
    size: Size,
    rows: Mapping[str, Overrides],
) -> dict[str, Any]:
    """Settings that the rows of a column share, and their names under :data:`ONLY`."""
    shared = _merged(overrides, values, size)
    return {**shared, ONLY: [row for row in rows if row in shared.get(ONLY, rows)]}


def _refuse_ineffective(
    overrides: Sequence[Override],
    columns: Sequence[frozenset[Value]],
    rows: Mapping[str, Overrides],
) -> None:
    """Refuse a setting that every column would have without its override, too."""

    def effect(
        others: Sequence[Override], values: frozenset[Value], size: Size, row: str | None
    ) -> Any:
        shared = _shared(others, values, size, rows)
        if row is None:
            return shared
        settings = {**rows[row], **_merged(others, values, size, row)}
        return {**shared, **settings} if row in shared[ONLY] else None

    for position, one in enumerate(overrides):
        for key in one.settings:
            without = [*overrides]
            rest = {k: v for k, v in one.settings.items() if k != key}
            without[position] = replace(one, settings=rest)
            if all(
                effect(overrides, *column, one.row) == effect(without, *column, one.row)
                for column in product(columns, SIZES)
            ):
                raise UserError(
                    f"Key {one.key}: {key} changes no column: leave it out.", "key-without-effect"
                )


PaperFigure = Annotated[
    list[float],
    Field(min_length=1, max_length=2),
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
]
"""A mean, or a list of the mean and the standard deviation if the paper has one."""
START_FROM = "start-from"
"""Setting with the weights that runs start from."""
_VALUE = re.compile(r"\{([\w.-]+)\}")


class TableSettings(Settings):
    """Content of a table's file."""

    noun = "key"
    page = "docs/reproduce.md"

    title: str
    """Title of the table."""
    source: str
    """Paper and number of the table."""
    measures: list[str] = Field(min_length=1)
    """Names of :data:`~fedul_flwr.experiments.trial.METRICS`."""
    note: str = ""
    """Remarks for comparing the figures."""
    picture: str = ""
    """Column whose errors over rounds are plotted; empty: no plot."""
    benchmark: str = ""
    """Command that measures the table; such a table has no runs."""
    clients: int = Field(default=0, ge=0)
    """Number of clients."""
    rows: str | dict[str, dict[str, Any]] = ""
    """Own settings of every row by name, or a file of named runs, relative to this file."""
    only: list[str] = Field(default_factory=list)
    """Rows of such a file that the table has; empty: all."""
    unranked: list[str] = Field(default_factory=list)
    """Rows without a mean rank, as they learn from more than the others."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of all columns."""
    matrix: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Settings by axis and value. A column is a value of each axis, in the order of the axes."""
    when: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of columns with all named values, or of the named row in them."""
    quick: dict[str, Any] = Field(default_factory=dict)
    """Settings of quick runs; it may have ``when``, too."""
    start: dict[str, Any] = Field(default_factory=dict)
    """Settings of the runs whose models the columns start from, on top of the column's."""
    paper: dict[str, dict[str, dict[str, PaperFigure]]] = Field(default_factory=dict)
    """The paper's figures by metric, column and row."""
    search: dict[str, Any] = Field(default_factory=dict)
    """The search of ``fedul-flwr tune`` for this table alone, as in a ``search.toml``."""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    experiments : folder of all tables.
    name : path of the file below ``experiments`` without its ending, ``fedul/table-1``.
    settings : content of the file.
    columns : columns by name; those of a table that a benchmark measures have no settings.
    """

    experiments: Path
    name: str
    settings: TableSettings
    columns: Mapping[str, Column]

    @property
    def file(self) -> Path:
        """File of the table."""
        return table_file(self.experiments, self.name)

    def rows_of(self, column: str, size: Size) -> Mapping[str, Overrides]:
        """Own settings of every row of a column."""
        return self.columns[column].rows[size]

    def rows(self) -> list[str]:
        """All rows in the order in which the columns have them."""
        return list(
            dict.fromkeys(row for column in self.columns for row in self.rows_of(column, "full"))
        )

    def settings_of(self, column: str, size: Size) -> dict[str, Scalar]:
        """Settings that the rows of a column share.

        ``{KEY}`` in ``start-from`` is replaced by the number that the setting KEY has.
        """
        settings = dict(self.columns[column].settings[size])
        if START_FROM in settings:
            settings[START_FROM] = _VALUE.sub(
                lambda match: _number(settings, match[1]), str(settings[START_FROM])
            )
        return settings

    def start_of(self, size: Size) -> dict[str, Scalar]:
        """Own settings of the runs whose models the columns start from."""
        settings = flat_settings("start", self.settings.start)
        if size == "quick":
            settings |= flat_settings("quick.start", part(self.settings.quick, "quick.start"))
        return settings

    def num_clients(self, column: str, size: Size) -> int:
        """Number of clients of a column."""
        return self.columns[column].clients[size]

    def paper(self, metric: str, column: str, row: str) -> Sequence[float]:
        """The paper's mean and, if it has one, standard deviation; empty without a figure."""
        return self.settings.paper.get(metric, {}).get(column, {}).get(row, ())


def table_names(experiments: Path) -> list[str]:
    """Names of all tables below a folder: the TOML files that have a title."""
    files = sorted(experiments.rglob("*.toml"))
    tables = [file for file in files if _is_table(read_toml(file))]
    if not tables:
        raise UserError(
            f"{experiments} holds no tables: name their folder with --experiments.",
            "folder-missing",
        )
    return sorted(file.relative_to(experiments).with_suffix("").as_posix() for file in tables)


def tables_of(experiments: Path, name: str) -> list[str]:
    """The table ``name`` alone, or the tables of the folder ``name``.

    A name that is neither is returned as it is: :func:`read_table` refuses it.
    """
    if table_file(experiments, name).is_file():
        return [name]
    folder = f"{name.rstrip('/')}/"
    return [one for one in table_names(experiments) if one.startswith(folder)] or [name]


def _number(settings: Overrides, key: str) -> str:
    value = settings.get(key)
    if isinstance(value, int | float):
        return f"{value:g}"
    raise UserError(
        f"Key start-from: {{{key}}} is not a setting with a number.", "table-file-wrong"
    )


def _is_table(content: Mapping[str, Any]) -> bool:
    return isinstance(content.get("title"), str)


def table_file(experiments: Path, name: str) -> Path:
    """File of the table ``name``."""
    return experiments / f"{name}.toml"


def read_table(experiments: Path, name: str) -> Table:
    """Read and check one table."""
    file = table_file(experiments, name)
    content = read_toml(file) if file.is_file() else {}
    if not _is_table(content):
        names = table_names(experiments)
        hint = nearest(name, names) or "."
        raise UserError(
            f"Unknown table {name!r}; there are {', '.join(names)}{hint}", "unknown-name"
        )
    try:
        settings = TableSettings.parse(content)
        table = Table(experiments, name, settings, _columns(file, settings))
        _check(table)
    except UserError as error:
        text = str(error)
        raise UserError(
            text if text.startswith(str(experiments)) else f"{file}: {text}",
            error.code,
            **error.values,
        ) from None
    return table


def _columns(file: Path, settings: TableSettings) -> dict[str, Column]:
    if bool(settings.rows) == bool(settings.benchmark):
        raise UserError("The file needs one of the keys rows and benchmark.", "table-file-wrong")
    if settings.benchmark:
        if idle := {"clients", "settings", "matrix", "when", "quick"} & settings.model_fields_set:
            raise UserError(
                f"Key {min(idle)} has no effect with benchmark: leave it out.", "key-without-effect"
            )
        return _measured(settings)
    if not settings.matrix:
        raise UserError("Key matrix is missing: its values name the columns.", "table-file-wrong")
    if isinstance(settings.rows, str):
        rows: Mapping[str, Overrides] = read_runs(file.parent / settings.rows)
    else:
        rows = {
            row: flat_settings(f"rows.{row!r}", content) for row, content in settings.rows.items()
        }
    return expand(settings.model_dump(by_alias=True), rows)


def _measured(settings: TableSettings) -> dict[str, Column]:
    """The columns and rows that the paper has figures for."""
    measured: dict[str, dict[str, Overrides]] = {}
    for columns in settings.paper.values():
        for column, figures in columns.items():
            measured.setdefault(column, {}).update({row: {} for row in figures})
    return {
        column: Column({}, dict.fromkeys(SIZES, rows), dict.fromkeys(SIZES, 0))
        for column, rows in measured.items()
    }


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


def _check_start(table: Table) -> None:
    prefix = f"runs/{table.name}/"
    settings = table.settings.start
    for size in SIZES if not table.settings.benchmark else ():
        columns = [table.settings_of(label, size) for label in table.columns]
        started = [one for one in columns if str(one.get(START_FROM, "")).startswith(prefix)]
        if not started and (settings or part(table.settings.quick, "quick.start")):
            raise UserError(
                f"Key start has no effect: no column has a start-from below {prefix}.",
                "key-without-effect",
            )
        if started and not settings:
            raise UserError(
                "Key start is missing: columns start from a run of this table.", "table-file-wrong"
            )
        for key, value in table.start_of(size).items():
            if key != START_FROM and all(one.get(key) == value for one in started):
                raise UserError(
                    f"Key start: the columns have the same {key}: leave it out.",
                    "key-without-effect",
                )
    full, quick = table.start_of("full"), table.start_of("quick")
    for key in flat_settings("quick.start", part(table.settings.quick, "quick.start")):
        if key in full and full[key] == quick[key]:
            raise UserError(
                f"Key quick.start: start has the same {key}: leave it out.", "key-without-effect"
            )


def _check(table: Table) -> None:
    settings = table.settings
    for metric in [*settings.measures, *settings.paper]:
        if metric not in METRICS:
            raise UserError(
                f"Unknown measure {metric!r}; there are {', '.join(METRICS)}.", "unknown-name"
            )
    _require("Key picture", [settings.picture] if settings.picture else [], table.columns, "column")
    _require("Key unranked", settings.unranked, table.rows(), "row")
    _check_start(table)
    for noun, names in (("column", list(table.columns)), ("row", table.rows())):
        if comma := next((name for name in names if "," in name), None):
            raise UserError(
                f"The {noun} {comma!r}: a comma separates {noun}s on the command line.",
                "table-file-wrong",
            )
    refuse_one_folder("Columns", table.columns)
    _require("Key paper", settings.paper, settings.measures, "measure")
    for metric, columns in settings.paper.items():
        _require(f"Key paper.{metric}", columns, table.columns, "column")
        for label, figures in columns.items():
            rows = table.rows_of(label, "full")
            _require(f"Key paper.{metric}.{label!r}", figures, rows, "row")


def _require(where: str, names: Iterable[str], available: Container[str], noun: str) -> None:
    for name in names:
        if name not in available:
            raise UserError(f"{where}: there is no {noun} {name!r}.", "unknown-name")
