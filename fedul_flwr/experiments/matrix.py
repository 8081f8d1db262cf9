"""Expand the matrix of a table's file: columns are a product of axes, with overrides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from fedul_flwr.config.base import Scalar, unknown_key
from fedul_flwr.config.overrides import flatten
from fedul_flwr.config.run_config import default_flat
from fedul_flwr.errors import UserError
from fedul_flwr.experiments.trial_plan import Overrides

Size = Literal["full", "quick"]
SIZES: tuple[Size, ...] = ("full", "quick")
CLIENTS = "clients"
"""Key of the number of clients in an override."""
ONLY = "only"
"""Key of the names of rows in an override: columns with it have no other rows."""
Value = tuple[int, str]
"""A value of the matrix: the number of its axis and its name. The rows are the last axis."""


@dataclass(frozen=True)
class Override:
    """Settings of some of a table's columns or rows.

    Attributes
    ----------
    place : key in the table's file.
    values : the override applies to columns and rows with all of these values.
    settings : flat settings; :data:`CLIENTS` may be among them unless a row is among ``values``.
    quick : whether the override applies to quick runs only.
    only : names of rows; if there are any, columns with the override have no other rows.
    """

    place: str
    values: frozenset[Value]
    settings: Overrides
    quick: bool = False
    only: tuple[str, ...] = ()

    def applies(self, values: frozenset[Value], size: Size) -> bool:
        """Whether the override applies to a column or row of these values."""
        return self.values <= values and (size == "quick" or not self.quick)


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

    Raises
    ------
    UserError
        Naming a key, setting, value or row that is unknown, two columns of one name, or an override
        that changes no column.
    """
    matrix: Mapping[str, Mapping[str, Any]] = content["matrix"]
    axes = [list(values) for values in matrix.values()]
    overrides = list(_overrides(content, matrix, axes, rows))
    columns: dict[str, frozenset[Value]] = {}
    for names in product(*axes):
        label = " ".join(names)
        if label in columns:
            raise UserError(f"Key matrix: two columns have the name {label!r}.")
        columns[label] = frozenset(enumerate(names))
    found = {}
    for label, values in columns.items():
        kept = _kept(overrides, values, list(rows))
        settings, own, clients = {}, {}, {}
        for size in SIZES:
            shared = _merged(overrides, values, size)
            clients[size] = _number(shared.pop(CLIENTS, None), label)
            settings[size] = shared
            own[size] = {
                row: {**rows[row], **_merged(overrides, values, size, (len(axes), row))}
                for row in kept
            }
        found[label] = Column(settings, own, clients)
    _refuse_ineffective(overrides, list(columns.values()), len(axes), rows)
    return found


def _overrides(
    content: Mapping[str, Any],
    matrix: Mapping[str, Mapping[str, Any]],
    axes: Sequence[Sequence[str]],
    rows: Mapping[str, Overrides],
) -> Iterator[Override]:
    for key in (CLIENTS, ONLY):
        if key in content["settings"]:
            raise UserError(f"Key settings.{key}: write it above the first table of the file.")
    shared = {key: content[key] for key in (CLIENTS, ONLY) if content[key]}
    yield _override("settings", frozenset(), {**content["settings"], **shared}, rows)
    for number, (axis, of_axis) in enumerate(matrix.items()):
        for value, own in of_axis.items():
            yield _override(f"matrix.{axis}.{value!r}", frozenset({(number, value)}), own, rows)
    known = [*axes, list(rows)]
    for text, own in content["when"].items():
        place = f"when.{text!r}"
        yield _override(place, _parse_values(text, known, place), own, rows)
    quick = {key: value for key, value in content["quick"].items() if key not in ("when", "start")}
    yield Override("quick", frozenset(), flat_settings("quick", quick, CLIENTS), quick=True)
    for text, own in part(content["quick"], "quick.when").items():
        place = f"quick.when.{text!r}"
        values = _parse_values(text, known, place)
        yield Override(place, values, flat_settings(place, own, CLIENTS), quick=True)


def _override(
    place: str, values: frozenset[Value], own: Mapping[str, Any], rows: Mapping[str, Overrides]
) -> Override:
    only = own.get(ONLY, [])
    if not isinstance(only, list):
        raise UserError(f"Key {place}.only = {only!r} must be a list of rows.")
    for row in only:
        if row not in rows:
            raise UserError(f"Key {place}.only: there is no row {row!r}.")
    flat = flat_settings(place, {k: v for k, v in own.items() if k != ONLY}, CLIENTS)
    return Override(place, values, flat, only=tuple(only))


