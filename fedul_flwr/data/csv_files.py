"""CSV files as spreadsheets and hospitals write them: their encoding, tables of texts, numbers.

The character that separates cells is the only one by which every row has as many cells as the
header. What a cell means is decided later (:mod:`fedul_flwr.data.column_cells`).

Numbers: ``1,5`` can only be one and a half, and ``1.234,5`` only 1234.5. ``1.234`` may be either:
it is read only if the file shows what a point means there, or nothing speaks against decimals: not
the separator ``;``, and no other file beside it (:func:`doubtful_point`). It is refused otherwise.

Spreadsheets take a cell for a formula if it begins with one of four signs, and a file's name may
begin with any. Such a cell gets a ``'`` in front when it is written, as OWASP advises against CSV
injection; reading removes it.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedul_flwr.config.base import column_name
from fedul_flwr.config.user_files import reason, regular_file
from fedul_flwr.errors import UserError

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


WINDOWS = "Windows-1252"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8", ""),
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)
"""Byte order marks, Python's name of the encoding, and what a note calls it."""
_NO_TEXT = (
    (b"PK\x03\x04", "an Excel workbook or a ZIP archive"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"%PDF", "a PDF"),
    (b"<html", "a web page"),
    (b"<!doctype", "a web page"),
    (b"<?xml", "an XML file"),
)
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")
"""Characters that only UTF-8 writes so: in Windows-1252 they would be odd pairs such as ``Ã¤``."""
_LETTERS = "A-Za-zÀ-ÖØ-öø-ÿŠšŽžŒœŸƒ"
_CONTROL_CHARACTERS = re.compile(
    # In no Western language three accented letters stand in a row, or signs within a word. Cyrillic
    # and Greek code pages, and those of DOS and old Macs, look so when read as Windows-1252.
    rf"[À-ÖØ-öø-ÿŠšŽžŒœŸ]{{3}}|[{_LETTERS}][€‚„…†‡ˆ‰‹•˜™›¡¢£¤¥¦§¨©«¬¯±²³¶¸¹»¼½¾¿÷][{_LETTERS}]"
)


def read_csv_text(path: Path) -> tuple[str, str]:
    """Text of a file in UTF-8 with or without a byte order mark, UTF-16 or -32 with one, or
    Windows-1252, with ``\\n`` after every line.

    Returns
    -------
    text : its content.
    encoding : its name for a note; empty for UTF-8.
    """
    try:
        data = regular_file(path).read_bytes()
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.", "file-not-readable") from error
    begin = data[:64].lstrip().lower()
    for sign, what in _NO_TEXT:
        if begin.startswith(sign.lower()):
            raise UserError(
                f"{path} is {what}, not a CSV file: save it as CSV.", "file-not-readable"
            )
    text, encoding = _decoded(path, data.rstrip(b"\x1a"))  # the mark of DOS at the end of a file
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(
            f"{path} holds a NUL in line {line}: it is no text, or UTF-16 without a byte order "
            "mark. Save it as CSV in UTF-8.",
            "csv-encoding",
        )
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, encoding


def _decoded(path: Path, data: bytes) -> tuple[str, str]:
    for mark, codec, name in _MARKS:
        if data.startswith(mark):
            try:
                return data[len(mark) :].decode(codec), name
            except UnicodeDecodeError as error:
                position = _line_of(data[len(mark) :], error)
                raise UserError(
                    f"{path} begins with the mark of {name or 'UTF-8'} but is something else from "
                    f"{position}: save it as CSV in UTF-8.",
                    "csv-encoding",
                ) from None
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        return _windows(path, data, error), WINDOWS


