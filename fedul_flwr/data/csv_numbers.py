"""Numbers as CSV files write them: with a decimal point or comma, and thousands in groups.

``1,5`` can only be one and a half, and ``1.234,5`` only 1234.5. ``1.234`` may be either: it is read
only if the file shows what a point means there, or nothing speaks against decimals: not the
separator ``;``, and no other file beside it (:func:`doubtful_point`). It is refused otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedul_flwr.data.tables import Table
from fedul_flwr.data.types import Floats
from fedul_flwr.errors import UserError

NUMBER = re.compile(r"[+-]?(\d[\d.,]*|[.,]\d+)([eE][+-]?\d+)?")
"""Anything that may be a number, whatever its points and commas mean."""
_MARKS = {",": "comma", ".": "point"}
_OTHER = {",": ".", ".": ","}
_SIGN, _EXPONENT = r"^[+\-\x{2212}]?", r"([eE][+-]?\d+)?$"
_SPACE = r"[ \x{A0}\x{2009}\x{202F}'\x{2019}]"
"""What stands between thousands, and never before decimals."""
_FORMS = {
    (what, mark): form.replace("MARK", f"[{mark}]").replace("OTHER", f"[{_OTHER[mark]}]")
    for mark in _MARKS
    for what, form in {
        "decimals": (  # after this mark, which cannot be thousands
            rf"{_SIGN}(\d*MARK(\d{{1,2}}|\d{{4,}})|\d+MARK|(0\d*|\d{{4,}}|)MARK\d{{3}}){_EXPONENT}"
            rf"|{_SIGN}\d*MARK\d+[eE][+-]?\d+$"
            rf"|{_SIGN}\d{{1,3}}({_SPACE}\d{{3}})+MARK\d*$"
            rf"|{_SIGN}[1-9]\d{{0,2}}(OTHER\d{{3}})+MARK\d*$"
        ),
        # before this mark, which cannot be decimals
        "thousands": rf"{_SIGN}[1-9]\d{{0,2}}((MARK\d{{3}}){{2,}}|(MARK\d{{3}})+OTHER\d*)$",
        "either": rf"{_SIGN}[1-9]\d{{0,2}}MARK\d{{3}}$",
    }.items()
}
_ANY = "|".join([rf"{_SIGN}(\d+{_EXPONENT}|\d{{1,3}}({_SPACE}\d{{3}})+$)", *_FORMS.values()])
_TOGETHER = 500
"""Columns that are tried at once: in a wide table a call takes longer than its cells."""

Forms = Mapping[tuple[str, str], int]
"""Which forms the numbers of a column have, as keys of ``_FORMS``, and a row of each."""


def plain_numbers(table: Table, names: Iterable[str]) -> Table:
    """The table with numbers of the columns ``names`` as Python writes them, ``1234.5``.

    A column in which less than half of the cells are numbers keeps its texts.
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    wanted = {name: table.column(name) for name in names}
    usual = _floats(wanted)
    columns = {name: column for name, column in wanted.items() if name not in usual}
    forms = {name: rows for name, cells in columns.items() if (rows := _forms(cells))}
    # A point has its usual meaning unless the file gives a reason to doubt it.
    has_commas = any("," in _shown(one) or ("either", ",") in one for one in forms.values())
    if has_commas or table.separator == ";":
        for name in usual:
            if pc.any(pc.match_substring(wanted[name], ".")).as_py():
                forms[name] = _forms(wanted[name])
    mark = _decimal_mark(table, forms)
    notes = ["decimal comma"] if mark == "," else []
    grouped = [sign for sign in _MARKS if any(("thousands", sign) in f for f in forms.values())]
    notes += [f"thousands separated by {grouped[0]}"] if grouped else []
    columns |= {name: _rewritten(cells, mark) for name, cells in columns.items() if name in forms}
    content = {name: columns.get(name, table.column(name)) for name in table.names}
    return replace(
        table,
        content=pa.table(content) if content else table.content,
        floats=usual,
        note=", ".join(filter(None, [table.note, *notes])),
        mark=mark if any(map(_shown, forms.values())) else "",
    )


