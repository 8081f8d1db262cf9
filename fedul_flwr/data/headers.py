"""Which header of a table is which column, and in which unit its numbers are.

Owners name and measure alike things in their ways. The columns file says all names of a column
(``called``), its ``unit``, and other ``units``; an owner says in a header, ``Leukozyten [/µl]``, or
in :data:`UNITS_FILE` beside its tables which unit these have. Nobody rewrites a table.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fedul_flwr.config.base import column_name
from fedul_flwr.data.columns import Column, Columns
from fedul_flwr.data.csv_files import read_rows
from fedul_flwr.data.safe_files import find_entry
from fedul_flwr.data.tables import Table
from fedul_flwr.errors import UserError

UNITS_FILE = "units.csv"
"""File ``column,unit`` beside tables whose headers do not say their units."""
_WITH_UNIT = re.compile(r"(.*\S)\s*(?:\[([^][]+)\]|\(([^()]+)\))")


def split_header(header: str) -> tuple[str, str]:
    """Name and unit of a header.

    >>> split_header("Leukozyten [/µl]"), split_header("age")
    (('Leukozyten', '/µl'), ('age', ''))
    """
    parts = _WITH_UNIT.fullmatch(header)
    return (parts[1], (parts[2] or parts[3]).strip()) if parts else (header, "")


def same_unit(unit: str, other: str) -> bool:
    """Whether two units are one: ``mg/dL`` and ``mg/dl``, the two signs of micro."""
    one, two = (unicodedata.normalize("NFKC", text).replace("L", "l") for text in (unit, other))
    return one == two


def unit_files(tables: Iterable[Path]) -> list[Path]:
    """The files :data:`UNITS_FILE` beside tables, that are there."""
    folders = dict.fromkeys(table.parent for table in tables)
    return [file for folder in folders if (file := find_entry(folder, UNITS_FILE)).exists()]


def stated_units(table: Path) -> dict[str, str]:
    """Units by column of :data:`UNITS_FILE` beside a table; empty without one."""
    files = unit_files([table])
    if not files:
        return {}
    [file] = files
    rows, _ = read_rows(file)
    units = {column_name(name): unit for name, unit in rows[1:] if unit}
    if rows[0] != ["column", "unit"] or len(units) < len(rows) - 1:
        raise UserError(
            f"{file} must have the header column,unit and a row with both for each column.",
            "unit-unknown",
        )
    return units


def named_by(
    table: Table, columns: Columns | None, units: Mapping[str, str] | None = None
) -> Table:
    """The table with the headers of ``columns``, and how their numbers come to the stated units.

    Parameters
    ----------
    units : what :func:`stated_units` says of it.
    """
    units = units or {}
    if columns is None and units:
        raise UserError(
            f"{UNITS_FILE} beside {table.where} says units, and no columns file says in which ones "
            "they are needed: setting columns has to name one.",
            "columns-file-needed",
        )
    if columns is None or table.content is None:
        return table
    by = {name: column for column in columns.columns for name in (column.name, *column.called)}
    if odd := [name for name in units if name not in by and name not in table.names]:
        raise UserError(
            f"{UNITS_FILE} beside {table.where} names {odd[0]!r}, which neither the table nor the "
            "columns file has.",
            "unit-unknown",
        )
    headers: dict[str, str] = {}
    steps = dict(table.units)
    twice = [name for name in table.twice if name in by and by[name].name != name]
    for header in (*table.names, *twice, *twice):
        name, unit = header, ""
        if header not in by:
            name, unit = split_header(header)
        column = by.get(name)
        if column is None or (unit and column.unit is None):
            continue
        if column.name in headers:
            raise UserError(
                f"{table.where} has {headers[column.name]!r} and {header!r}, and both are column "
                f"{column.name!r}: leave one out.",
                "name-twice",
            )
        headers[column.name] = header
        stated = units.get(header, units.get(name, units.get(column.name, unit)))
        if unit and not same_unit(unit, stated):
            raise UserError(
                f"Column {header!r} of {table.where} is in {stated!r} by {UNITS_FILE}: one of them "
                "is wrong.",
                "files-contradict",
            )
        if stated:
            steps[column.name] = _step(column, stated, f"Column {header!r} of {table.where}")
    renamed = {header: name for name, header in headers.items()}
    names = [renamed.get(header, header) for header in table.names]
    return replace(table, content=table.content.rename_columns(names), units=steps)


def _step(column: Column, unit: str, here: str) -> tuple[float, float]:
    """Factor and what is added by which numbers in ``unit`` become those of the column."""
    if column.unit is not None and same_unit(unit, column.unit):
        return 1.0, 0.0
    for other, step in column.units.items():
        if same_unit(unit, other):
            return (step, 0.0) if isinstance(step, float) else step
    listed = ", ".join(filter(None, (column.unit, *column.units)))
    raise UserError(
        f"{here} is in {unit!r}, and the columns file has "
        f"{listed or 'no unit of it'}: correct the unit, or let the columns file have it, "
        f'as "units": {{{unit!r}: factor}}.',
        "unit-unknown",
    )
