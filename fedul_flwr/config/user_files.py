"""Read files that a user names, or that lie in a run's folder: every failure is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedul_flwr.errors import UserError

LARGEST_TEXT = 2**30
"""Bytes of the largest text file that is read."""


def regular_file(path: Path) -> Path:
    """Return ``path``; UserError for a folder, and for a pipe or device, which may have no end.

    A missing file is not refused.
    """
    try:
        special = path.exists() and not path.is_file()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {reason(error)}.", "file-not-readable") from None
    if special:
        what = "a folder" if path.is_dir() else "a pipe or a device"
        raise UserError(f"{path} cannot be read: it is {what}, not a file.", "file-not-readable")
    return path


def user_path(named: str | Path, base: Path = Path()) -> Path:
    """The absolute path that a user means by ``named``, with ``~`` and relative to ``base``."""
    try:
        path = (base / Path(named).expanduser()).resolve()
        path.exists()  # raises an error for a name that is too long
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links; a user without a home
        raise UserError(
            f"{str(named)!r} cannot be used as a path: {reason(error)}.", "path-not-usable"
        ) from None
    return path


def read_text(path: Path, errors: str = "strict") -> str | None:
    """Content of a text file in UTF-8, without a byte order mark; None if there is no such file."""
    try:
        with regular_file(path).open(encoding="utf-8-sig", errors=errors) as file:
            text = file.read(LARGEST_TEXT)
            if file.read(1):
                raise UserError(
                    f"{path} cannot be read: it is larger than {LARGEST_TEXT} bytes.",
                    "file-too-large",
                )
            return text
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start}).", "file-not-utf8"
        ) from error
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.", "file-not-readable") from error


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no such file."""
    text = read_text(path)
    if text is None:
        return None
    value = parse_json(text, f"{path}, line {{line}}")
    if not isinstance(value, dict):
        raise UserError(f"{path}, line 1: must hold a JSON object.", "file-syntax")
    return value


def parse_json(text: str, where: str) -> Any:
    """Parse JSON.

    Parameters
    ----------
    where : begins the message of an error; ``{line}`` in it becomes the line within ``text``.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of 5000 digits
        line = str(getattr(error, "lineno", 1))
        why = getattr(error, "msg", "nested too deeply or a number is too long")
        raise UserError(
            f"{where.replace('{line}', line)}: not valid JSON ({why}).", "file-syntax"
        ) from error


def reason(error: Exception) -> str:
    """Why a file could not be used, without its name."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).rstrip(".")
