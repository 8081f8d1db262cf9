"""CSV files as spreadsheets and hospitals write them: their encoding, tables of texts.

The character that separates cells is the only one by which every row has as many cells as the
header. What a cell means is decided later (:mod:`fedul_flwr.data.encode`).

Spreadsheets take a cell for a formula if it begins with one of four signs, and a file's name may
begin with any. Such a cell gets a ``'`` in front when it is written, as OWASP advises against CSV
injection; reading removes it.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedul_flwr.arrays import Floats
from fedul_flwr.config.base import any_of, column_name
from fedul_flwr.config.user_files import reason, regular_file
from fedul_flwr.data.safe_files import composed
from fedul_flwr.data.tables import Table, columns_by_name, in_memory, stripped
from fedul_flwr.errors import UserError

# Numbers as CSV files write them: with a decimal point or comma, and thousands in groups.

NUMBER = re.compile(r"[+-]?(\d[\d.,]*|[.,]\d+)([eE][+-]?\d+)?")
"""Anything that may be a number, whatever its points and commas mean."""
_NAMED = {",": "comma", ".": "point"}
_OTHER = {",": ".", ".": ","}
_SIGN, _EXPONENT = r"^[+\-\x{2212}]?", r"([eE][+-]?\d+)?$"
_SPACE = r"[ \x{A0}\x{2009}\x{202F}'\x{2019}]"
"""What stands between thousands, and never before decimals."""
_FORMS = {
    (what, mark): form.replace("MARK", f"[{mark}]").replace("OTHER", f"[{_OTHER[mark]}]")
    for mark in _NAMED
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
    """The table with numbers of the columns ``names`` as Python writes them, ``1234.5``."""
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
    grouped = [sign for sign in _NAMED if any(("thousands", sign) in f for f in forms.values())]
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
        for mark in _NAMED
    }
    return {mark: row for mark, row in shown.items() if row is not None}


def _decimal_mark(table: Table, forms: Mapping[str, Forms]) -> str:
    """What stands before decimals, in all columns alike; refused where cells leave it open."""
    shown = {mark: (name, row) for name, one in forms.items() for mark, row in _shown(one).items()}
    mark = next(iter(shown), "")
    odd = [*shown.values()] if len(shown) == 2 else []
    for sign in _OTHER[mark] if mark else ",." if table.separator == ";" else ",":
        odd += [
            (name, one["either", sign])
            for name, one in forms.items()
            if ("either", sign) in one and (not mark or ("thousands", sign) not in one)
        ]
    if odd:
        cells = [
            f"{table.column(name)[row].as_py().strip()[:50]!r} in row {row + 1} of column {name!r}"
            for name, row in dict.fromkeys([*odd[:1], *shown.values()])
        ]
        raise UserError(
            f"{table.where} leaves open what stands before decimals: it has {', '.join(cells)}. "
            "Write all numbers in one way, without separators of thousands, or leave a column out.",
            "decimal-mark",
        )
    return mark or "."


def _rewritten(column: Any, mark: str) -> Any:
    import pyarrow.compute as pc

    texts = pc.replace_substring(column, _OTHER[mark], "")
    texts = pc.replace_substring(texts, mark, ".")
    texts = pc.replace_substring_regex(texts, _SPACE, "")
    texts = pc.replace_substring(texts, "\u2212", "-")
    return pc.if_else(pc.match_substring_regex(column, _ANY), texts, column)


_SIGNS = ("=", "+", "-", "@", "\t", "\r")


def write_cell(text: str) -> str:
    """``text`` as it stands in a CSV file."""
    return f"'{text}" if text.lstrip("'").startswith(_SIGNS) else text


def read_cell(text: str) -> str:
    """The text of a cell that :func:`write_cell` wrote; other cells are unchanged."""
    is_marked = text.startswith("'") and text.lstrip("'").startswith(_SIGNS)
    return text[1:] if is_marked else text


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Content of a CSV file with these cells, which are written as they are."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


_MARKS = (
    (codecs.BOM_UTF8, "utf-8", ""),
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
    (b"", "utf-8", ""),
)
"""Byte order marks, Python's name of the encoding, and what a note calls it."""
_NO_TEXT = (
    b"pk\x03\x04",
    b"\xd0\xcf\x11\xe0",
    b"\x1f\x8b",
    b"%pdf",
    b"<html",
    b"<!doctype",
    b"<?xml",
)
"""How workbooks, archives, PDFs and web pages begin, in lower case."""
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")
"""Characters that only UTF-8 writes so: in Windows-1252 they would be odd pairs such as ``Ã¤``."""
_LETTERS = "A-Za-zÀ-ÖØ-öø-ÿŠšŽžŒœŸƒ"
_OTHER_CODE_PAGE = re.compile(
    "\ufffd|"
    # In no Western language three accented letters stand in a row, or signs within a word. Cyrillic
    # and Greek code pages, and those of DOS and old Macs, look so when read as Windows-1252.
    rf"[À-ÖØ-öø-ÿŠšŽžŒœŸ]{{3}}|[{_LETTERS}][€‚„…†‡ˆ‰‹•˜™›¡¢£¤¥¦§¨©«¬¯±²³¶¸¹»¼½¾¿÷][{_LETTERS}]"
)


