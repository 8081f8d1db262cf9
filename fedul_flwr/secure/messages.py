"""Checks of arrays from the network before they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedul_flwr.errors import BadMessageError
from fedul_flwr.secure.similarity import Arrays


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
