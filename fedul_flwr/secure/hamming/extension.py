"""Many oblivious transfers from 128 (Ishai, Kilian, Nissim and Petrank 2003, "IKNP").

The roles of the 128 base transfers are reversed: the party that chooses among m pairs has both keys
of each base pair, and the other party has one of each, selected by its 128 secret bits s. The
chooser's matrix T has a column of m bits from the stream of every first key. The other party gets
Q, whose row h is row h of T, plus s if choice h is 1. Of the pads A and B, hashes of row h of Q and
of that row plus s, the chooser therefore knows A if choice h is 0, else B. Parties are semi-honest.

Bits are packed as ``np.packbits`` does.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.randomness import keystream

SECURITY_BITS = 128
"""Base transfers, kappa of the paper."""

ROW_BYTES = SECURITY_BITS // 8

Words = NDArray[np.uint16]


def columns(keys: Bytes, size: int) -> Bytes:
    """Streams of keys ``(128, 32)``, which must not be used elsewhere: uint8 ``(128, size)``."""
    return np.stack([keystream(key.tobytes(), size) for key in keys])


def hide_choices(keys: Bytes, choices: Bytes) -> Bytes:
    """The chooser's message U.

    Parameters
    ----------
    keys : uint8 ``(2, 128, 32)``, both keys of each base pair, for this call only.
    choices : uint8 ``(m / 8,)``, packed.

    Returns
    -------
    uint8 ``(128, m / 8)``, uniform for a party that knows only one key of each pair.
    """
    first, second = (columns(half, len(choices)) for half in keys)
    return first ^ second ^ choices


def hidden_columns(keys: Bytes, secret: Bytes, message: Bytes) -> Bytes:
    """Columns of Q, for the party with the secret.

    Parameters
    ----------
    keys : uint8 ``(128, 32)``, the key of each base pair that ``secret`` selects.
    secret : uint8 ``(16,)``, s, packed.
    message : uint8 ``(128, m / 8)``, U.

    Returns
    -------
    uint8 ``(128, m / 8)``
    """
    chosen = -np.unpackbits(secret)[:, np.newaxis]  # modulo 256: all bits of a byte, or none
    return columns(keys, message.shape[1]) ^ (message & chosen)


def rows_of(some_columns: Bytes) -> Bytes:
    """Rows of a block of columns: uint8 ``(128, b / 8)`` to ``(b, 16)``."""
    return np.packbits(np.unpackbits(some_columns, axis=1).T, axis=1)


def offer_correlated(
    context: bytes, first: int, rows: Bytes, secret: Bytes, bits: Words
) -> tuple[Words, Words]:
    """A block of correlated transfers: vectors r for r + bits or r + (1 - bits), by the choice.

    r is A - bits, so that choice 0 needs no correction; choice 1 needs r + (1 - bits) - B.

    Parameters
    ----------
    context : bytes unique to this extension.
    first : index of the first of these transfers among all m.
    rows : uint8 ``(b, 16)``, rows of Q.
    secret : uint8 ``(16,)``, s, packed.
    bits : uint16 ``(b, n)``, 0 or 1.

    Returns
    -------
    uint16 ``(b, n)`` r, and ``(b, n)`` corrections, to send; both modulo 2^16.
    """
    if_zero, if_one = (
        _pads(context, first, either, bits.shape[1]) for either in (rows, rows ^ secret)
    )
    r = if_zero - bits
    return r, r + (1 - bits) - if_one


def receive_correlated(
    context: bytes, first: int, rows: Bytes, choices: Bytes, corrections: Words
) -> Words:
    """The chooser's result: r + bits for choice 0, r + (1 - bits) for choice 1.

    Parameters
    ----------
    context, first : as for :func:`offer_correlated`.
    rows : uint8 ``(b, 16)``, rows of T.
    choices : ``(b,)``, 0 or 1.
    corrections : uint16 ``(b, n)``, from :func:`offer_correlated`.

    Returns
    -------
    uint16 ``(b, n)``
    """
    return _pads(context, first, rows, corrections.shape[1]) + corrections * choices[:, np.newaxis]


def _pads(context: bytes, first: int, rows: Bytes, width: int) -> Words:
    """Hashes of rows, ``(b, width)``: SHAKE128 of context, the transfer's index and the row.

    The hash must be correlation robust (section 3 of the paper).
    """
    numbers = np.arange(first, first + len(rows), dtype="<u8")[:, np.newaxis].view(np.uint8)
    inputs = np.concatenate([numbers, rows], axis=1)
    data, size = inputs.tobytes(), inputs.shape[1]
    hashed = b"".join(
        hashlib.shake_128(context + data[start : start + size]).digest(2 * width)
        for start in range(0, len(data), size)
    )
    return np.frombuffer(hashed, dtype="<u2").astype(np.uint16).reshape(len(rows), width)
