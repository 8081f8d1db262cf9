"""Exceptions for errors that the user can fix."""

from __future__ import annotations

from typing import Literal

Refusal = Literal["settings", "format", "classes", "priors", "rank", "labels"]
"""Kind of error: settings, unreadable files, names of classes, class priors, rank of the priors'
matrix, or labels."""


class UserError(Exception):
    """Bad input, a refused setting, or unusable data.

    The message is one sentence that names the thing and what is allowed. The command line prints
    it without a traceback and ends with a non-zero exit code.

    Attributes
    ----------
    refusal : kind of error.
    """

    refusal: Refusal = "settings"


class OwnDataError(UserError):
    """An error in a data owner's data or node config.

    The message may contain paths, names and values that only the owner may see: on a device
    :mod:`fedul_flwr.federated.dispatch` does not send it to the server.
    """

    def __init__(self, message: str, refusal: Refusal = "format") -> None:
        super().__init__(message)
        self.refusal = refusal


class StorageError(UserError):
    """A file that cannot be written: a full disk, a folder that is gone or must not be changed."""


class BadMessageError(UserError):
    """An invalid message; only its sender counts as failed.

    The text says what is wrong with the message's form, and contains none of its values.
    """


class NoUpdateError(UserError):
    """A round in which no client sent an update that can be combined."""


class NothingToLearnError(NoUpdateError):
    """A round whose clients answered, and none of them had a point to learn from."""


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
        return UserError(f"This needs more memory than there is{detail}: choose smaller settings.")
    if isinstance(error, OSError):
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        where = f"{' and '.join(names)}: " if names else ""
        return StorageError(f"{where}{error.strerror or error}.")
    if isinstance(error, UnicodeEncodeError):
        text = str(error.object)
        return UserError(f"{text!r} is not valid text: its name is not UTF-8.")
    return None
