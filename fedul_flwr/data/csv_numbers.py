"""Numbers in a CSV file: decimal commas, separators of thousands, and what could be either.

``1,5`` can only be one and a half, and ``1.234,5`` only 1234.5. ``1.234`` may be either: it is read
only if the file shows what a point means there, and refused otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedul_flwr.data.csv_files import CsvFile
from fedul_flwr.errors import UserError

_NAMES = {",": "comma", ".": "point"}
_OTHER = {",": ".", ".": ","}
_SIGN, _EXPONENT = r"^[+\-\x{2212}]?", r"([eE][+-]?\d+)?$"
_SPACE = r"[ \x{A0}\x{2009}\x{202F}'\x{2019}]"
"""What stands between thousands, and never before decimals."""
_PLAIN = rf"{_SIGN}(\d+{_EXPONENT}|\d{{1,3}}({_SPACE}\d{{3}})+$)"
_TOGETHER = 500


def _certain(mark: str) -> str:
    """Numbers with decimals after ``mark``, which cannot be thousands."""
    m, other = rf"[{mark}]", rf"[{_OTHER[mark]}]"
    return (
        rf"{_SIGN}(\d*{m}(\d{{1,2}}|\d{{4,}})|\d+{m}|(0\d*|\d{{4,}}|){m}\d{{3}}){_EXPONENT}"
        rf"|{_SIGN}\d*{m}\d+[eE][+-]?\d+$"
        rf"|{_SIGN}\d{{1,3}}({_SPACE}\d{{3}})+{m}\d*$"
        rf"|{_SIGN}[1-9]\d{{0,2}}({other}\d{{3}})+{m}\d*$"
    )


def _grouped(mark: str) -> str:
    """Numbers with thousands before ``mark``, which cannot be decimals."""
    m, other = rf"[{mark}]", rf"[{_OTHER[mark]}]"
    return rf"{_SIGN}[1-9]\d{{0,2}}(({m}\d{{3}}){{2,}}|({m}\d{{3}})+{other}\d*)$"


def _either(mark: str) -> str:
    """Numbers with three digits after ``mark``: decimals or thousands."""
    return rf"{_SIGN}[1-9]\d{{0,2}}[{mark}]\d{{3}}$"


_NUMBER = "|".join(
    [_PLAIN, *(form(mark) for mark in _NAMES for form in (_certain, _grouped, _either))]
)


@dataclass(frozen=True)
class _Forms:
    """Rows of a column of numbers, -1 for none, that show what a comma and a point mean in it."""

    decimals: Mapping[str, int]
    thousands: Mapping[str, int]
    either: Mapping[str, int]

    @property
    def shown(self) -> dict[str, int]:
        """Which signs stand before decimals, and a row that shows it."""
        found = {mark: max(self.decimals[mark], self.thousands[_OTHER[mark]]) for mark in _NAMES}
        return {mark: row for mark, row in found.items() if row >= 0}


def plain_numbers(file: CsvFile, names: Iterable[str]) -> CsvFile:
    """The file with numbers of the columns ``names`` as Python writes them, ``1234.5``.

    Spaces around a cell are taken away, and a cell of spaces is missing. A column in which less
    than half of the cells are numbers keeps its texts.

    Raises
    ------
    UserError
        If the file does not show what a comma or a point in a number means.
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    columns = dict(zip(file.cells.column_names, file.cells.columns, strict=True))
    forms: dict[str, _Forms] = {}
    usual: list[str] = []
    for name, is_usual in _usual({name: columns[name] for name in names}):
        if is_usual:
            usual.append(name)
            continue
        columns[name] = trimmed(columns[name])
        if (found := _forms(columns[name])) is not None:
            forms[name] = found
    # A point has its usual meaning unless the file gives a reason to doubt it.
    doubtful = any("," in one.shown or one.either[","] >= 0 for one in forms.values())
    if doubtful or file.separator == ";":
        for name in usual:
            if pc.any(pc.match_substring(columns[name], ".")).as_py():
                found = _forms(columns[name])
                assert found is not None
                forms[name] = found
    mark = _decimal_mark(file, forms)
    notes = ["decimal comma"] if mark == "," else []
    for name in forms:
        columns[name] = _rewritten(columns[name], mark)
    groups = [sign for sign in _NAMES if any(one.thousands[sign] >= 0 for one in forms.values())]
    if groups:
        notes.append(f"thousands separated by {groups[0]}")
    cells = pa.table(columns) if columns else file.cells
    return replace(file, cells=cells, notes=(*file.notes, *notes))