def read_csv_text(path: Path) -> tuple[str, str]:
    """Text of a file in UTF-8 with or without a byte order mark, UTF-16 or -32 with one, or
    Windows-1252, with ``\\n`` after every line; and its encoding for a note, empty for UTF-8.
    """
    try:
        data = regular_file(path).read_bytes()
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.", "file-not-readable") from error
    if data[:64].lstrip().lower().startswith(_NO_TEXT):
        raise UserError(
            f"{path} is a workbook, an archive, a PDF or a web page: save it as CSV.",
            "file-not-readable",
        )
    data = data.rstrip(b"\x1a")  # the mark of DOS at the end of a file
    mark, codec, encoding = next(one for one in _MARKS if data.startswith(one[0]))
    data, text = data[len(mark) :], ""
    try:
        text = data.decode(codec)
        odd = text.find("\0")
    except UnicodeDecodeError as error:
        odd = error.start
        if not mark and _MULTIBYTE.search(data) is None:
            text, encoding = data.decode("cp1252", "replace"), "Windows-1252"
            other = _OTHER_CODE_PAGE.search(text)
            odd = other.start() if other else text.find("\0")
    if odd >= 0:
        line = (text[:odd].count("\n") if text else data[:odd].count(b"\n")) + 1
        raise UserError(
            f"Line {line} of {path} is not {encoding or 'UTF-8'}, or holds a NUL, or a letter that "
            "tells of another encoding: save it as CSV in UTF-8.",
            "csv-encoding",
        )
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, encoding


SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "|"}
"""What may stand between two cells, and its name in sentences."""
_HINT = re.compile(r'\A(?:"?sep=(.)"?;*(?:\n|\Z))?\n*', re.IGNORECASE)
"""First line by which Excel learns the separator, and empty lines."""
_COMMENTS = re.compile(r"\A(?:#[^\n]*(?:\n+|\Z))+")
_LONGEST_CELL = 2**30
_BLOCK = 16 * 2**20
"""Bytes that are read at a time, and more if a row is longer."""


class _MisfitError(Exception):
    """A row has another number of cells than the header, which has ``width``."""

    def __init__(self, separator: str, width: int, where: str, cells: int) -> None:
        super().__init__(
            f"its header has {width} cells separated by {SEPARATORS[separator]} and {where} has "
            f"{cells}: the first line must hold the names of the columns, and each row needs as "
            "many cells; names of rows have to be left out, and a cell that holds the separator, "
            "such as 1,5, has to be in quotes"
        )
        self.separator, self.width = separator, width


def open_csv(path: Path, as_written: Collection[str] = ()) -> Table:
    """Read a CSV file with a row of names, in any dialect that can be told for sure."""
    table = _read(path)
    content = {
        name: column if name in as_written else stripped(column)
        for name, column in zip(table.names, table.content.columns, strict=True)
    }
    return replace(table, content=in_memory(str(path), content).content)


