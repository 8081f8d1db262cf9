"""The exceptions for what a user can put right."""

from __future__ import annotations

from typing import Literal

Refusal = Literal["settings", "format", "classes", "priors", "rank", "labels"]
"""What is to be put right: settings, files that cannot be read as they should, names of classes,
class priors, their rank, or labels."""


class UserError(Exception):
    """Bad input, a refused setting or data that cannot be used.

    The message is one sentence that names the thing and what is allowed. The command line prints
    it without a traceback and ends with a non-zero exit code.

    Attributes
    ----------
    refusal : what is to be put right.
    """

    refusal: Refusal = "settings"


class OwnDataError(UserError):
    """What is wrong with a data owner's data or node config.

    The message may hold paths, names and values, for the owner's eyes alone: on a device
    :mod:`fedul_flwr.federated.messages` keeps it from the server.
    """

    def __init__(self, message: str, refusal: Refusal = "format") -> None:
        super().__init__(message)
        self.refusal = refusal


class BadMessageError(UserError):
    """A message that cannot be used: whoever sent it has failed, and perhaps nobody else.

    The sentence says what is wrong with the message's form, and none of its values.
    """


class NoUpdateError(UserError):
    """A round in which no client sent an update that can be combined."""
