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
"""A value of the matrix: the number of its axis and its name."""


@dataclass(frozen=True)
class Override:
    """Settings of some of a table's columns, or of a row in them.

    Attributes
    ----------
    place : key in the table's file.
    values : the override applies to columns with all of these values.
    settings : flat settings; without a row :data:`CLIENTS` and :data:`ONLY` may be among them.
    row : the row that has the settings; None: all rows share them.
    quick : whether the override applies to quick runs only.
    """

    place: str
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

    Raises
    ------
    UserError
        Naming a key, setting, value or row that is unknown, two columns of one name, or an override
        that changes no column.
    """
    axes = [list(values) for values in content["matrix"].values()]
    overrides = list(_overrides(content, axes, rows))
    columns: dict[str, frozenset[Value]] = {}
    for names in product(*axes):
        label = " ".join(names)
        if label in columns:
            raise UserError(f"Key matrix: two columns have the name {label!r}.")
        columns[label] = frozenset(enumerate(names))
    _refuse_ineffective(overrides, list(columns.values()), rows)
    return {label: _column(overrides, label, values, rows) for label, values in columns.items()}


def _column(
    overrides: Sequence[Override],
    label: str,
    values: frozenset[Value],
    rows: Mapping[str, Overrides],
) -> Column:
    settings, own, clients = {}, {}, {}
    for size in SIZES:
        shared = _shared(overrides, values, size, rows)
        own[size] = {
            row: {**rows[row], **_merged(overrides, values, size, row)} for row in shared.pop(ONLY)
        }
        number = clients[size] = shared.pop(CLIENTS, None)
        settings[size] = shared
        if number is None:
            raise UserError(f"Key clients is missing, and column {label!r} has none of its own.")
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise UserError(
                f"Key clients = {number!r} of column {label!r} must be a number above 0."
            )
    return Column(settings, own, clients)


def _overrides(
    content: Mapping[str, Any], axes: Sequence[Sequence[str]], rows: Mapping[str, Overrides]
) -> Iterator[Override]:
    """All overrides in the order in which they apply."""
    for key in (CLIENTS, ONLY):
        if key in content["settings"]:
            raise UserError(f"Key settings.{key}: write it above the first table of the file.")
    shared = {key: content[key] for key in (CLIENTS, ONLY) if content[key]}
    yield Override(
        "settings", frozenset(), _settings("settings", content["settings"] | shared, rows)
    )
    for number, (axis, of_axis) in enumerate(content["matrix"].items()):
        for value, own in of_axis.items():
            place = f"matrix.{axis}.{value!r}"
            yield Override(place, frozenset({(number, value)}), _settings(place, own, rows))
    for text, own in content["when"].items():
        place = f"when.{text!r}"
        values, row = _parse_values(text, axes, list(rows), place)
        settings = _settings(place, own, rows)
        for key in {CLIENTS, ONLY} & settings.keys() if row else ():
            raise UserError(f"Key {place}.{key}: columns have it, rows do not.")
        yield Override(place, values, settings, row)
    quick = {key: value for key, value in content["quick"].items() if key not in ("when", "start")}
    settings = flat_settings("quick", quick, CLIENTS)
    yield Override("quick", frozenset(), settings, quick=True)
    for text, own in part(content["quick"], "quick.when").items():
        place = f"quick.when.{text!r}"
        values, row = _parse_values(text, axes, list(rows), place)
        settings = flat_settings(place, own, *(() if row else (CLIENTS,)))
        yield Override(place, values, settings, row, quick=True)


def _settings(place: str, own: Mapping[str, Any], rows: Mapping[str, Overrides]) -> dict[str, Any]:
    """Flat settings of an override, which may have :data:`CLIENTS` and :data:`ONLY`."""
    found: dict[str, Any] = {
        **flat_settings(place, {k: v for k, v in own.items() if k != ONLY}, CLIENTS)
    }
    if ONLY in own:
        if not isinstance(own[ONLY], list):
            raise UserError(f"Key {place}.only = {own[ONLY]!r} must be a list of rows.")
        for row in own[ONLY]:
            if row not in rows:
                raise UserError(f"Key {place}.only: there is no row {row!r}.")
        found[ONLY] = own[ONLY]
    return found


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


def _parse_values(
    text: str, axes: Sequence[Sequence[str]], rows: Sequence[str], place: str
) -> tuple[frozenset[Value], str | None]:
    """The values and the row that ``MNIST M=10 FedUL`` names, in the order of the axes."""
    known = [*axes, rows]
    found = list(_readings(text, known))
    if not found:
        values = "; ".join(", ".join(values) for values in known)
        raise UserError(f"Key {place} names no values of the matrix and no row: {values}.")
    if len(found) > 1:
        raise UserError(f"Key {place} can be read in {len(found)} ways: rename a value.")
    row = next((name for number, name in found[0] if number == len(axes)), None)
    return frozenset(value for value in found[0] if value[0] < len(axes)), row


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
        known: Sequence[Override], values: frozenset[Value], size: Size, row: str | None
    ) -> Any:
        shared = _shared(known, values, size, rows)
        if row is None:
            return shared
        own = {**rows[row], **_merged(known, values, size, row)}
        return {**shared, **own} if row in shared[ONLY] else None

    for position, one in enumerate(overrides):
        for key in one.settings:
            without = [*overrides]
            rest = {k: v for k, v in one.settings.items() if k != key}
            without[position] = replace(one, settings=rest)
            if all(
                effect(overrides, *column, one.row) == effect(without, *column, one.row)
                for column in product(columns, SIZES)
            ):
                raise UserError(f"Key {one.place}: {key} changes no column: leave it out.")
