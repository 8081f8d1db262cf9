"""Python files of the user: tables, named rows and searches. To run one is the user's command."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from fedul_flwr.config.user_files import read_text
from fedul_flwr.errors import UserError

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