def _windows(path: Path, data: bytes, error: UnicodeDecodeError) -> str:
    """The text of a file that is not UTF-8, if it is surely Windows-1252."""
    wrong = f"{path} is not UTF-8: {_line_of(data, error)}"
    if (other := _MULTIBYTE.search(data)) is not None:
        line = data.count(b"\n", 0, other.start()) + 1
        raise UserError(
            f"{wrong} looks like Windows-1252, and line {line} like UTF-8; save all of it "
            "as UTF-8.",
            "csv-encoding",
        )
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError as second:
        raise UserError(
            f"{wrong} and {_line_of(data, second)} fit no encoding that is read here (UTF-8, UTF-16"
            " with a byte order mark, Windows-1252): save the file as UTF-8.",
            "csv-encoding",
        ) from None
    if (unreadable := _CONTROL_CHARACTERS.search(text)) is not None:
        line = text.count("\n", 0, unreadable.start()) + 1
        raise UserError(
            f"{wrong} is in another encoding: as Windows-1252, line {line} would hold "
            f"{unreadable[0]!r}. Save the file as UTF-8.",
            "csv-encoding",
        )
    return text


def _line_of(data: bytes, error: UnicodeDecodeError) -> str:
    line = data.count(b"\n", 0, error.start) + 1 or 1
    return f"byte 0x{data[error.start]:02X} in line {line}"


SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "|"}
"""What may stand between two cells, and its name in sentences."""
NUMBER = re.compile(r"[+-]?(\d[\d.,]*|[.,]\d+)([eE][+-]?\d+)?")
"""Anything that may be a number, whatever its points and commas mean."""
_HINT = re.compile(r'"?sep=(.)"?;*(\n|$)', re.IGNORECASE)
"""First line by which Excel learns the separator."""
_LONGEST_CELL = 2**30
_BLOCK = 16 * 2**20
"""Bytes that are read at a time, and more if a row is longer."""


@dataclass(frozen=True)
class CsvFile:
    """A table of texts; an empty cell and NA are missing.

    Attributes
    ----------
    path : the file.
    cells : ``pyarrow.Table`` of texts, one column for each name that occurs once.
    separator : what stands between cells.
    twice : names that several columns have, and an empty one for columns without a name: these
        columns are not in ``cells``.
    notes : how the file was read, where it is not as usual.
    mark : what its numbers show to stand before decimals; empty if nothing does.
    skipped : lines above the header.
    """

    path: Path
    cells: Any
    separator: str
    twice: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    mark: str = ""
    skipped: int = field(default=0, repr=False)

    def line_of(self, row: int) -> int:
        """The line, from 1, where a row of ``cells`` begins. Reads the file again."""
        text = _cut(read_csv_text(self.path)[0], self.skipped)
        for index, (line, _) in enumerate(_records(text, self.separator)):
            if index == row + 1:
                return line + self.skipped
        raise IndexError(row)


@dataclass
class _MisfitError(Exception):
    """A line that has another number of cells than the header."""

    separator: str
    header: int
    line: int
    cells: int
    always: bool = False
    """Whether all rows have as many."""


def open_csv(path: Path, as_written: Collection[str] = ()) -> CsvFile:
    """Read a CSV file with a row of names, in any dialect that can be told for sure.

    Parameters
    ----------
    as_written : columns in which ``NA`` and the like are texts; elsewhere they are missing values.
    """
    text, encoding = read_csv_text(path)
    start, hint = _after_hint(text)
    file = _read(path, text, start, hint)
    names = file.cells.column_names
    columns = [
        column if name in as_written else _without_missing(column)
        for name, column in zip(names, file.cells.columns, strict=True)
    ]
    cells = type(file.cells).from_arrays(columns, names=names)  # one by one takes the square
    return replace(file, cells=cells, notes=(*_how(file.separator, encoding), *file.notes))


