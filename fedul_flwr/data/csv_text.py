"""The text of a CSV file: which encoding it has, and lines that all end alike."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from fedul_flwr.config.user_files import reason, regular_file
from fedul_flwr.errors import UserError

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
_STRANGE = re.compile(
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

    Raises
    ------
    UserError
        If the file cannot be read, is no text, or its encoding is not sure.
    """
    try:
        data = regular_file(path).read_bytes()
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.") from error
    _refuse_other_files(path, data)
    text, encoding = _decoded(path, data.rstrip(b"\x1a"))  # the mark of DOS at the end of a file
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(
            f"{path} holds a NUL in line {line}: it is no text, or UTF-16 without a byte order "
            "mark. Save it as CSV in UTF-8."
        )
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, encoding


def _refuse_other_files(path: Path, data: bytes) -> None:
    begin = data[:64].lstrip().lower()
    for sign, what in _NO_TEXT:
        if begin.startswith(sign.lower()):
            raise UserError(f"{path} is {what}, not a CSV file: save it as CSV.")


def _decoded(path: Path, data: bytes) -> tuple[str, str]:
    for mark, codec, name in _MARKS:
        if data.startswith(mark):
            try:
                return data[len(mark) :].decode(codec), name
            except UnicodeDecodeError as error:
                place = _place(data[len(mark) :], error)
                raise UserError(
                    f"{path} begins with the mark of {name or 'UTF-8'} but is something else from "
                    f"{place}: save it as CSV in UTF-8."
                ) from None
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        return _windows(path, data, error), WINDOWS


def _windows(path: Path, data: bytes, error: UnicodeDecodeError) -> str:
    """The text of a file that is not UTF-8, if it is surely Windows-1252."""
    wrong = f"{path} is not UTF-8: {_place(data, error)}"
    if (other := _MULTIBYTE.search(data)) is not None:
        line = data.count(b"\n", 0, other.start()) + 1
        raise UserError(
            f"{wrong} looks like Windows-1252, and line {line} like UTF-8; save all of it as UTF-8."
        )
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError as second:
        raise UserError(
            f"{wrong} and {_place(data, second)} fit no encoding that is read here (UTF-8, UTF-16 "
            "with a byte order mark, Windows-1252): save the file as UTF-8."
        ) from None
    if (strange := _STRANGE.search(text)) is not None:
        line = text.count("\n", 0, strange.start()) + 1
        raise UserError(
            f"{wrong} is in another encoding: as Windows-1252, line {line} would hold "
            f"{strange[0]!r}. Save the file as UTF-8."
        )
    return text


def _place(data: bytes, error: UnicodeDecodeError) -> str:
    line = data.count(b"\n", 0, error.start) + 1 or 1
    return f"byte 0x{data[error.start]:02X} in line {line}"
