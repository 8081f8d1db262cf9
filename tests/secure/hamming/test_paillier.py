"""Paillier's distances: equality with plain ones, and what the owner can learn."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.secure.hamming import paillier
from fedul_flwr.secure.hamming.paillier import PAILLIER, Paillier, pack, unpack
from fedul_flwr.secure.hamming.paillier_scheme import Number, from_bytes, signed_products, to_bytes
from fedul_flwr.secure.hamming.pairwise import Seat, Turn
from tests.secure.hamming.paillier_pair import (
    OWNER,
    SMALL,
    Draw,
    Pair,
    codes_of,
    plain,
    random_codes,
)


@pytest.mark.parametrize(
    ("n_owner", "n_evaluator", "num_bits"),
    [
        (1, 1, 8),
        (1, 9, 24),
        (5, 3, 64),
        (39, 2, 16),
        (40, 2, 16),
        (100, 3, 8),
        (0, 3, 8),
        (3, 0, 8),
    ],
)
def test_equals_plain_distances(n_owner: int, n_evaluator: int, num_bits: int) -> None:
    codes, others = random_codes(n_owner, num_bits), random_codes(n_evaluator, num_bits, 1)
    found = Pair(codes, others).distances()
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, plain(codes, others))


@given(
    n_owner=st.integers(0, 4),
    n_evaluator=st.integers(0, 4),
    num_bytes=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@hypothesis_settings(deadline=None, max_examples=30)
def test_equals_plain_distances_of_any_sizes(
    n_owner: int, n_evaluator: int, num_bytes: int, seed: int
) -> None:
    # 128 bits: 127 // 13 = 9 slots. 48 bits: 3 slots, so 4 points are two chunks.
    codes, others = (random_codes(n, 8 * num_bytes, seed) for n in (n_owner, n_evaluator))
    for protocol in (Paillier(128), Paillier(48)):
        found = Pair(codes, others, protocol).distances()
        np.testing.assert_array_equal(found, plain(codes, others))


def test_extreme_distances_stay_in_their_slots() -> None:
    # The largest L that is a multiple of 8: 8184 < 2^13 = 8192.
    zeros, ones = np.zeros((1, 8184), np.uint8), np.ones((1, 8184), np.uint8)
    codes = codes_of(np.concatenate([ones, zeros, ones]))
    found = Pair(codes, codes_of(np.concatenate([zeros, ones])), Paillier(64)).distances()
    assert found.tolist() == [[8184, 0], [0, 8184], [8184, 0]]


def test_the_exported_instance_has_3072_bits() -> None:
    codes, others = random_codes(3, 8), random_codes(2, 8, 1)
    assert isinstance(PAILLIER, Paillier)
    assert PAILLIER.name == "paillier"
    pair = Pair(codes, others, PAILLIER)
    assert pair.n.bit_length() == 3072
    assert pair.offered.state["p"].shape == pair.offered.state["q"].shape == (192,)
    assert pair.offered.to_evaluators["ciphertexts"].shape == (1, 8, 768)
    np.testing.assert_array_equal(pair.distances(), plain(codes, others))


def test_three_clients_of_whom_one_drops_out() -> None:
    codes = {client: random_codes(client + 2, 16, client) for client in range(3)}
    sizes = {client: len(own) for client, own in codes.items()}
    # 0 owns the pairs with 1 and 2, and 1 that with 2.
    seats = [
        Seat(own, tuple(range(own + 1, 3)), tuple(range(own)), sizes, 16, bytes(32))
        for own in range(3)
    ]
    offers = [SMALL.offer(seat, {}, codes[seat.own], {}) for seat in seats]
    assert not offers[2].to_evaluators
    # 1 sends its offer and then no more.
    inbox = {0: offers[0].to_evaluators, 1: offers[1].to_evaluators}
    answered = SMALL.answer(seats[2], offers[2].state, codes[2], inbox)
    assert set(answered.to_peers) == set(answered.to_server) == {0, 1}
    revealed = SMALL.reveal(seats[0], offers[0].state, codes[0], {2: answered.to_peers[0]})
    assert set(revealed.to_server) == {2}
    found = SMALL.distances((2, 4), 16, revealed.to_server[2], answered.to_server[0])
    np.testing.assert_array_equal(found, plain(codes[0], codes[2]))
    # A client in the middle keeps its key from the offer to the end; nobody answers: no secrets.
    middle = SMALL.answer(seats[1], offers[1].state, codes[1], {})
    assert middle.state is offers[1].state
    assert not SMALL.reveal(seats[1], middle.state, codes[1], {}).to_server
    assert not SMALL.reveal(seats[2], {}, codes[2], {}).to_server


def test_slots_by_hand() -> None:
    # Bit p in slot p: 2^0 + 2^26 for (1, 0, 1).
    assert pack(np.array([[1, 0, 1], [0, 1, 0]], np.uint8)) == [1 + 2**26, 2**13]
    assert unpack([mpz(5 + 8191 * 2**13 + 7 * 2**26), mpz(0)], 3).tolist() == [
        [5, 8191, 7],
        [0] * 3,
    ]
    assert unpack([], 3).shape == (0, 3)


def test_the_server_by_hand() -> None:
    # n = 2^32 - 5, 31 // 13 = 2 slots: distances 3 and 1 are 3 + 2^13 = 8195, a third is a chunk.
    # Masks 100 and n - 1: sums 8295 and 2 - 1 = 1.
    n = 2**32 - 5
    by_owner = {"modulus": to_bytes([mpz(n)], 4)[0], "sums": numbers(8295, 1, width=4)}
    by_evaluator = {"masks": numbers(100, n - 1, width=4)}
    found = Paillier(32).distances((3, 1), 8, by_owner, by_evaluator)
    assert found.tolist() == [[3], [1], [2]]


def numbers(*values: int, width: int) -> Bytes:
    """Chunks of one row each."""
    return to_bytes([mpz(value) for value in values], width)[:, None]


def scripted(masks: list[Number], size: int = 64) -> Draw:
    """Entropy in the order of an answer: a mask, and then a random r."""
    drawn = iter([part for mask in masks for part in (int(mask).to_bytes(size, "big"), None)])

    def draw(wanted: int) -> bytes:
        assert wanted == size
        # An r of 512 bits without the highest is below n.
        return next(drawn) or bytes(1) + os.urandom(size - 1)

    return draw


def masks_of(answered: Turn) -> list[Number]:
    return from_bytes(answered.to_server[OWNER]["masks"].reshape(-1, 64))


def packed(distances: Ints) -> list[int]:
    """Plaintexts of a column of distances each, by shifts of Python's integers."""
    return [sum(int(h) << (13 * p) for p, h in enumerate(column)) for column in distances.T]