def _without_missing(column: Any) -> Any:
    """The column with null for each of the texts that mean a missing value to Arrow."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    from pyarrow import csv as arrow_csv

    missing = pc.is_in(column, value_set=pa.array(arrow_csv.ConvertOptions().null_values))
    has_some = pc.any(missing).as_py()
    return pc.if_else(missing, pa.scalar(None, pa.string()), column) if has_some else column


def _how(separator: str, encoding: str) -> tuple[str, ...]:
    """How a file was read that is not in UTF-8 and separated by commas."""
    shown = {"\t": "a tab"}.get(separator, separator)
    return (
        *((f"separated by {shown}",) if separator != "," else ()),
        *((encoding,) if encoding else ()),
    )


def _after_hint(text: str) -> tuple[int, str]:
    """Number of lines that the separator's line and blank ones take, and the separator it names."""
    lines, hint = 0, ""
    if match := _HINT.match(text):
        lines, hint = 1, match[1]
    rest = _cut(text, lines)
    return lines + (len(rest) - len(rest.lstrip("\n"))), hint


def _cut(text: str, lines: int) -> str:
    end = 0
    for _ in range(lines):
        end = text.find("\n", end) + 1 or len(text)
    return text[end:] if end else text


def _read(path: Path, text: str, skipped: int, hint: str) -> CsvFile:
    """The table below ``skipped`` lines and below comments, if lines with # are some."""
    body = _cut(text, skipped)
    if not body.strip():
        raise UserError(f"{path} is empty; a row of column names must come first.", "csv-header")
    if not body.startswith("#"):
        return _table(path, body, skipped, hint)
    comments = re.match(r"(?:#[^\n]*(?:\n+|$))+", body)
    assert comments is not None
    lines = comments[0].count("\n")
    try:
        below = _read(path, text, skipped + lines, hint)
    except UserError:
        return _table(path, body, skipped, hint)
    if any(NUMBER.fullmatch(name) for name in below.cells.column_names):
        return _table(path, body, skipped, hint)  # data, so that the line with # is the header
    try:
        _table(path, body, skipped, hint)
    except UserError:
        what = "1 comment line" if lines == 1 else f"{lines} comment lines"
        return replace(below, notes=(f"{what} at the top left out", *below.notes))
    raise UserError(
        f"{path}, line {skipped + 1} begins with #, and may be a comment or the names of the "
        "columns: take the line or the # away.",
        "csv-header",
    )


def _table(path: Path, body: str, skipped: int, hint: str) -> CsvFile:
    """The table of ``body``, whose first row is the header."""
    candidates = [hint] if hint else _candidates(body)
    if any(mark not in SEPARATORS for mark in candidates):
        raise UserError(
            f"{path} says sep={hint}; cells may be separated by a comma, a semicolon, a tab or |.",
            "csv-separator",
        )
    data, fitting, misfits = body.encode(), {}, []
    for mark in candidates:
        try:
            fitting[mark] = _parse(data, body, mark)
        except _MisfitError as misfit:
            misfits.append(misfit)
    if not fitting:
        worst = max(misfits, key=lambda one: one.header)
        _refuse_swallowed_rows(path, body, worst.separator, skipped)
        raise UserError(_sentence(path, worst, skipped), "csv-ragged-row")
    mark = _only(path, fitting)
    _refuse_swallowed_rows(path, body, mark, skipped)
    if candidates == [","] and not hint and len(fitting[mark][0]) == 1:
        _refuse_hidden_columns(path, body, skipped)
    return _named(path, *fitting[mark], mark, skipped)


def _candidates(body: str) -> list[str]:
    """Separators that stand in the header; a comma for a file of one column."""
    end = 0
    while (end := body.find("\n", end) + 1) and body.count('"', 0, end) % 2:
        pass  # a line break within quotes
    header = body[:end] if end else body.split("\n", 1)[0]
    return [mark for mark in SEPARATORS if mark in header] or [","]