def _read(path: Path) -> Table:
    """The texts of a file by the names of columns that occur once."""
    text, encoding = read_csv_text(path)
    start = _HINT.match(text)
    assert start is not None
    body, hint, line = text[start.end() :], start[1], text.count("\n", 0, start.end()) + 1
    below, lines = None, 0
    if (comments := _COMMENTS.match(body)) is not None:
        lines = comments[0].count("\n")
        with suppress(UserError):  # else the line with # is the header
            below = _table(path, body[comments.end() :], hint, line + lines)
        if below is not None and any(map(NUMBER.fullmatch, below.names)):
            below = None
    try:
        table, comment = _table(path, body, hint, line), ""
    except UserError:
        if below is None:
            raise
        table = below
        comment = f"{lines} comment line{'s' * (lines > 1)} at the top left out"
    else:
        if below is not None:
            raise UserError(
                f"{path}, line {line} begins with #, and may be a comment or the names of the "
                "columns: take the line or the # away.",
                "csv-header",
            )
    names = {",": "", "\t": "separated by a tab"}
    separated = names.get(table.separator, f"separated by {table.separator}")
    return replace(table, note=", ".join(filter(None, (separated, encoding, comment, table.note))))


def _table(path: Path, body: str, hint: str | None, line: int) -> Table:
    """The table of ``body``, whose first row is the header, in this line of the file."""
    if not body.strip():
        return _named(path, [], None, "")
    candidates = [hint] if hint else _candidates(body)
    data = body.encode()
    fitting: dict[str, tuple[list[str], Any]] = {}
    misfit: _MisfitError | None = None
    for mark in (mark for mark in candidates if mark in SEPARATORS):
        try:
            fitting[mark] = _parse(data, body, mark, line)
        except _MisfitError as error:
            misfit = max((misfit or error, error), key=lambda one: one.width)
    separator = misfit.separator if misfit is not None and not fitting else _only(path, fitting)
    _refuse_swallowed_rows(path, body, separator, line)
    if fitting:
        is_single = candidates == [","] and not hint and len(fitting[","][0]) == 1
        misfit = _hidden_columns(body) if is_single else None
    if misfit is not None:
        raise UserError(f"{path} cannot be read: {misfit}.", "csv-ragged-row")
    return _named(path, *fitting[separator], separator)


def _candidates(body: str) -> list[str]:
    """Separators that stand in the header; a comma for a file of one column."""
    end = 0
    while (end := body.find("\n", end) + 1) and body.count('"', 0, end) % 2:
        pass  # a line break within quotes
    header = body[:end] if end else body.split("\n", 1)[0]
    return [mark for mark in SEPARATORS if mark in header] or [","]


def _parse(data: bytes, body: str, mark: str, line: int) -> tuple[list[str], Any]:
    """Header and table of texts, by Arrow, or by Python's reader where rows have other numbers of
    cells because of empty ones at their ends; a _MisfitError where they have others."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    # Arrow leaves cells in quotes after a space in the quotes.
    is_spaced = re.search(rf'{re.escape(mark)} +"(?!["\n{re.escape(mark)}])', body) is not None
    records = _records(body, mark, is_spaced)
    try:
        header = [column_name(cell) for cell in next(records)[1]]
    except csv.Error:
        raise _MisfitError(mark, 1, "each row", 0) from None
    keys = [str(index) for index in range(len(header))]
    longest = min(4 * max(map(len, body.split("\n"))), _LONGEST_CELL)
    try:
        if is_spaced:
            raise pa.ArrowInvalid
        cells = arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(
                column_names=keys, skip_rows_after_names=1, block_size=max(_BLOCK, longest)
            ),
            arrow_csv.ParseOptions(delimiter=mark, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    except pa.ArrowInvalid:
        cells = _evened(records, header, mark, line)
    while header and not header[-1] and cells.column(len(header) - 1).null_count == len(cells):
        header = header[:-1]  # a separator at the end of every row
        cells = cells.select(range(len(header)))
    return header, cells


def _records(body: str, mark: str, is_spaced: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not empty, each with the line of ``body``, from 0, where it begins."""
    csv.field_size_limit(_LONGEST_CELL)
    file, line = io.StringIO(body, newline=""), 0
    reader = csv.reader(file, delimiter=mark, skipinitialspace=is_spaced)
    for row in reader:
        if row and (len(row) > 1 or not row[0].isspace()):
            yield line, row
        line = reader.line_num