def part(content: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The table at ``place`` in ``content``, empty if there is none.

    Raises
    ------
    UserError
        If it is not a table.
    """
    found = content.get(place.rpartition(".")[2], {})
    if not isinstance(found, dict):
        raise UserError(f"Key {place} = {found!r} must be a table.")
    return found


def flat_settings(place: str, own: Any, *others: str) -> dict[str, Scalar]:
    """Flatten the settings at ``place`` of the file; the keys ``others`` are allowed, too.

    Raises
    ------
    UserError
        Naming the place and the setting that is unknown.
    """
    if not isinstance(own, dict):
        raise UserError(f"Key {place} = {own!r} must be a table of settings.")
    known = {*default_flat(), *others}
    try:
        flat = flatten(own)
        for key in flat:
            if key not in known:
                raise unknown_key(key, known)
    except UserError as error:
        raise UserError(f"Key {place}: {error}") from None
    return flat


def _number(clients: object, label: str) -> int:
    if isinstance(clients, int) and not isinstance(clients, bool) and clients > 0:
        return clients
    if clients is None:
        raise UserError(f"Key clients is missing, and column {label!r} has none of its own.")
    raise UserError(f"Key clients = {clients!r} of column {label!r} must be a number above 0.")


def _parse_values(text: str, axes: Sequence[Sequence[str]], place: str) -> frozenset[Value]:
    """The values that ``MNIST M=10`` names: at most one of each axis, in the order of the axes."""
    found = list(_readings(text, axes))
    if not found:
        values = "; ".join(", ".join(values) for values in axes)
        raise UserError(f"Key {place} names no values of the matrix and no row: {values}.")
    if len(found) > 1:
        raise UserError(f"Key {place} can be read in {len(found)} ways: rename a value.")
    return found[0]


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
    overrides: Sequence[Override],
    values: frozenset[Value],
    size: Size,
    row: Value | None = None,
) -> dict[str, Scalar]:
    """Settings that a column's rows share; with ``row``, settings of overrides that name it."""
    known = values if row is None else values | {row}
    merged: dict[str, Scalar] = {}
    for one in overrides:
        if one.applies(known, size) and (row is None or row in one.values):
            merged |= one.settings
    return merged


def _kept(
    overrides: Sequence[Override], values: frozenset[Value], rows: Sequence[str]
) -> list[str]:
    kept = set(rows)
    for one in overrides:
        if one.only and one.applies(values, "full"):
            kept = set(one.only)
    return [row for row in rows if row in kept]


def _refuse_ineffective(
    overrides: Sequence[Override],
    columns: Sequence[frozenset[Value]],
    of_rows: int,
    rows: Mapping[str, Overrides],
) -> None:
    """Refuse a setting that every column would have without its override, too."""
    for position, one in enumerate(overrides):
        row = next((value for value in one.values if value[0] == of_rows), None)
        if one.only:
            without = [*overrides]
            without[position] = replace(one, only=())
            names = list(rows)
            if all(_kept(overrides, v, names) == _kept(without, v, names) for v in columns):
                raise UserError(f"Key {one.place}.only changes no column: leave it out.")
        for key in one.settings:
            if row is not None and key == CLIENTS:
                raise UserError(f"Key {one.place}.{key}: all rows of a column have one number.")
            rest = {k: v for k, v in one.settings.items() if k != key}
            without = [*overrides]
            without[position] = replace(one, settings=rest)
            if all(
                _seen(overrides, values, size, row, rows) == _seen(without, values, size, row, rows)
                for values, size in product(columns, SIZES)
                if row is None or row[1] in _kept(overrides, values, list(rows))
            ):
                raise UserError(f"Key {one.place}: {key} changes no column: leave it out.")


def _seen(
    overrides: Sequence[Override],
    values: frozenset[Value],
    size: Size,
    row: Value | None,
    rows: Mapping[str, Overrides],
) -> dict[str, Scalar]:
    shared = _merged(overrides, values, size)
    if row is None:
        return shared
    return {**shared, **rows[row[1]], **_merged(overrides, values, size, row)}
