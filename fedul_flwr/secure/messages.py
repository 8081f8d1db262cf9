"""What arrives from elsewhere is checked before it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedul_flwr.errors import BadMessageError
from fedul_flwr.secure.similarity import Arrays


def checked_array(
    origin: str, message: Arrays, name: str, dtype: DTypeLike, shape: tuple[int, ...]
) -> NDArray[Any]:
    """The array of a message that has this name.

    Parameters
    ----------
    origin : who sent the message and when, for the refusal: "Client 3 sent in step 'offer'".
    dtype, shape : what the array must have, exactly.

    Raises
    ------
    BadMessageError
        It is missing or has another type, byte order or shape; no value of it is told.
    """
    found = message.get(name)
    if found is None or found.dtype != dtype or found.shape != shape:
        form = "nothing" if found is None else f"{found.dtype} {found.shape}"
        raise BadMessageError(f"{origin} {form} as {name!r}; it must be {np.dtype(dtype)} {shape}.")
    return found
