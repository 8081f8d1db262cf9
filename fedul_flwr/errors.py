"""Exceptions for errors that the user can fix."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any, Self


class UserError(Exception):
    """Bad input, a refused setting, or unusable data.

    The message is one sentence that names the thing and what is allowed. The command line prints
    it with its code, without a traceback, and ends with a non-zero exit code.

    Parameters
    ----------
    sentence : the message.
    code : name of the kind of mistake, one of docs/errors.md; that of the
        class by default.
    values : what the mistake is about, for programs: ``setting``, ``option`` and the like; never
        data, labels or keys.

    Examples
    --------
    >>> error = UserError("Setting k = 0: must be at least 1.", "setting-out-of-range", setting="k")
    >>> error.code, error.values
    ('setting-out-of-range', {'setting': 'k'})
    """

    code: str = ""

    def __init__(self, sentence: str, code: str = "", **values: object) -> None:
        super().__init__(sentence)
        self.code = code or self.code
        self.values: dict[str, Any] = values

    @property
    def with_code(self) -> str:
        """The sentence and its code, as the command line prints them."""
        return f"{self} [{self.code}]" if self.code else str(self)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """An error from what :attr:`with_code` wrote; its values are lost."""
        match = re.fullmatch(r"(.*) \[([a-z0-9-]+)\]\s*", text, re.DOTALL)
        return cls(*match.groups()) if match else cls(text.strip())


class OwnDataError(UserError):
    """An error in a data owner's data or node config.

    The message may contain paths, names and values that only the owner may see: on a device
    :mod:`fedul_flwr.federated.client` does not send it to the server.
    """


class StorageError(UserError):
    """A file that cannot be written: a full disk, a folder that is gone or must not be changed."""

    code = "file-not-writable"


class BadMessageError(UserError):
    """An invalid message; only its sender counts as failed.

    The text says what is wrong with the message's form, and contains none of its values.
    """

    code = "message-form"


class MissingPackageError(UserError):
    """A package of an extra of fedul-flwr that is not installed."""


def require(extra: str, what: str, *packages: str, **values: object) -> None:
    """Refuse what needs packages that are not installed, in a sentence that names their extra.

    Call it where a package is imported, and before a run that will need it.

    Parameters
    ----------
    extra : a list under ``project.optional-dependencies`` in ``pyproject.toml``.
    what : what needs the packages; the subject of the sentence.
    packages : the names that are imported.
    values : as for :class:`UserError`.

    Examples
    --------
    >>> require("tune", "A search", "no_such_package")
    Traceback (most recent call last):
    ...
    fedul_flwr.errors.MissingPackageError: A search needs no_such_package: \
pip install 'fedul-flwr[tune]'.
    """
    if missing := [name for name in packages if find_spec(name) is None]:
        raise MissingPackageError(
            f"{what} needs {', '.join(missing)}: pip install 'fedul-flwr[{extra}]'.",
            "package-missing",
            **values,
        )


class NoUpdateError(UserError):
    """A round in which no client sent an update that can be combined."""

    code = "no-update"


class TooFewLeftError(UserError):
    """A sum that stays closed, as a rule because fewer clients than it takes are there."""

    code = "sum-stays-closed"


class NothingToLearnError(NoUpdateError):
    """A round whose clients answered, and none of them had a point to learn from."""

    code = "nothing-to-learn"


def in_one_sentence(error: BaseException) -> UserError | None:
    """``error`` if it is a :class:`UserError`, one in its place if the machine or its files are at
    fault, or ``None`` if it is a mistake in a program.

    Examples
    --------
    >>> str(in_one_sentence(FileNotFoundError(2, "No such file or directory", "points.csv")))
    'points.csv: No such file or directory.'
    >>> in_one_sentence(ZeroDivisionError()) is None
    True
    """
    if isinstance(error, UserError):
        return error
    of_torch = isinstance(error, RuntimeError) and "allocate memory" in str(error)
    if isinstance(error, MemoryError) or of_torch:
        detail = f" ({str(error).splitlines()[0]})" if str(error) else ""
        return UserError(
            f"This needs more memory than there is{detail}: choose smaller settings.",
            "not-enough-memory",
        )
    if isinstance(error, OSError):
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        where = f"{' and '.join(names)}: " if names else ""
        return StorageError(f"{where}{error.strerror or error}.", "path-not-usable")
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # as pathlib has it
        return UserError("This user has no home folder: set HOME.", "path-not-usable")
    if isinstance(error, UnicodeEncodeError):
        # A surrogate stands for a byte of a name that is no UTF-8; the text may have more than it.
        name = re.search(r'[^\0"]*[\ud800-\udfff][^\0"]*', str(error.object))
        text = name[0] if name else str(error.object)
        return UserError(f"{text!r} is not valid text: its name is not UTF-8.", "path-not-usable")
    return None