def _parse(data: bytes, body: str, mark: str) -> tuple[list[str], Any]:
    """Header and table of texts, by Arrow, or by Python's reader where rows have other numbers of
    cells because of empty ones at their ends.

    Raises
    ------
    _MisfitError
        If a row has more or fewer cells than the header.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    is_spaced = _has_spaced_quotes(body, mark)
    records = _records(body, mark, is_spaced)
    try:
        header = [column_name(cell) for cell in next(records)[1]]
    except csv.Error:
        raise _MisfitError(mark, 1, 1, 0) from None
    keys = [str(index) for index in range(len(header))]
    longest = min(4 * max(map(len, body.split("\n"))), _LONGEST_CELL)
    try:
        if is_spaced:
            raise pa.ArrowInvalid  # cells in quotes after a space, which Arrow leaves in the quotes
        cells = arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(
                column_names=keys, skip_rows_after_names=1, block_size=max(_BLOCK, longest)
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=mark, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    except pa.ArrowInvalid:
        cells = _ragged(records, header, mark)
    while header and not header[-1] and cells.column(len(header) - 1).null_count == len(cells):
        header = header[:-1]  # a separator at the end of every row
        cells = cells.select(range(len(header)))
    return header, cells


def _has_spaced_quotes(body: str, mark: str) -> bool:
    """Whether a space stands between a separator and a cell in quotes."""
    sign = re.escape(mark)
    return re.search(rf'{sign} +"(?!["\n{sign}])', body) is not None


def _records(
    body: str, mark: str, is_spaced: bool | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not empty, each with the line where it begins.

    Parameters
    ----------
    is_spaced : :func:`_has_spaced_quotes`, if the caller has it.
    """
    if is_spaced is None:
        is_spaced = _has_spaced_quotes(body, mark)
    csv.field_size_limit(_LONGEST_CELL)
    file, line = io.StringIO(body, newline=""), 1
    reader = csv.reader(file, delimiter=mark, skipinitialspace=is_spaced)
    for row in reader:
        if row and (len(row) > 1 or not row[0].isspace()):
            yield line, row
        line = reader.line_num + 1


def _refuse_swallowed_rows(path: Path, body: str, mark: str, skipped: int) -> None:
    """Refuse a quote that is not closed in its row: the rows below would be part of its cell."""
    sign = re.escape(mark)
    # A cell in quotes, its last one if there is, and what follows it.
    quoted = rf'(?:^|[{sign}\n]) *"((?:[^"]++|"")*+)("?)(?= *(.?))'
    for cell in re.finditer(quoted, body, re.DOTALL) if '"' in body else ():
        text, closing, after = cell.groups()
        if not closing or ("\n" in text and after not in {"", mark, "\n"}):
            line = body.count("\n", 0, cell.start(1)) + 1 + skipped
            raise UserError(
                f"{path}, line {line}: a quote opens a cell and is not closed in it, so that the "
                'rows below would belong to it: close it, or write it twice ("") within quotes.',
                "csv-quote",
            )


def _ragged(records: Iterator[tuple[int, list[str]]], header: list[str], mark: str) -> Any:
    """Table of the rows below the header."""
    import pyarrow as pa

    width = len(header)
    columns: list[list[str | None]] = [[] for _ in header]
    odd: list[tuple[int, int]] = []
    rows = 0
    for line, row in records:
        rows += 1
        while len(row) > width and not row[-1].strip():
            row.pop()
        if len(row) == width - 1 and not header[-1]:
            row.append("")
        if len(row) != width:
            odd.append((line, len(row)))
            continue
        for column, cell in zip(columns, row, strict=True):
            column.append(cell or None)
    if odd:
        line, count = odd[0]
        always = len(odd) == rows and len({count for _, count in odd}) == 1
        raise _MisfitError(mark, width, line, count, always)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return pa.table(arrays, names=list(map(str, range(width))))