def doubtful_point(columns: Mapping[str, Any]) -> tuple[str, str] | None:
    """Column and text of a number such as ``1.234``, if no text of one file shows what its point
    means."""
    doubt = None
    for name, column in columns.items():
        forms = _forms(column)
        if _shown(forms):
            return None
        if (row := forms.get(("either", "."))) is not None:
            doubt = name, column[row].as_py()
    return doubt


def _floats(columns: Mapping[str, Any]) -> dict[str, Floats]:
    """Values of the columns that hold nothing but numbers as Python writes them."""
    import pyarrow as pa

    def cast(block: Sequence[str]) -> Any:
        chunks = [chunk for name in block for chunk in columns[name].chunks]
        try:
            values = pa.chunked_array(chunks, pa.string()).cast(pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            return None
        return values.reshape(len(block), -1)

    floats: dict[str, Floats] = {}
    names = list(columns)
    for start in range(0, len(names), _TOGETHER):
        block = names[start : start + _TOGETHER]
        if (together := cast(block)) is not None:
            floats |= zip(block, together, strict=True)
            continue
        floats |= {name: alone[0] for name in block if (alone := cast([name])) is not None}
    return floats


def _forms(column: Any) -> Forms:
    """Of a column in which half of the cells or more are numbers; else empty."""
    import pyarrow.compute as pc

    numbers = pc.sum(pc.match_substring_regex(column, _ANY)).as_py() or 0
    if numbers == 0 or 2 * numbers < len(column) - column.null_count:
        return {}
    rows = {
        key: pc.index(pc.match_substring_regex(column, form), True).as_py()
        for key, form in _FORMS.items()
    }
    return {("plain", ""): 0} | {key: row for key, row in rows.items() if row >= 0}


def _shown(forms: Forms) -> dict[str, int]:
    """Which marks surely stand before decimals, and a row that shows it."""
    shown = {
        mark: forms.get(("decimals", mark), forms.get(("thousands", _OTHER[mark])))
        for mark in _MARKS
    }
    return {mark: row for mark, row in shown.items() if row is not None}


def _decimal_mark(table: Table, forms: Mapping[str, Forms]) -> str:
    """What stands before decimals, in all columns alike."""

    def cell(name: str, row: int) -> str:
        text = table.column(name)[row].as_py().strip()
        return f"{text[:50]!r} in row {row + 1} of column {name!r}"

    def refuse(name: str, sign: str, why: str) -> UserError:
        row = forms[name]["either", sign]
        decimal = table.column(name)[row].as_py().strip().replace(",", ".")
        return UserError(
            f"{table.where}: {cell(name, row)} may be {decimal.replace('.', '')} or {decimal}; "
            f"{why}: write numbers without separators of thousands.",
            "decimal-mark",
        )

    shown = {
        mark: cell(name, row) for name, one in forms.items() for mark, row in _shown(one).items()
    }
    if len(shown) == 2:
        raise UserError(
            f"{table.where} has numbers with a decimal comma ({shown[',']}) and with a decimal "
            f"point ({shown['.']}): write them all in one way, or leave one of the columns out.",
            "decimal-mark",
        )
    mark = next(iter(shown), "")
    for sign in _OTHER[mark] if mark else ",." if table.separator == ";" else ",":
        for name, one in forms.items():
            if ("either", sign) in one and (not mark or ("thousands", sign) not in one):
                why = (
                    f"other numbers have a decimal {_MARKS[mark]} ({shown[mark]})"
                    if mark
                    else ("no other number shows which")
                )
                raise refuse(name, sign, why)
    return mark or "."


def _rewritten(column: Any, mark: str) -> Any:
    import pyarrow.compute as pc

    texts = pc.replace_substring(column, _OTHER[mark], "")
    texts = pc.replace_substring(texts, mark, ".")
    texts = pc.replace_substring_regex(texts, _SPACE, "")
    texts = pc.replace_substring(texts, "\u2212", "-")
    return pc.if_else(pc.match_substring_regex(column, _ANY), texts, column)
