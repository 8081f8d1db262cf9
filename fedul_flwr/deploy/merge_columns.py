"""``fedul-flwr deploy columns a.json b.json``: one columns file of several owners' proposals.

Owners who may not show each other their tables compare what these mean. What follows from the files
is merged; the rest is for a person, who writes it into one of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.columns import Column, Columns, read_columns, refuse_twice
from fedul_flwr.data.headers import same_unit
from fedul_flwr.errors import UserError

_ALIKE = ("below", "bounds", "fill", "mean", "scale")
"""What all files that have it must say alike."""
_TABLES = {"units": "the factor", "synonyms": "the category"}


@dataclass(frozen=True)
class Merged:
    """A columns file of several, and what a person has to decide."""

    columns: Columns
    undecided: Sequence[str]

    def lines(self) -> Iterator[str]:
        """The report for a reader."""
        yield f"Merged: {len(self.columns.columns)} columns."
        if self.undecided:
            yield "To decide, by a change in one of the files:"
            yield from (f"  {line}" for line in self.undecided)


def merge_columns(files: Sequence[str | Path]) -> Merged:
    """Merge columns files, each of an owner, and list what does not follow from them."""
    paths = [user_path(file) for file in files]
    short = [path.stem for path in paths]
    refuse_twice(map(str, paths), "The command")
    names = [path.stem if short.count(path.stem) == 1 else str(path) for path in paths]
    owners = {name: read_columns(path) for name, path in zip(names, paths, strict=True)}
    by: dict[str, str] = {}
    for column in (one for columns in owners.values() for one in columns.columns if one.called):
        same = (column.name, *column.called)
        one_name = next((by[name] for name in same if name in by), column.name)
        by |= dict.fromkeys(same, one_name)
    groups: dict[str, dict[str, Column]] = {}
    for owner, columns in owners.items():
        refuse_twice((by.get(name, name) for name in columns.names), f"{owner}, by all files,")
        for column in columns.columns:
            groups.setdefault(by.get(column.name, column.name), {})[owner] = column
    undecided: list[str] = []
    merged: list[Column] = []
    for name, at in groups.items():
        one, open_points = _merged(name, at, [*owners])
        undecided += [f"{name!r}: {point}" for point in open_points]
        merged += [one] if one else []
    if not merged:
        raise UserError(
            f"{', '.join(owners)} have no column in common: write its other names as "
            '"called" into one of them.',
            "column-missing",
        )
    return Merged(Columns((*merged,)), undecided)


def _merged(
    name: str, at: Mapping[str, Column], owners: Sequence[str]
) -> tuple[Column | None, list[str]]:
    """One column of those that owners have, None if it cannot be; and what is to be decided."""
    if len(at) < len(owners):
        why = f'only at {", ".join(at)}: has it another name elsewhere ("called")?'
        return None, [why]
    if len({column.categories is None for column in at.values()}) > 1:
        kinds = {o: "number" if c.categories is None else "category" for o, c in at.items()}
        return None, [_listed(kinds)]
    open_points = []
    values: dict[str, Any] = {}
    for key in _ALIKE:
        stated = {o: v for o, column in at.items() if (v := getattr(column, key)) is not None}
        values[key] = next(iter(stated.values()), None)
        if len({*map(str, stated.values())}) > 1:
            open_points.append(f"{key} is {_listed(stated)}")
    for key, what in _TABLES.items():
        values[key] = {}
        for word in dict.fromkeys(word for column in at.values() for word in getattr(column, key)):
            of = {o: getattr(c, key)[word] for o, c in at.items() if word in getattr(c, key)}
            values[key][word] = next(iter(of.values()))
            if len({*map(str, of.values())}) > 1:
                open_points.append(f"{what} of {word!r} is {_listed(of)}")
    names = (n for column in at.values() for n in (column.name, *column.called))
    called = tuple(dict.fromkeys(n for n in names if n != name))
    first = next(iter(at.values()))
    if first.categories is None:
        units = {owner: column.unit or "not stated" for owner, column in at.items()}
        with_factors = sorted(at.values(), key=lambda column: not column.units)
        values["unit"] = next((column.unit for column in with_factors if column.unit), None)
        same = [values["unit"] or "not stated", *values["units"]]
        if not all(any(same_unit(unit, one) for one in same) for unit in units.values()):
            open_points.append(f'unit is {_listed(units)}: write factors ("units")')
    else:
        synonyms, other = values["synonyms"], any(column.other for column in at.values())
        has = {o: {synonyms.get(v, v) for v in c.categories or ()} for o, c in at.items()}
        listed = (v for column in at.values() for v in column.categories or ())
        values |= {"categories": tuple(dict.fromkeys(synonyms.get(v, v) for v in listed))}
        values["other"] = other
        for value in values["categories"] if not other else ():
            there = [owner for owner in owners if value in has[owner]]
            if len(there) < len(owners):
                why = f'{value} only at {", ".join(there)}: another word elsewhere ("synonyms")?'
                open_points.append(why)
    return replace(first, name=name, called=called, **values), open_points


def _listed(by_owner: Mapping[str, Any]) -> str:
    return ", ".join(f"{value} at {owner}" for owner, value in by_owner.items())
