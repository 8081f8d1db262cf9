"""Checks of arrays from the network before they are used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.similarity import Arrays


class PeerError(UserError):
    """A client's message to another client that cannot be used.

    Attributes
    ----------
    peer : its sender.
    """

    def __init__(self, peer: int, message: str) -> None:
        super().__init__(message)
        self.peer = peer


@contextmanager
def messages_from(peer: int) -> Iterator[None]:
    """Errors in this block are about what client ``peer`` sent: they become a PeerError."""
    try:
        yield
    except UserError as error:
        raise PeerError(peer, str(error)) from None


def checked_array(
    origin: str, message: Arrays, name: str, dtype: DTypeLike, shape: tuple[int, ...]
) -> NDArray[Any]:
    """The array ``name`` of a message, after a check.

    Parameters
    ----------
    origin : sender and step, for the error's text: "Client 3 sent in step 'offer'".
    dtype, shape : required type and shape.

    Raises
    ------
    BadMessageError
        If it is missing or has another type, byte order or shape; the text has none of its values.
    """
    found = message.get(name)
    if found is None or found.dtype != dtype or found.shape != shape:
        form = "nothing" if found is None else f"{found.dtype} {found.shape}"
        raise BadMessageError(f"{origin} {form} as {name!r}; it must be {np.dtype(dtype)} {shape}.")
    return found
