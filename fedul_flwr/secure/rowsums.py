"""Sums of matrices of which each client gets some rows and the server none (XCLP, section 3.2).

Numbers are integers modulo 2^64 that stand for multiples of 2^-40, so that sums are exact and do
not depend on their order, and so that masks M_i with sum 0 can be added and cancel. A client keeps
the rows that are its own, here and where there are masks: the server adds what the others sent for
them, and the client adds its part to what comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mode
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.data.types import Floats
from fedul_flwr.errors import UserError
from fedul_flwr.secure.randomness import keystream

Words = NDArray[np.uint64]

FRACTION_BITS = 40
"""Bits behind the binary point."""

LARGEST_SUM = 2.0**22
"""A bound on participants times largest entry, below the 2^23 where sums would wrap round."""


class Share(NamedTuple):
    """One client's part of a sum: the rows it sends, and those that it keeps."""

    sent: Words
    kept: Words


def split_share(part: Floats, own: slice, participants: int, mask: Words | None = None) -> Share:
    """Turn a client's summand into what it sends and what it keeps.

    Parameters
    ----------
    part : ``(R, K)``, the client's summand.
    own : its own rows.
    participants : number of summands, for the check of their size.
    mask : ``(R, K)``, added modulo 2^64; all participants' masks must add up to 0. ``None`` is 0.

    Returns
    -------
    uint64 ``(R - own, K)`` without the own rows, and ``(own, K)``.

    Raises
    ------
    UserError
        Numbers that are not finite or too large for the sum.
    """
    words = to_words(part, participants)
    if mask is not None:
        words = words + mask
    return Share(np.delete(words, own, axis=0), words[own])


def pair_masks(keys: Mapping[int, bytes], own: int, shape: tuple[int, int]) -> Words:
    """This client's mask M_i = Σ_j M_ij, with M_ij = -M_ji, so that all clients' add up to 0.

    Parameters
    ----------
    keys : for each other participant, 32 bytes that only it knows as well, for this sum alone.
    own : this client's number, which says who of the two adds and who subtracts.
    shape : of the summand.
    """
    mask = np.zeros(shape, dtype=np.uint64)
    for peer, key in keys.items():
        stream = keystream(key, 8 * mask.size).view("<u8").reshape(shape)
        # Modulo 2^64, as uint64 counts.
        mask = mask + stream if own < peer else mask - stream
    return mask


def combine(sent: Mapping[int, Words], sizes: Mapping[int, int]) -> dict[int, Words]:
    """Sum up for every client what the others sent for its rows.

    Parameters
    ----------
    sent : what each participant sent, rows of the others in the order of ``sizes``.
    sizes : number of rows of each participant, in the order of their blocks of rows.

    Returns
    -------
    uint64 ``(sizes[i], K)`` for each participant i.

    Raises
    ------
    UserError
        A message of another shape; it is named by its client.
    """
    total = sum(sizes.values())
    # The server does not know K: what most have sent, so that the odd one is named.
    num_classes = mode([words.shape[-1] for words in sent.values() if words.ndim == 2] or [0])
    sums = {client: np.zeros((size, num_classes), np.uint64) for client, size in sizes.items()}
    for sender in sizes:
        words = sent[sender]
        if words.dtype != np.uint64 or words.shape != (total - sizes[sender], num_classes):
            raise UserError(
                f"Client {sender} sent a share {words.dtype} {words.shape}; it must be uint64 "
                f"({total - sizes[sender]}, {num_classes})."
            )
        start = 0
        for client, size in sizes.items():
            if client != sender:
                sums[client] += words[start : start + size]
                start += size
    return sums


def open_rows(kept: Words, received: Words) -> Floats:
    """A client's rows of the sum ``(own, K)``: what came back and what it kept.

    Raises
    ------
    UserError
        Rows of another shape than those that were kept, or such that no summands have this sum.
    """
    if received.dtype != np.uint64 or received.shape != kept.shape:
        raise UserError(
            f"Rows of a sum came back as {received.dtype} {received.shape}; "
            f"they must be uint64 {kept.shape}."
        )
    rows = from_words(kept + received)
    if np.abs(rows).max(initial=0) >= LARGEST_SUM:
        raise UserError("Rows of a sum hold numbers that are too large: masks did not cancel.")
    return rows


def to_words(numbers: Floats, participants: int = 1) -> Words:
    """Fixed point: the nearest multiples of 2^-40, as integers modulo 2^64.

    Parameters
    ----------
    numbers : of any shape, which the result has too.
    participants : how many such shares are added up, at least 1.

    Raises
    ------
    UserError
        Numbers that are not finite, or so large that a sum of as many participants could wrap.
    """
    largest = np.abs(numbers).max(initial=0)
    if not largest * participants < LARGEST_SUM:  # so NaN is refused too
        raise UserError(
            f"A sum of {participants} shares holds numbers below {LARGEST_SUM / participants:.3g}; "
            "one is larger or not finite."
        )
    return np.rint(numbers * 2.0**FRACTION_BITS).astype(np.int64).view(np.uint64)


def from_words(words: Words) -> Floats:
    """The numbers that fixed-point words stand for, in the same shape.

    The upper half of the ring is negative: numbers lie in [-2^23, 2^23).
    """
    return np.asarray(words.view(np.int64) * 2.0**-FRACTION_BITS, dtype=np.float64)
