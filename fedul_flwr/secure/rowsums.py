"""Masked sums of matrices: each client learns its own rows, the server none (XCLP, section 3.2).

Numbers are represented by integers modulo 2^64 that count multiples of 2^-40. So sums are exact and
do not depend on their order, and masks M_i with sum 0 cancel. A client never sends its own rows:
the server sums the other clients' values for them, and the client adds its own values to the
result.

Before its rows a client sends a check row: masks alone, which add up to 0 over all participants.
If they do not, each tells the server the words of its check row for each other participant. These
are used for nothing else, and show whose row is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import mode
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Floats
from fedul_flwr.errors import UserError
from fedul_flwr.secure.session import derive, keystream

Words = NDArray[np.uint64]

FRACTION_BITS = 40
"""Number of fractional bits."""

LARGEST_SUM = 2.0**22
"""Bound on participants times largest entry, below 2^23, where sums would overflow."""


class WrongSumError(UserError):
    """Rows of a sum that no honest participants can have made: one of them sent something else."""

    code = "sum-wrong"


class Share(NamedTuple):
    """One client's part of a sum: the rows that it sends, and those that it keeps."""

    sent: Words
    stored: Words


def split_share(part: Floats, rows: slice, participants: int, mask: Words | None = None) -> Share:
    """Split a client's summand into rows to send and rows to keep.

    Parameters
    ----------
    part : ``(R, K)``, the client's summand.
    mask : ``(R, K)``, added modulo 2^64; all participants' masks must add up to 0. ``None`` is 0.

    Returns
    -------
    uint64 ``(R - own, K)`` without the own rows, and ``(own, K)``.
    """
    words = to_words(part, participants)
    if mask is not None:
        words = words + mask
    return Share(np.delete(words, rows, axis=0), words[rows])


def pair_masks(keys: Mapping[int, bytes], client: int, shape: tuple[int, int]) -> Words:
    """This client's mask M_i = Σ_j M_ij, with M_ij = -M_ji, so that all masks sum to 0."""
    mask = np.zeros(shape, dtype=np.uint64)
    for peer, key in keys.items():
        drawn = keystream(key, 8 * mask.size).view("<u8").reshape(shape)
        # Modulo 2^64, the arithmetic of uint64.
        mask = mask + drawn if client < peer else mask - drawn
    return mask


def check_words(keys: Mapping[int, bytes], num_classes: int) -> Words:
    """Words of this client's check row, ``(participants - 1, K)``, a row for each other client."""
    streams = [keystream(derive(keys[peer], b"check"), 8 * num_classes) for peer in sorted(keys)]
    words = np.array(streams, dtype=np.uint8).reshape(len(keys), 8 * num_classes)
    return words.view("<u8").astype(np.uint64)


def check_row(words: Words, client: int, peers: Iterable[int]) -> Words:
    """The check row ``(1, K)`` that :func:`check_words` makes."""
    row = np.zeros((1, words.shape[1]), dtype=np.uint64)
    for peer, drawn in zip(sorted(peers), words, strict=True):
        row = row + drawn if client < peer else row - drawn
    return row


def rows_agree(rows: Mapping[int, Words]) -> bool:
    """Whether the participants' check rows ``(K,)`` add up to 0.

    Examples
    --------
    >>> key = bytes(32)
    >>> one, other = check_words({1: key}, 2), check_words({0: key}, 2)
    >>> rows_agree({0: check_row(one, 0, [1])[0], 1: check_row(other, 1, [0])[0]})
    True
    """
    return not sum(rows.values(), np.zeros((), np.uint64)).any()


def wrong_rows(rows: Mapping[int, Words], words: Mapping[int, Words]) -> Iterator[tuple[int, int]]:
    """Contradictions of check rows: a client with itself, or two that have other words.

    Parameters
    ----------
    rows : ``(K,)`` of every participant.
    """
    complaints = {
        client: dict(zip(sorted(rows.keys() - {client}), words[client], strict=False))
        for client in rows
    }
    for client, row in rows.items():
        if (check_row(words[client], client, complaints[client])[0] != row).any():
            yield client, client
        for peer, drawn in complaints[client].items():
            if (drawn != complaints[peer][client]).any():
                yield client, peer


def sum_shares(sent: Mapping[int, Words], sizes: Mapping[int, int]) -> dict[int, Words]:
    """For every client, sum the others' values for its rows.

    Returns
    -------
    uint64 ``(sizes[i], K)`` for each participant i.
    """
    total = sum(sizes.values())
    # The server does not know K: take the most frequent one, so that the error names the outlier.
    num_classes = mode([words.shape[-1] for words in sent.values() if words.ndim == 2] or [0])
    sums = {client: np.zeros((size, num_classes), np.uint64) for client, size in sizes.items()}
    for sender in sizes:
        words = sent[sender]
        if words.dtype != np.uint64 or words.shape != (total - sizes[sender], num_classes):
            raise UserError(
                f"Client {sender} sent a share {words.dtype} {words.shape}; it must be uint64 "
                f"({total - sizes[sender]}, {num_classes}).",
                "message-form",
            )
        start = 0
        for client, size in sizes.items():
            if client != sender:
                sums[client] += words[start : start + size]
                start += size
    return sums


def open_rows(words: Words, received: Words) -> Floats:
    """A client's rows of the sum ``(own, K)``: the received rows plus those it kept."""
    if received.dtype != np.uint64 or received.shape != words.shape:
        raise UserError(
            f"Rows of a sum came back as {received.dtype} {received.shape}; "
            f"they must be uint64 {words.shape}.",
            "message-form",
        )
    rows = from_words(words + received)
    if np.abs(rows).max(initial=0) >= LARGEST_SUM:
        raise WrongSumError("Rows of a sum hold numbers that are too large: masks did not cancel.")
    return rows


def to_words(numbers: Floats, participants: int = 1) -> Words:
    """Convert to fixed point: the nearest multiples of 2^-40, as integers modulo 2^64."""
    largest = np.abs(numbers).max(initial=0)
    if not largest * participants < LARGEST_SUM:  # this form also refuses NaN
        raise UserError(
            f"A sum of {participants} shares holds numbers below {LARGEST_SUM / participants:.3g}; "
            "one is larger or not finite.",
            "message-out-of-range",
        )
    return np.rint(numbers * 2.0**FRACTION_BITS).astype(np.int64).view(np.uint64)


def from_words(words: Words) -> Floats:
    """Convert fixed-point words to numbers of the same shape.

    The upper half of the ring represents negative numbers: the range is [-2^23, 2^23).
    """
    return np.asarray(words.view(np.int64) * 2.0**-FRACTION_BITS, dtype=np.float64)
