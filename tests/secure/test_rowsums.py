"""Row sums and masks of pairs: by hand, equality with the plain sum, secrecy, refusals."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from fedul_flwr.secure.rowsums import (
    LARGEST_SUM,
    Words,
    from_words,
    open_rows,
    pair_masks,
    split_share,
    sum_shares,
    to_words,
)
from fedul_flwr.secure.session import keystream
from tests.support.refusals import refuses

Floats = NDArray[np.float64]
STEP = 2.0**-40


def test_fixed_point_by_hand() -> None:
    # Halves of a step go to the even neighbor; a negative number is 2^64 minus its size.
    numbers = np.array([0, 1, -1, STEP, -STEP, 0.5 * STEP, 1.5 * STEP, 2.6 * STEP, 4_000_000])
    words = to_words(numbers)
    assert words.dtype == np.uint64
    assert words.tolist() == [
        *(0, 2**40, 2**64 - 2**40, 1, 2**64 - 1),
        *(0, 2, 3, 4_000_000 * 2**40),
    ]
    assert from_words(words).tolist() == [
        *(0, 1, -1, STEP, -STEP),
        *(0, 2 * STEP, 3 * STEP, 4_000_000),
    ]


def test_the_largest_numbers_do_not_wrap_round() -> None:
    for participants, sign in itertools.product((1, 2, 3, 7), (1, -1)):
        largest = np.nextafter(LARGEST_SUM / participants, 0)
        total = np.zeros(1, np.uint64)
        for _ in range(participants):
            total = total + to_words(np.array([sign * largest]), participants)
        assert from_words(total)[0] == pytest.approx(sign * participants * largest, rel=1e-12)


def slices(sizes: list[int]) -> list[slice]:
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize(
    "sizes", [[5], [0], [3, 2], [0, 4], [4, 0, 0, 3], [1, 1, 1], [2, 0, 7, 1, 3]], ids=str
)
def test_equals_the_plain_sum_with_and_without_masks(sizes: list[int], columns: int) -> None:
    rng, shape = np.random.default_rng(len(sizes)), (sum(sizes), columns)
    parts = {7 * i + 3: rng.normal(scale=50, size=shape) for i in range(len(sizes))}
    rows = dict(zip(parts, sizes, strict=True))
    _, clear = summed(parts, rows, None)
    _, masked = summed(parts, rows, masks_of([*parts], shape))
    expected = sum(parts.values(), np.zeros(shape))
    for client, own in zip(parts, slices(sizes), strict=True):
        np.testing.assert_allclose(clear[client], expected[own], rtol=0, atol=len(sizes) * STEP)
        np.testing.assert_array_equal(masked[client], clear[client])


def test_own_rows_are_not_sent() -> None:
    # Row r of the part is (r, 10 r): of rows 0 to 4 the client keeps 1 and 2.
    part = np.outer(np.arange(5.0), [1, 10])
    share = split_share(part, slice(1, 3), 3)
    assert from_words(share.sent).tolist() == [[0, 0], [3, 30], [4, 40]]
    assert from_words(share.stored).tolist() == [[1, 10], [2, 20]]


def test_a_mask_is_added_to_what_is_sent_and_to_what_is_kept() -> None:
    # 2 is 2 · 2^40; modulo 2^64, 2^64 - 1 takes one off.
    mask = np.array([[7], [2**64 - 1], [5]], np.uint64)
    share = split_share(np.full((3, 1), 2.0), slice(1, 2), 3, mask)
    assert share.sent.tolist() == [[2**41 + 7], [2**41 + 5]]
    assert share.stored.tolist() == [[2**41 - 1]]


def test_combine_by_hand() -> None:
    # Client 5 has row a, client 2 rows b and c. 5 sends b, c; 2 sends a.
    sent = {2: np.array([[7]], np.uint64), 5: np.array([[2**64 - 1], [3]], np.uint64)}
    sums = sum_shares(sent, {5: 1, 2: 2})
    assert (sums[5].tolist(), sums[2].tolist()) == ([[7]], [[2**64 - 1], [3]])
    assert sum_shares({}, {}) == {}


def test_sums_that_no_summands_have_are_refused() -> None:
    # Summands are below 2^22 over their number, so that no sum reaches it.
    zeros = np.zeros((1, 1), np.uint64)
    assert open_rows(np.array([[2**62 - 2**20]], np.uint64), zeros)[0, 0] < LARGEST_SUM
    for words in (2**62, 2**64 - 2**62):
        with refuses("sum-wrong", match="large"):
            open_rows(np.array([[words]], np.uint64), zeros)


# Masks: they cancel, hide what is sent, and must be new for every attempt


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


def summed(
    parts: dict[int, Floats], sizes: dict[int, int], masks: dict[int, Words] | None
) -> tuple[dict[int, Words], dict[int, Floats]]:
    """What each client sends, and the rows that it ends with."""
    own = dict(zip(sizes, slices([*sizes.values()]), strict=True))
    shares = {
        client: split_share(part, own[client], len(parts), masks and masks[client])
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


def differences(attempts: tuple[int, int]) -> tuple[Words, Words]:
    """Of what client 1 sent in two attempts, and of what it added up in them."""
    sizes, rng = {0: 2, 1: 3, 2: 4}, np.random.default_rng(2)
    sent, own = [], []
    for attempt in attempts:
        parts = {client: rng.normal(size=(9, 2)) for client in sizes}
        sent.append(summed(parts, sizes, masks_of([0, 1, 2], (9, 2), attempt))[0][1])
        own.append(np.delete(to_words(parts[1], 3), slice(2, 5), axis=0))
    return sent[1] - sent[0], own[1] - own[0]


def test_masks_used_twice_show_what_the_hidden_differ_in_and_others_do_not() -> None:
    seen, hidden = differences((0, 0))
    np.testing.assert_array_equal(seen, hidden)
    seen, hidden = differences((0, 1))
    assert (seen != hidden).all()
