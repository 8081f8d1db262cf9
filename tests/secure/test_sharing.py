"""Secrets of a sum: shares that open them, neighbors that have these, and how many are needed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from fedul_flwr.secure.sharing import (
    COMPLETE,
    PRIME,
    conspirators,
    degree,
    find_secret,
    neighbors,
    open_secret,
    quorum,
    share_secret,
    spare,
    threshold,
)


@given(st.binary(min_size=16, max_size=16), st.integers(1, 6), st.integers(0, 4), st.randoms())
def test_enough_shares_open_a_secret(secret: bytes, needed: int, spare: int, draw: Any) -> None:
    shares = share_secret(secret, needed, needed + spare, draw.randbytes)
    chosen = draw.sample(range(needed + spare), needed)
    assert open_secret({place: shares[place] for place in chosen}) == secret


def test_given_one_share_too_few_then_every_secret_is_as_likely() -> None:
    shares = share_secret(b"0123456789abcdef", 3, 5, np.random.default_rng(0).bytes)
    # Two points fix no parabola: with any secret there is one third share that fits, and one alone.
    for secret in (b"0123456789abcdef", b"x" * 16, bytes(16)):
        value = int.from_bytes(secret)
        # p(0) = 3 p(1) - 3 p(2) + p(3), so p(3) = p(0) - 3 p(1) + 3 p(2).
        ones, twos = (int.from_bytes(share) for share in shares[:2])
        third = (value - 3 * ones + 3 * twos) % PRIME
        assert open_secret({0: shares[0], 1: shares[1], 2: third.to_bytes(17)}) == secret


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("count", [3, 100, 101, 250])
def test_given_clients_then_neighbors_are_mutual_and_as_many_for_each(
    count: int, pinned: bool
) -> None:
    beside = neighbors(b"s" * 32, range(count), pinned)
    assert {len(peers) for peers in beside.values()} == {degree(count, pinned)}
    assert all(client in beside[peer] for client, peers in beside.items() for peer in peers)
    assert all(client not in peers for client, peers in beside.items())
    assert neighbors(b"s" * 32, range(count), pinned) == beside
    other = neighbors(b"t" * 32, range(count), pinned)
    assert degree(count, pinned) == count - 1 or other != beside


@pytest.mark.parametrize(("pinned", "share", "gone"), [(True, 0.2, 0.3), (False, 0.1, 0.1)])
@pytest.mark.parametrize("count", [150, 1000])
def test_neighbors_are_as_many_as_the_page_says(
    count: int, pinned: bool, share: float, gone: float
) -> None:
    """docs/privacy.md: a fifth or a tenth of all, drawn at random, read somebody by a chance below
    2^-40; so few neighbors fail after so many dropouts. Two neighbors fewer are too few."""
    others = count - 1

    def chances(peers: int) -> tuple[float, float]:
        needed = threshold(peers + 1, pinned)
        reading = needed if pinned else 2 * needed - peers - 1  # beside all others, who are split
        read = hypergeom.sf(reading - 1, others, round(share * count), peers)
        lost = hypergeom.sf(peers + 1 - needed, others, round(gone * count), peers)
        return count * read, count * lost

    def enough(peers: int) -> bool:
        read, lost = chances(peers)
        return read <= 2**-40 and lost <= 2**-10

    peers = degree(count, pinned)
    assert enough(peers)
    assert peers == COMPLETE // 2 or not enough(peers - 2)


@pytest.mark.parametrize(
    ("holders", "pinned", "needed"),
    [(3, False, 3), (3, True, 3), (9, False, 7), (9, True, 5), (59, False, 40), (59, True, 30)],
)
def test_threshold(holders: int, pinned: bool, needed: int) -> None:
    assert threshold(holders, pinned) == needed


def test_quorum_and_pairs_to_spare() -> None:
    # More than two thirds: 2·3/3 + 1 = 3, 2·4/3 + 1 = 3 (rounded down), 2·10/3 + 1 = 7.
    assert [quorum(count) for count in (1, 3, 4, 5, 10, 100)] == [3, 3, 3, 4, 7, 67]
    # Fewer than a third: of 3 none, of 4 one, of 10 three. With 250 the neighbors count.
    assert [spare(count, True) for count in (3, 4, 6, 7, 10)] == [0, 1, 1, 2, 3]
    assert spare(250, True) == degree(250, True) // 3


@given(st.integers(2, 5), st.integers(0, 2), st.integers(1, 2))
def test_given_wrong_shares_then_the_secret_is_found_and_they_are_named(
    needed: int, more: int, wrong: int
) -> None:
    """The right ones and the wrong ones together; of too few right ones there is no secret."""
    secret, holders = b"0123456789abcdef", needed + more + wrong
    shares = dict(enumerate(share_secret(secret, needed, holders, np.random.default_rng(0).bytes)))
    for place in range(wrong):
        shares[place] = bytes(15) + shares[place][15:16] + bytes([shares[place][16] ^ 1])
    assert find_secret(shares, needed, secret.__eq__) == (secret, {*range(wrong)})
    few = {place: shares[place] for place in range(wrong + needed - 1)}
    assert find_secret(few, needed, secret.__eq__) is None


@pytest.mark.parametrize(
    ("participants", "fewest"),
    # Of 3 a quorum is 3: 2 subtract their parts. Of 4 it is 3: 2 * 3 - 4 = 2 sign two lists. Of 5
    # it is 4, and 2 * 4 - 5 = 3 sign two lists; of 10 it is 7, and 4 do; of 9 it is 7, and 5 do,
    # as 5 have the shares of a secret. Of 200 a fifth.
    [(3, 2), (4, 2), (5, 3), (9, 5), (10, 4), (200, 40)],
)
def test_how_many_read_anothers_part(participants: int, fewest: int) -> None:
    assert conspirators(participants) == fewest
