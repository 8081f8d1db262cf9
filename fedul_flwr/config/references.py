"""Objects named by ``package.module:name``."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
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
    for folder in map(str, (module_folder(),) if searched is None else searched):
        if folder not in sys.path:
            sys.path.append(folder)  # last, so that it cannot shadow an installed module
    if not all(part.isidentifier() for part in module.split(".")):
        raise UserError(
            f"Setting {setting} = {reference!r}: must be 'package.module:name'.",
            "reference-wrong",
            setting=setting,
        )
    with user_code(f"Setting {setting} = {reference!r}"):
        try:
            imported = importlib.import_module(module)
        except ImportError as err:
            raise UserError(
                f"Setting {setting} = {reference!r}: cannot import it ({err}).",
                "reference-wrong",
                setting=setting,
            ) from err
    if _is_ours(imported):
        raise UserError(
            f"Setting {setting} = {reference!r}: its name is 'fedul_flwr.{reference}', everywhere.",
            "reference-wrong",
            setting=setting,
        )
    try:
        return getattr(imported, attribute)
    except AttributeError:
        raise UserError(
            f"Setting {setting} = {reference!r}: module {module!r} has no {attribute!r}.",
            "reference-wrong",
            setting=setting,
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


_INSTALLED = (
    f"{Path(__file__).parents[1]}{os.sep}",
    *(
        f"{folder}{os.sep}"
        for kind in ("stdlib", "platstdlib", "purelib", "platlib")
        for folder in {sysconfig.get_path(kind), os.path.realpath(sysconfig.get_path(kind))}
    ),
)
"""Beginnings of the paths of installed modules, and of ours."""
_MOST_WHY = 160
"""Most characters of an error's text in a sentence about it."""


@contextmanager
def user_code(what: str) -> Iterator[None]:
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
        origin = _origin(error)
        why = " ".join(str(error).split())
        raised = f"{type(error).__name__}{f': {why}' if why else ''}".rstrip(".")
        raise UserError(f"{what} raises {raised}{origin}.", "own-code-failed") from error


def user_code_error(error: BaseException, what: str) -> UserError | None:
    """A sentence in place of an error that a user's own code has raised; None for another one."""
    frames = traceback.extract_tb(error.__traceback__)
    if not any(_is_own(frame.filename) for frame in frames):
        return None
    return UserError(
        f"{what} stopped in your own code: {error_in_words(error)}.", "own-code-failed"
    )


def error_in_words(error: BaseException) -> str:
    """Type and text of an error on one line, and the line of a user's own code that raised it."""
    why = " ".join(str(error).split())[:_MOST_WHY]
    return f"{type(error).__name__}{f': {why}' if why else ''}{_origin(error)}"


def user_code_trace(error: BaseException) -> str:
    """The traceback of an error from a user's own code on; the whole one without such code."""
    trace = error.__traceback__
    while trace is not None and not _is_own(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))


def _origin(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f" (line {error.lineno} of {error.filename})" if error.filename else ""
    frames = traceback.extract_tb(error.__traceback__)
    named = [frame for frame in frames if not frame.filename.startswith("<")]
    ours = [frame for frame in named if _is_own(frame.filename)] or named
    return f" (line {ours[-1].lineno} of {ours[-1].filename})" if ours else ""


def _is_own(file: str) -> bool:
    """Whether a source file is a user's own: of no installed package, nor of this one."""
    return not file.startswith(("<", *_INSTALLED))
