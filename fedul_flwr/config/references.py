"""Objects named by ``package.module:name``."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from fedul_flwr.errors import UserError

USER_PATH = "FEDUL_PATH"
"""Environment variable: directory with the user's own modules (default: the current one)."""


_searched: ContextVar[tuple[Path, ...] | None] = ContextVar("searched", default=None)


def module_folder() -> Path:
    """Folder with the user's own modules: ``$FEDUL_PATH``, or the current one."""
    return Path(os.environ.get(USER_PATH) or Path.cwd())


@contextmanager
def modules_from(folder: Path | None) -> Iterator[None]:
    """Context in which names come from somebody's folder, not from the user.

    Beside installed modules ``folder`` is searched, or ``$FEDUL_PATH`` alone: a file of the working
    folder that has the same name by chance must not run.
    """
    named = folder or (Path(path) if (path := os.environ.get(USER_PATH)) else None)
    token = _searched.set((named,) if named else ())
    try:
        yield
    finally:
        _searched.reset(token)


def load_reference(reference: str, setting: str) -> Any:
    """Import the object ``package.module:name``; errors name ``setting``."""
    module, _, attribute = reference.partition(":")
    searched = _searched.get()
    if module.startswith("fedul_flwr."):
        searched = ()  # ours: nobody's folder is needed
    for own in map(str, (module_folder(),) if searched is None else searched):
        if own not in sys.path:
            sys.path.append(own)  # last, so that it cannot shadow an installed module
    if not all(part.isidentifier() for part in module.split(".")):
        raise UserError(f"Setting {setting} = {reference!r}: must be 'package.module:name'.")
    with own_code(f"Setting {setting} = {reference!r}"):
        try:
            imported = importlib.import_module(module)
        except ImportError as err:
            raise UserError(
                f"Setting {setting} = {reference!r}: cannot import it ({err})."
            ) from err
    if _is_ours(imported):
        raise UserError(
            f"Setting {setting} = {reference!r}: its name is 'fedul_flwr.{reference}', everywhere."
        )
    try:
        return getattr(imported, attribute)
    except AttributeError:
        raise UserError(
            f"Setting {setting} = {reference!r}: module {module!r} has no {attribute!r}."
        ) from None


def _is_ours(module: ModuleType) -> bool:
    """Whether a module of this package was found beside it, as in a checkout: a second copy."""
    file = getattr(module, "__file__", None)
    if module.__name__.startswith("fedul_flwr.") or not file:
        return False
    with suppress(ModuleNotFoundError):
        ours = importlib.util.find_spec(f"fedul_flwr.{module.__name__}")
        return bool(ours and ours.origin and Path(ours.origin).samefile(file))
    return False


@contextmanager
def own_code(what: str) -> Iterator[None]:
    """Context for a user's own code: its errors, and its attempts to exit, become sentences.

    Parameters
    ----------
    what : begins the sentence.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        place = _last_place(error)
        why = " ".join(str(error).split())
        raised = f"{type(error).__name__}{f': {why}' if why else ''}".rstrip(".")
        raise UserError(f"{what} raises {raised}{place}.") from error


def _last_place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError):
        return f" (line {error.lineno} of {error.filename})" if error.filename else ""
    own = [frame for frame in frames if not frame.filename.startswith("<")]
    return f" (line {own[-1].lineno} of {own[-1].filename})" if own else ""
