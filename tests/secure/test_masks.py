"""Masks of pairs: they cancel, hide what is sent, and must be new for every attempt."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from fedul_flwr.secure.rowsums import (
    Words,
    open_rows,
    pair_masks,
    split_share,
    sum_shares,
    to_words,
)
from fedul_flwr.secure.session import keystream
from tests.support.refusals import refuses

Floats = NDArray[np.float64]


def keys_of(own: int, clients: list[int], attempt: int = 0) -> dict[int, bytes]:
    """Keys in common with each other one: what a session makes, here of the pair's numbers."""
    return {
        peer: bytes([attempt, min(own, peer), max(own, peer)]).ljust(32, b"k")
        for peer in clients
        if peer != own
    }


def masks_of(clients: list[int], shape: tuple[int, int], attempt: int = 0) -> dict[int, Words]:
    return {own: pair_masks(keys_of(own, clients, attempt), own, shape) for own in clients}


def test_a_mask_by_hand() -> None:
    # Client 5 adds what it has in common with 9 and takes off what it has in common with 2.
    keys = {9: bytes(32), 2: bytes(31) + b"\1"}
    plus, minus = (keystream(key, 48).view("<u8").tolist() for key in keys.values())
    expected = [(a - b) % 2**64 for a, b in zip(plus, minus, strict=True)]
    assert pair_masks(keys, 5, (3, 2)).ravel().tolist() == expected
    # AES-256 of zeros under the key 0 begins dc 95 c0 78 a2 40 89 89 (GCM's test case 14).
    assert pair_masks({9: bytes(32)}, 5, (1, 1)).tolist() == [[0x898940A278C095DC]]
    assert pair_masks({2: bytes(32)}, 5, (1, 1)).tolist() == [[2**64 - 0x898940A278C095DC]]


@pytest.mark.parametrize("count", range(2, 7))
def test_masks_of_all_participants_add_up_to_nothing(count: int) -> None:
    clients = [(7 * place) % 11 for place in range(count)]
    masks = [*masks_of(clients, (5, 3)).values()]
    assert not np.add.reduce(masks).any()
    assert all(mask.dtype == np.uint64 for mask in masks)
    # Without one of them the others do not.
    for left_out in range(count):
        rest = [mask for place, mask in enumerate(masks) if place != left_out]
        assert np.add.reduce(rest).all()


def test_masks_of_nothing() -> None:
    assert pair_masks({}, 3, (4, 2)).tolist() == [[0, 0]] * 4
    assert pair_masks(keys_of(3, [3, 4]), 3, (0, 2)).shape == (0, 2)


def summed(
    parts: dict[int, Floats], sizes: dict[int, int], masks: dict[int, Words] | None
) -> tuple[dict[int, Words], dict[int, Floats]]:
    """What each client sends, and the rows that it ends with."""
    ends = dict(zip(sizes, np.cumsum([*sizes.values()]).tolist(), strict=True))
    shares = {
        client: split_share(
            part,
            slice(ends[client] - sizes[client], ends[client]),
            len(parts),
            None if masks is None else masks[client],
        )
        for client, part in parts.items()
    }
    sent = {client: share.sent for client, share in shares.items()}
    sums = sum_shares(sent, sizes)
    return sent, {client: open_rows(shares[client].stored, sums[client]) for client in parts}


def test_masks_of_a_participant_that_is_missing_are_noticed() -> None:
    sizes = {0: 20, 1: 20, 2: 20}
    masks = masks_of([0, 1, 2, 3], (60, 2))
    parts = {client: np.ones((60, 2)) for client in sizes}
    with refuses("sum-wrong", match="large"):
        summed(parts, sizes, masks)


def chi_square(words: Words) -> float:
    """Pearson's statistic of the bytes against a uniform distribution; 255 degrees of freedom."""
    counts = np.bincount(np.ravel(words).view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    return float(((counts - expected) ** 2).sum() / expected)


def test_what_a_client_sends_is_uniform() -> None:
    # Uniform bytes are beyond the limit once in a million times; keys are fixed, so here never.
    # A client sends 400 rows of 10 numbers of 8 bytes: 125 for each value of a byte.
    limit = chi2.isf(1e-6, 255)
    sizes = {0: 200, 1: 200, 2: 200}
    parts = {client: np.full((600, 10), client / 7) for client in sizes}
    masked, _ = summed(parts, sizes, masks_of([0, 1, 2], (600, 10)))
    clear, _ = summed(parts, sizes, None)
    for client in sizes:
        assert chi_square(masked[client]) < limit
        assert chi_square(clear[client]) > 10 * limit


# Attempts


def differences(attempts: tuple[int, int]) -> tuple[Words, Words]:
    """Of what client 1 sent in two attempts, and of what it added up in them."""
    sizes, rng = {0: 2, 1: 3, 2: 4}, np.random.default_rng(2)
    sent, own = [], []
    for attempt in attempts:
        parts = {client: rng.normal(size=(9, 2)) for client in sizes}
        sent.append(summed(parts, sizes, masks_of([0, 1, 2], (9, 2), attempt))[0][1])
        own.append(np.delete(to_words(parts[1], 3), slice(2, 5), axis=0))
    return sent[1] - sent[0], own[1] - own[0]


def test_masks_used_twice_show_the_difference_of_what_they_hide() -> None:
    seen, hidden = differences((0, 0))
    np.testing.assert_array_equal(seen, hidden)


def test_masks_of_their_own_attempt_do_not() -> None:
    seen, hidden = differences((0, 1))
    assert (seen != hidden).all()