def test_masks_shift_what_the_owner_sees() -> None:
    # (y, R) and (y', R + D - D') look alike to the owner, whatever y and y' are.
    pair = Pair(random_codes(5, 32), random_codes(3, 32, 1))
    others = random_codes(3, 32, 2)
    before, after = (packed(plain(pair.codes, codes)) for codes in (pair.others, others))
    assert before != after
    first = pair.answer()
    masks = masks_of(first)
    seen = [(mask + h) % pair.n for mask, h in zip(masks, before, strict=True)]
    assert pair.seen_by_owner(first) == seen
    shifted = [(m + d - e) % pair.n for m, d, e in zip(masks, before, after, strict=True)]
    second = pair.answer(others, scripted(shifted))
    assert masks_of(second) == shifted
    assert pair.seen_by_owner(second) == seen


def test_masks_and_keys_are_fresh() -> None:
    pair = Pair(random_codes(2, 16), np.repeat(random_codes(1, 16, 1), 4, axis=0))
    masks = [mask for _ in range(2) for mask in masks_of(pair.answer())]
    assert len(set(masks)) == 8
    assert pair.n != Pair(pair.codes, pair.others).n


def test_equal_plaintexts_are_not_equal_ciphertexts() -> None:
    pair = Pair(np.zeros((2, 2), np.uint8), random_codes(3, 16, 1))
    # All bits are 0, and no ciphertext comes twice.
    offered = pair.offered.to_evaluators["ciphertexts"]
    assert len(np.unique(offered.reshape(16, -1), axis=0)) == 16
    # With the same masks an answer has the same plaintexts, in other ciphertexts.
    masks = masks_of(pair.answer())
    one, other = (pair.answer(entropy=scripted(masks)) for _ in range(2))
    assert pair.seen_by_owner(one) == pair.seen_by_owner(other)
    rows = [turn.to_peers[OWNER]["ciphertexts"] for turn in (one, other)]
    assert (rows[0] != rows[1]).any(axis=2).all()