def _only(path: Path, fitting: dict[str, tuple[list[str], Any]]) -> str:
    """The only separator that fits, or the only one by which no cell holds another of them."""
    if len(fitting) > 1:
        several = {mark: fit for mark, fit in fitting.items() if len(fit[0]) > 1}
        clean = [m for m, (_, cells) in several.items() if _is_clean(cells, [*several], m)]
        if len(clean) != 1:
            named = " or ".join(SEPARATORS[mark] for mark in fitting)
            raise UserError(
                f"{path} can be read as separated by {named}: a first line such as sep=; says it.",
                "csv-separator",
            )
        return clean[0]
    return next(iter(fitting))


def _is_clean(cells: Any, marks: list[str], mark: str) -> bool:
    others = [other for other in marks if other != mark]
    for column in cells.columns:
        for cell in column.slice(0, 1000).to_pylist():
            if cell and any(other in cell for other in others) and not NUMBER.fullmatch(cell):
                return False
    return True


def _refuse_hidden_columns(path: Path, body: str, skipped: int) -> None:
    """Refuse a header of one cell above rows of several."""
    for mark in SEPARATORS:
        if mark == "," or mark not in body:
            continue
        counts = Counter(len(row) for _, row in _records(_cut(body, 1), mark))
        if len(counts) == 1 and (count := next(iter(counts))) > 1:
            misfit = _MisfitError(mark, 1, 2, count, always=True)
            raise UserError(_sentence(path, misfit, skipped), "csv-ragged-row")


def _sentence(path: Path, misfit: _MisfitError, skipped: int) -> str:
    mark = SEPARATORS[misfit.separator]
    if misfit.header > 1 and misfit.always and misfit.cells == misfit.header + 1:
        why = "they may begin with names of rows: write the file without these"
    elif misfit.header == 1:
        why = "the first line must hold the names of the columns, one for each cell"
    elif misfit.separator == "," and misfit.cells > misfit.header:
        why = (
            "each row needs as many cells as the header; a cell with a comma, such as 1,5, has to "
            "be in quotes"
        )
    else:
        why = "each row needs as many cells as the header"
    rows = "all rows have" if misfit.always else f"line {misfit.line + skipped} has"
    return (
        f"{path} cannot be read: its header has {misfit.header} "
        f"{'cell' if misfit.header == 1 else 'cells'} separated by {mark} and {rows} "
        f"{misfit.cells}: {why}."
    )


def _named(path: Path, header: list[str], cells: Any, mark: str, skipped: int) -> CsvFile:
    """The file with the columns whose names occur once."""
    if not any(header):
        raise UserError(f"{path} is empty; a row of column names must come first.", "csv-header")
    if all(NUMBER.fullmatch(name) for name in header) and not all(map(str.isdigit, header)):
        raise UserError(
            f"The first row of {path} holds numbers: a row of column names must come first.",
            "csv-header",
        )
    counts = Counter(header)
    named = [index for index, name in enumerate(header) if name and counts[name] == 1]
    table = cells.select(named).rename_columns([header[index] for index in named])
    twice = tuple(name for name, count in counts.items() if count > 1 or not name)
    rows = len(cells)
    # Rows of separators alone follow what Excel once had there; in one column an empty row is a
    # missing value.
    while rows and cells.num_columns > 1 and not any(c[rows - 1].is_valid for c in cells.columns):
        rows -= 1
    dropped = len(cells) - rows
    notes = () if not dropped else (f"{dropped} empty rows at the end left out",)
    return CsvFile(path, table.slice(0, rows), mark, twice, notes, skipped=skipped)


