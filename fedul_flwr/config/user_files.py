"""Read files that a user names, or that lie in a run's folder: every failure is one sentence.

To run a user's Python file, of tables, named rows or a search, is the user's command.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from fedul_flwr.errors import UserError

LARGEST_TEXT = 2**30
"""Bytes of the largest text file that is read."""


def regular_file(path: Path) -> Path:
    """Return ``path``; UserError for a folder, and for a pipe or device, which may have no end.

    A missing file is not refused.
    """
    try:
        if not path.exists() or path.is_file():
            return path
        why = f"it is {'a folder' if path.is_dir() else 'a pipe or a device'}, not a file"
    except OSError as error:
        why = reason(error)
    raise UserError(f"{path} cannot be read: {why}.", "file-not-readable")


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
    """Parse JSON."""
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


# Settings from the command line: ``key=value`` pairs and TOML files, in any combination.

FLOWER_ROUNDS, ROUNDS = "num-server-rounds", "num-rounds"
"""The number of rounds as Flower's own apps call it, and as it is called here."""
_WORD = re.compile(r"[\w./~][\w./~:,+@-]*")
_PAIR = re.compile(r"""\s*([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|\S+)(?:\s+|$)""")


def parse_overrides(values: Sequence[str]) -> dict[str, bool | int | float | str]:
    """Read run-config settings as Flower writes them.

    Parameters
    ----------
    values
        Each is ``key=value key=value …`` with TOML values, or the path of a TOML file. A value that
        is no TOML and one word, such as ``fedul``, is text. Later ones override earlier ones.

    Examples
    --------
    >>> parse_overrides(["method=fedul num-rounds=5", "fedul.num-sets=20"])
    {'method': 'fedul', 'num-rounds': 5, 'fedul.num-sets': 20}
    """
    settings: dict[str, bool | int | float | str] = {}
    for value in values:
        if value.endswith(".toml") and "=" not in value:
            settings |= flatten(read_toml(user_path(value)))
            continue
        position = 0
        while value[position:].strip():
            pair = _PAIR.match(value, position)
            if pair is None:
                raise UserError(
                    f"--run-config {value!r} cannot be read from {value[position:].strip()!r} on: "
                    "it takes key=value pairs or the path of a .toml file.",
                    "setting-not-readable",
                    option="--run-config",
                )
            key, written = pair.groups()
            try:
                parsed = tomllib.loads(f"{key} = {written}")
            except (ValueError, RecursionError):  # ValueError: more than 4300 digits, too
                if not _WORD.fullmatch(written):
                    raise UserError(
                        f"Setting {key}={written[:100]} is not valid: text needs quotes inside "
                        f"the shell's own, as in -c '{key}=\"{written[:100]}\"'.",
                        "setting-not-readable",
                        setting=key,
                    ) from None
                parsed = tomllib.loads(f'{key} = "{written}"')
            settings |= flatten(parsed)
            position = pair.end()
    return with_rounds(settings)


def read_toml(path: Path) -> dict[str, Any]:
    """Content of a TOML file; UserError if it cannot be read."""
    text = read_text(path)
    if text is None:
        raise UserError(f"{path} cannot be read: No such file or directory.", "file-missing")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        is_deep = isinstance(error, RecursionError)
        why = "it is nested too deeply" if is_deep else reason(error)
        raise UserError(f"{path} is not a valid TOML file: {why}.", "file-syntax") from None


def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """Tables within tables as dotted keys; UserError for a value that no setting can have."""
    flat: dict[str, bool | int | float | str] = {}
    if prefix.count(".") > 2:  # no setting lies so deep
        raise UserError(f"Setting {prefix[:100]}… lies in too many tables.", "setting-not-readable")
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            flat[prefix + key] = value
        else:
            raise UserError(
                f"Setting {prefix}{key} = {value!r} must be true, false, a number or text.",
                "setting-wrong-type",
            )
    return flat


def with_rounds(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``flat`` with the number of rounds under its name here; 0 under Flower's name is none."""
    settings = dict(flat)
    rounds = settings.pop(FLOWER_ROUNDS, 0)
    if rounds == 0 and rounds is not False:
        return settings
    # Flower passes defaults, too: only another value than the default was set by somebody.
    from fedul_flwr.config.shared import SharedSettings

    if settings.get(ROUNDS, rounds) not in (rounds, SharedSettings().num_rounds):
        raise UserError(
            f"Settings {FLOWER_ROUNDS} and {ROUNDS} are two names of one: leave one of them out.",
            "settings-contradict",
        )
    return settings | {ROUNDS: rounds}


T = TypeVar("T")
_PACKAGE = "fedul_tables"
"""Name of the folder of a file as a package while the file runs."""


def run_file(file: Path, root: Path | None = None) -> ModuleType:
    """Run a user's Python file; its relative imports are from files below ``root``.

    It runs anew every time, with all that it imports relatively.
    """
    if read_text(file) is None or file.suffix != ".py":
        raise UserError(f"{file} is no Python file.", "file-missing")
    file, root = file.resolve(), (root or file.parent).resolve()
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]
    package = sys.modules[_PACKAGE] = ModuleType(_PACKAGE)
    package.__path__ = [str(root)]
    importlib.invalidate_caches()
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a change counts at once
    try:
        with naming(file):
            return importlib.import_module(
                ".".join([_PACKAGE, *file.relative_to(root).with_suffix("").parts])
            )
    finally:
        sys.dont_write_bytecode = writes


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Name the user's file in errors of its code."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{file}: {error}", error.code, **error.values) from error
    except (Exception, SystemExit) as error:
        text = f"{file}: {type(error).__name__}: {error}"
        raise UserError(text, "table-file-wrong") from error


def attribute(file: Path, name: str, kind: type[T], root: Path | None = None) -> T:
    """The value ``name`` of a user's Python file, which must be a ``kind``."""
    value = getattr(run_file(file, root), name, None)
    if not isinstance(value, kind):
        raise UserError(f"{file} must define {name}, a {kind.__name__}.", "table-file-wrong")
    return value