def passes(pair: Pair, answered: Turn, guess: Bytes) -> bool:
    """The owner's test of a guess: (1 + n)^m is 1 modulo n, so masks drop out of what it gets."""
    offered = from_bytes(pair.offered.to_evaluators["ciphertexts"][0])
    product = signed_products(offered, np.unpackbits(guess, axis=1), pair.n)[0]
    returned = from_bytes(answered.to_peers[OWNER]["ciphertexts"][0])[0]
    return bool(product % pair.n == returned % pair.n)


def test_without_fresh_randomness_the_owner_can_test_guesses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair(random_codes(4, 64), random_codes(1, 64, 1))
    right = pair.others
    guesses = [right.copy() for _ in range(64)]
    for k, guess in enumerate(guesses):
        guess[0, k // 8] ^= 1 << k % 8
    honest = pair.answer()
    assert not passes(pair, honest, right)
    assert not any(passes(pair, honest, guess) for guess in guesses)
    monkeypatch.setattr(paillier, "nth_residue", lambda n, entropy: mpz(1))
    careless = pair.answer()
    assert passes(pair, careless, right)
    assert not any(passes(pair, careless, guess) for guess in guesses)


def test_secrets_are_in_no_message_and_no_repr() -> None:
    pair = Pair(random_codes(3, 16), random_codes(2, 16, 1))
    answered = pair.answer()
    sent = [pair.offered.to_evaluators, *answered.to_peers.values(), *answered.to_server.values()]
    joined = b"".join(
        a.tobytes() for arrays in [*sent, pair.reveal(answered)] for a in arrays.values()
    )
    for name in "pq":
        assert pair.offered.state[name].tobytes() not in joined
    assert repr(pair.offered) == repr(answered) == "Turn()"


def test_cost_counts_what_is_sent() -> None:
    # Two clients of 45 points, 39 a chunk, 16 bits: 2 * 16 ciphertexts of 128 bytes, and 2 * 45
    # rows of 128 + 64 + 64. Moduli, 64 bytes in the offer and again in what is revealed, are extra.
    pair = Pair(random_codes(45, 16), random_codes(45, 16, 1))
    answered = pair.answer()
    arrays = [
        *pair.offered.to_evaluators.values(),
        *answered.to_peers[OWNER].values(),
        *answered.to_server[OWNER].values(),
        *pair.reveal(answered).values(),
    ]
    expected = 2 * 16 * 128 + 2 * 45 * 256
    assert SMALL.cost([45, 45], 16).traffic == expected
    assert sum(array.nbytes for array in arrays) == expected + 2 * 64


def test_cost_of_no_pair_is_nothing() -> None:
    assert PAILLIER.cost([], 4096) == PAILLIER.cost([500], 4096) == (0, 0)
    # Another client, more points, more bits: more of both.
    costs = [PAILLIER.cost(*case) for case in (([5, 5], 8), ([5, 5], 64), ([5, 500], 64))]
    for less, more in itertools.pairwise(costs):
        assert less.seconds < more.seconds
        assert less.traffic < more.traffic