def read_csv_rows(path: Path) -> tuple[list[list[str]], str]:
    """Rows of a small CSV file, the header first, and how it was read if not as usual.

    Cells are stripped of spaces, and empty rows left out, as are empty cells beyond the header's
    last. Rows may have other numbers of cells; nothing is a missing value.
    """
    text, encoding = read_csv_text(path)
    skipped, hint = _after_hint(text)
    body = re.sub(r"\A(#[^\n]*(\n+|$))+", "", _cut(text, skipped))
    rows_by_mark = {}
    for mark in [hint] if hint in SEPARATORS else _candidates(body):
        rows = [[cell.strip() for cell in row] for _, row in _records(body, mark)]
        rows = [row for row in rows if any(row)]
        width = max((n for n, cell in enumerate(rows[0], 1) if cell), default=0) if rows else 0
        # A separator at the end of a row is nothing.
        rows_by_mark[mark] = [row if any(row[width:]) else row[:width] for row in rows]

    def fit(mark: str) -> tuple[bool, int]:
        """By the right separator all rows are equally long, and the header has the most cells."""
        lengths = [len(row) for row in rows_by_mark[mark]] or [0]
        return len({*lengths}) == 1, lengths[0]

    mark = max(rows_by_mark, key=fit)
    return rows_by_mark[mark], ", ".join(_how(mark, encoding))


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
        counts = {mark: max(self.decimals[mark], self.thousands[_OTHER[mark]]) for mark in _NAMES}
        return {mark: row for mark, row in counts.items() if row >= 0}


def plain_numbers(file: CsvFile, names: Iterable[str]) -> CsvFile:
    """The file with numbers of the columns ``names`` as Python writes them, ``1234.5``.

    Spaces around a cell are taken away, and a cell of spaces is missing. A column in which less
    than half of the cells are numbers keeps its texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = dict(zip(file.cells.column_names, file.cells.columns, strict=True))
    forms: dict[str, _Forms] = {}
    usual: list[str] = []
    for name, is_usual in _usual({name: columns[name] for name in names}):
        if is_usual:
            usual.append(name)
            continue
        columns[name] = trimmed(columns[name])
        if (mark_forms := _forms(columns[name])) is not None:
            forms[name] = mark_forms
    # A point has its usual meaning unless the file gives a reason to doubt it.
    doubtful = any("," in one.shown or one.either[","] >= 0 for one in forms.values())
    if doubtful or file.separator == ";":
        for name in usual:
            if pc.any(pc.match_substring(columns[name], ".")).as_py():
                mark_forms = _forms(columns[name])
                assert mark_forms is not None
                forms[name] = mark_forms
    mark = _decimal_mark(file, forms)
    notes = ["decimal comma"] if mark == "," else []
    for name in forms:
        columns[name] = _rewritten(columns[name], mark)
    groups = [sign for sign in _NAMES if any(one.thousands[sign] >= 0 for one in forms.values())]
    if groups:
        notes.append(f"thousands separated by {groups[0]}")
    cells = pa.table(columns) if columns else file.cells
    shown = mark if any(one.shown for one in forms.values()) else ""
    return replace(file, cells=cells, notes=(*file.notes, *notes), mark=shown)


def doubtful_point(columns: Mapping[str, Any]) -> tuple[str, str] | None:
    """Column and text of a number such as ``1.234``, if no text of one file shows what its point
    means."""
    doubt = None
    for name, column in columns.items():
        forms = _forms(trimmed(column))
        if forms is not None and forms.shown:
            return None
        if forms is not None and forms.either["."] >= 0:
            doubt = name, column[forms.either["."]].as_py()
    return doubt


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
        return {
            mark: pc.index(pc.match_substring_regex(column, form(mark)), True).as_py()
            for mark in _NAMES
        }

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
            f"({point}): write them all in one way, or leave one of the columns out.",
            "decimal-mark",
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
        raise UserError(_doubtful(file, *doubt, "no other number shows which"), "decimal-mark")
    mark = next(iter(shown))
    for name, one in forms.items():
        if one.either[_OTHER[mark]] >= 0 and one.thousands[_OTHER[mark]] < 0:
            other = f"other numbers have a decimal {_NAMES[mark]}"
            why = f"{other} ({_cell(file, *shown[mark])})"
            raise UserError(_doubtful(file, name, one.either[_OTHER[mark]], why), "decimal-mark")
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
