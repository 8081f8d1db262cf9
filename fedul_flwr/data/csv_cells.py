"""Cells of CSV files that a spreadsheet shows as text, whatever they begin with.

Spreadsheets take a cell for a formula if it begins with one of four signs, and a file's name may
begin with any. Such a cell gets a ``'`` in front, as OWASP advises against CSV injection. Reading
takes it away.
"""

from __future__ import annotations

_SIGNS = ("=", "+", "-", "@", "\t", "\r")


def write_cell(text: str) -> str:
    """``text`` as it stands in a CSV file."""
    return f"'{text}" if text.lstrip("'").startswith(_SIGNS) else text


def read_cell(text: str) -> str:
    """The text of a cell that :func:`write_cell` wrote; other cells are unchanged."""
    is_marked = text.startswith("'") and text.lstrip("'").startswith(_SIGNS)
    return text[1:] if is_marked else text