def _evened(
    records: Iterator[tuple[int, list[str]]], header: list[str], mark: str, line: int
) -> Any:
    """Table of the rows below the header, without empty cells beyond it."""
    import pyarrow as pa

    width = len(header)
    rows, odd = [], []
    for number, row in records:
        while len(row) > width and not row[-1].strip():
            row.pop()
        if len(row) == width - 1 and not header[-1]:
            row.append("")
        rows.append([cell or None for cell in row])
        if len(row) != width:
            odd.append((number, len(row)))
    if odd:
        is_always = len(odd) == len(rows) and len({count for _, count in odd}) == 1
        where = "each row" if is_always else f"line {odd[0][0] + line}"
        raise _MisfitError(mark, width, where, odd[0][1])
    columns = zip(*rows, strict=True) if rows else [()] * width
    arrays = [pa.array(column, pa.string()) for column in columns]
    return pa.table(arrays, names=[str(index) for index in range(width)])


def _refuse_swallowed_rows(path: Path, body: str, mark: str, line: int) -> None:
    """Refuse a quote that is not closed in its row: the rows below would be part of its cell."""
    sign = re.escape(mark)
    # A cell in quotes, its last one if there is, and what follows it.
    quoted = rf'(?:^|[{sign}\n]) *"((?:[^"]++|"")*+)("?)(?= *(.?))'
    for cell in re.finditer(quoted, body, re.DOTALL) if '"' in body else ():
        text, closing, after = cell.groups()
        if not closing or ("\n" in text and after not in {"", mark, "\n"}):
            line += body.count("\n", 0, cell.start(1))
            raise UserError(
                f"{path}, line {line}: a quote opens a cell "
                "and is not closed in it, so that the rows below would belong to it: close it, or "
                'write it twice ("") within quotes.',
                "csv-quote",
            )


def _only(path: Path, fitting: Mapping[str, tuple[list[str], Any]]) -> str:
    """The only separator that fits, or the only one by which no cell holds another of them."""
    if len(fitting) == 1:
        return next(iter(fitting))
    several = {mark: cells for mark, (header, cells) in fitting.items() if len(header) > 1}
    clean = [mark for mark, cells in several.items() if _is_clean(cells, {*several} - {mark})]
    if len(clean) != 1:
        raise UserError(
            f"{path} does not say for sure whether {any_of([*SEPARATORS.values()])} separate its "
            "cells: a first line such as sep=; says it.",
            "csv-separator",
        )
    return clean[0]


def _is_clean(cells: Any, others: Collection[str]) -> bool:
    return not any(
        cell and any(other in cell for other in others) and not NUMBER.fullmatch(cell)
        for column in cells.columns
        for cell in column.slice(0, 1000).to_pylist()
    )


def _hidden_columns(body: str) -> _MisfitError | None:
    """That rows of several cells stand below a header of one, if they do."""
    rows = body[body.find("\n") + 1 :] if "\n" in body else ""
    for mark in [mark for mark in SEPARATORS if mark != "," and mark in body]:
        counts = {len(row) for _, row in _records(rows, mark)}
        if len(counts) == 1 and (count := counts.pop()) > 1:
            return _MisfitError(mark, 1, "each row", count)
    return None


def _named(path: Path, header: list[str], cells: Any, mark: str) -> Table:
    """The columns whose names occur once, without empty rows at the end."""
    is_number = all(map(NUMBER.fullmatch, header)) and not all(map(str.isdigit, header))
    if is_number or not any(header):
        raise UserError(
            f"{path} must have names of columns in its first row; it is empty, or holds numbers.",
            "csv-header",
        )
    places, twice = columns_by_name(header)
    content = cells.select([*places.values()]).rename_columns([*places])
    rows = len(cells)
    # Rows of separators alone follow what Excel once had there; in one column an empty row is a
    # missing value.
    while rows and cells.num_columns > 1 and not any(c[rows - 1].is_valid for c in cells.columns):
        rows -= 1
    dropped = len(cells) - rows
    note = f"{dropped} empty rows at the end left out" if dropped else ""
    return Table(str(path), content.slice(0, rows), twice=twice, note=note, separator=mark)


def read_rows(file: Path) -> tuple[list[list[str]], tuple[str, ...]]:
    """Rows of a small CSV file, the header first, with composed letters; and a note if it was not
    read as usual."""
    table = _read(file)
    table.refuse_twice("")
    columns = [column.fill_null("").to_pylist() for column in table.content.columns]
    rows = [[cell.strip() for cell in row] for row in zip(*columns, strict=True)]
    notes = (f"{file.name}: {table.note}",) if table.note else ()
    listed = [table.names, *filter(any, rows)]
    return [[composed(read_cell(cell)) for cell in row] for row in listed], notes