def _usual(columns: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Whether each column holds nothing but numbers as Python writes them.

    Many columns are tried at once: in a wide table a call takes longer than its cells.
    """
    import pyarrow as pa

    def fit(block: Sequence[str]) -> bool:
        chunks = [chunk for name in block for chunk in columns[name].chunks]
        try:
            pa.chunked_array(chunks, pa.string()).cast(pa.float64())
        except pa.ArrowInvalid:
            return False
        return True

    names = list(columns)
    for start in range(0, len(names), _TOGETHER):
        block = names[start : start + _TOGETHER]
        together = fit(block)
        yield from ((name, together or fit([name])) for name in block)


def trimmed(column: Any) -> Any:
    """Texts without spaces around them; nothing but spaces is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _forms(column: Any) -> _Forms | None:
    """Of a column in which half of the cells or more are numbers."""
    import pyarrow.compute as pc

    numbers = pc.sum(pc.match_substring_regex(column, _NUMBER)).as_py() or 0
    if numbers == 0 or 2 * numbers < len(column) - column.null_count:
        return None

    def rows(form: Any) -> dict[str, int]:
        matches = {mark: pc.match_substring_regex(column, form(mark)) for mark in _NAMES}
        return {mark: pc.index(found, True).as_py() for mark, found in matches.items()}

    return _Forms(rows(_certain), rows(_grouped), rows(_either))


def _decimal_mark(file: CsvFile, forms: Mapping[str, _Forms]) -> str:
    """What stands before decimals, in all columns alike."""
    shown: dict[str, tuple[str, int]] = {}
    for name, one in forms.items():
        for mark, row in one.shown.items():
            shown.setdefault(mark, (name, row))
    if len(shown) == 2:
        comma, point = (_cell(file, *shown[mark]) for mark in _NAMES)
        raise UserError(
            f"{file.path} has numbers with a decimal comma ({comma}) and with a decimal point "
            f"({point}): write them all in one way, or leave one of the columns out."
        )
    doubts = {
        mark: next(((n, f.either[mark]) for n, f in forms.items() if f.either[mark] >= 0), None)
        for mark in _NAMES
    }
    if not shown:
        if doubts[","] is None and (doubts["."] is None or file.separator != ";"):
            return "."
        doubt = doubts[","] or doubts["."]
        assert doubt is not None
        raise UserError(_doubtful(file, *doubt, "no other number shows which"))
    mark = next(iter(shown))
    for name, one in forms.items():
        if one.either[_OTHER[mark]] >= 0 and one.thousands[_OTHER[mark]] < 0:
            other = f"other numbers have a decimal {_NAMES[mark]}"
            why = f"{other} ({_cell(file, *shown[mark])})"
            raise UserError(_doubtful(file, name, one.either[_OTHER[mark]], why))
    return mark


def _cell(file: CsvFile, name: str, row: int) -> str:
    cell = file.cells.column(name)[row].as_py().strip()
    return f"{cell[:50]!r} in column {name!r}, line {file.line_of(row)}"


def _doubtful(file: CsvFile, name: str, row: int, why: str) -> str:
    text = file.cells.column(name)[row].as_py().strip()
    decimal = text.replace(",", ".")
    return (
        f"{file.path}: {_cell(file, name, row)}, may be {decimal.replace('.', '')} or {decimal}; "
        f"{why}: write numbers without separators of thousands."
    )


def _rewritten(column: Any, mark: str) -> Any:
    import pyarrow.compute as pc

    texts = pc.replace_substring(column, _OTHER[mark], "")
    texts = pc.replace_substring(texts, mark, ".") if mark != "." else texts
    texts = pc.replace_substring_regex(texts, _SPACE, "")
    texts = pc.replace_substring(texts, "\u2212", "-")
    return pc.if_else(pc.match_substring_regex(column, _NUMBER), texts, column)
