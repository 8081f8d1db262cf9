"""Paillier's distances: equality with plain ones, and what the owner can learn."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from gmpy2 import mpz
from scipy.stats import kstest

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.secure.hamming import paillier
from fedul_flwr.secure.hamming.paillier import (
    PAILLIER,
    Number,
    Paillier,
    PrivateKey,
    from_bytes,
    pack,
    signed_products,
    to_bytes,
    unpack,
)
from fedul_flwr.secure.hamming.pairwise import StepResult
from fedul_flwr.secure.session import Entropy
from tests.support.hamming.pairs import (
    Played,
    check,
    messages,
    plain_distances,
    play,
    random_codes,
    seeded,
    traffic,
)

SMALL = Paillier(512)
"""39 points a chunk: 39 * 13 = 507 bits. A number has 64 bytes, a ciphertext 128."""

OWNER, EVALUATOR = 3, 8


def pair(codes: Bytes, others: Bytes, protocol: Paillier = SMALL) -> Played:
    return play(protocol, {OWNER: codes, EVALUATOR: others})


def answer(played: Played, others: Bytes, entropy: Entropy = os.urandom) -> StepResult:
    """What the evaluator would answer to the same offer, with these codes and this randomness."""
    party = replace(played.parties[EVALUATOR], entropy=entropy)
    return SMALL.answer(party, {}, others, played.inboxes["answer"][EVALUATOR])


def modulus(played: Played) -> Number:
    return from_bytes(played.inboxes["answer"][EVALUATOR][OWNER]["modulus"][None])[0]


def private_key(played: Played) -> PrivateKey:
    state = played.turns["offer"][OWNER].state
    return PrivateKey(*from_bytes(np.stack([state[name] for name in "pq"])))


def seen_by_owner(played: Played, answered: StepResult) -> list[Number]:
    """Plaintexts of what the owner gets."""
    ciphertexts = from_bytes(answered.to_peers[OWNER]["ciphertexts"].reshape(-1, 128))
    return [private_key(played).decrypt(c) for c in ciphertexts]


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
    played = pair(codes, others)
    assert list(played.distances) == [(OWNER, EVALUATOR)]
    check(played)


def test_extreme_distances_stay_in_their_slots() -> None:
    # The largest L that is a multiple of 8: 8184 < 2^13 = 8192.
    zeros, ones = np.zeros((1, 1023), np.uint8), np.full((1, 1023), 255, np.uint8)
    played = pair(np.concatenate([ones, zeros, ones]), np.concatenate([zeros, ones]), Paillier(64))
    assert played.distances[OWNER, EVALUATOR].tolist() == [[8184, 0], [0, 8184], [8184, 0]]


def test_the_exported_instance_has_3072_bits() -> None:
    assert isinstance(PAILLIER, Paillier)
    assert PAILLIER.name == "paillier"
    played = pair(random_codes(3, 8), random_codes(2, 8, 1), PAILLIER)
    assert modulus(played).bit_length() == 3072
    offered = played.turns["offer"][OWNER]
    assert offered.state["p"].shape == offered.state["q"].shape == (192,)
    assert offered.to_evaluators["ciphertexts"].shape == (1, 8, 768)
    check(played)


def test_four_clients_of_whom_one_drops_out() -> None:
    # 0 owns the pairs with 1 and 3, 1 that with 2, 2 those with 0 and 3, 3 that with 1.
    codes = {client: random_codes(client + 2, 16) for client in range(4)}
    # 2 sends its offer and then no more.
    played = play(SMALL, codes, gone={"answer": [2]})
    assert list(played.distances) == [(0, 1), (0, 3), (3, 1)]
    check(played)
    answered = played.turns["answer"][3]
    assert set(answered.to_peers) == set(answered.to_server) == {0, 2}
    assert set(played.turns["reveal"][0].to_server) == {1, 3}
    # A client keeps its key from the offer to the end; nobody answers: no secrets.
    for name in "pq":
        before, after = (played.turns[step][0].state[name] for step in ("offer", "answer"))
        np.testing.assert_array_equal(before, after)
    assert not played.turn("reveal", 0, {}).to_server


def test_who_owns_no_pair_has_no_key_and_reveals_nothing() -> None:
    played = pair(random_codes(2, 16), random_codes(3, 16))
    assert played.turns["offer"][EVALUATOR] == StepResult()
    assert played.turns["reveal"][EVALUATOR] == StepResult()


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


def scripted(masks: list[Number], size: int = 64) -> Entropy:
    """Entropy in the order of an answer: a mask, and then a random r."""
    drawn = iter([part for mask in masks for part in (int(mask).to_bytes(size, "big"), None)])

    def draw(wanted: int) -> bytes:
        assert wanted == size
        # An r of 512 bits without the highest is below n.
        return next(drawn) or bytes(1) + os.urandom(size - 1)

    return draw


def masks_of(answered: StepResult) -> list[Number]:
    return from_bytes(answered.to_server[OWNER]["masks"].reshape(-1, 64))


def packed(distances: Ints) -> list[int]:
    """Plaintexts of a column of distances each, by shifts of Python's integers."""
    return [sum(int(h) << (13 * p) for p, h in enumerate(column)) for column in distances.T]


def test_masks_shift_what_the_owner_sees() -> None:
    # (y, R) and (y', R + D - D') look alike to the owner, whatever y and y' are.
    own, one, other = random_codes(5, 32), random_codes(3, 32, 1), random_codes(3, 32, 2)
    before, after = (packed(plain_distances(own, codes)) for codes in (one, other))
    assert before != after
    played = pair(own, one)
    n, first = modulus(played), played.turns["answer"][EVALUATOR]
    masks = masks_of(first)
    seen = [(mask + h) % n for mask, h in zip(masks, before, strict=True)]
    assert seen_by_owner(played, first) == seen
    shifted = [(m + d - e) % n for m, d, e in zip(masks, before, after, strict=True)]
    second = answer(played, other, scripted(shifted))
    assert masks_of(second) == shifted
    assert seen_by_owner(played, second) == seen


def test_masks_are_uniform_below_the_modulus() -> None:
    codes = {OWNER: random_codes(1, 8), EVALUATOR: random_codes(400, 8, 1)}
    played = play(SMALL, codes, entropy=seeded(1))
    masks, n = masks_of(played.turns["answer"][EVALUATOR]), modulus(played)
    assert len(set(masks)) == 400
    assert max(masks) < n
    assert kstest([float(mpz(2**53) * mask // n) / 2**53 for mask in masks], "uniform")[1] > 1e-3


def test_masks_and_keys_are_fresh() -> None:
    codes, others = random_codes(2, 16), np.repeat(random_codes(1, 16, 1), 4, axis=0)
    played = pair(codes, others)
    masks = [mask for _ in range(2) for mask in masks_of(played.turn("answer", EVALUATOR))]
    assert len(set(masks)) == 8
    assert modulus(played) != modulus(pair(codes, others))


def test_equal_plaintexts_are_not_equal_ciphertexts() -> None:
    others = random_codes(3, 16, 1)
    played = pair(np.zeros((2, 2), np.uint8), others)
    # All bits are 0, and no ciphertext comes twice.
    offered = played.turns["offer"][OWNER].to_evaluators["ciphertexts"]
    assert len(np.unique(offered.reshape(16, -1), axis=0)) == 16
    # With the same masks an answer has the same plaintexts, in other ciphertexts.
    masks = masks_of(played.turns["answer"][EVALUATOR])
    one, other = (answer(played, others, scripted(masks)) for _ in range(2))
    assert seen_by_owner(played, one) == seen_by_owner(played, other)
    rows = [result.to_peers[OWNER]["ciphertexts"] for result in (one, other)]
    assert (rows[0] != rows[1]).any(axis=2).all()


def passes(played: Played, answered: StepResult, guess: Bytes) -> bool:
    """The owner's test of a guess: (1 + n)^m is 1 modulo n, so masks drop out of what it gets."""
    n, offered = modulus(played), played.turns["offer"][OWNER].to_evaluators["ciphertexts"]
    product = signed_products(from_bytes(offered[0]), np.unpackbits(guess, axis=1), n)[0]
    returned = from_bytes(answered.to_peers[OWNER]["ciphertexts"][0])[0]
    return bool(product % n == returned % n)


def test_without_fresh_randomness_the_owner_can_test_guesses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = random_codes(1, 64, 1)
    played = pair(random_codes(4, 64), right)
    guesses = [right.copy() for _ in range(64)]
    for k, guess in enumerate(guesses):
        guess[0, k // 8] ^= 1 << k % 8
    honest = played.turns["answer"][EVALUATOR]
    assert not passes(played, honest, right)
    assert not any(passes(played, honest, guess) for guess in guesses)
    monkeypatch.setattr(paillier, "nth_residue", lambda n, entropy: mpz(1))
    careless = played.turn("answer", EVALUATOR)
    assert passes(played, careless, right)
    assert not any(passes(played, careless, guess) for guess in guesses)


def test_secrets_are_in_no_message_and_no_repr() -> None:
    played = pair(random_codes(3, 16), random_codes(2, 16, 1))
    joined = b"".join(a.tobytes() for arrays in messages(played) for a in arrays.values())
    for name in "pq":
        assert played.turns["offer"][OWNER].state[name].tobytes() not in joined
    for turns in played.turns.values():
        assert all(repr(result) == "StepResult()" for result in turns.values())


def test_cost_counts_what_is_sent() -> None:
    # Two clients of 45 points, 39 a chunk, 16 bits: 2 * 16 ciphertexts of 128 bytes, and 2 * 45
    # rows of 128 + 64 + 64. Moduli, 64 bytes in the offer and again in what is revealed, are extra.
    played = pair(random_codes(45, 16), random_codes(45, 16, 1))
    expected = 2 * 16 * 128 + 2 * 45 * 256
    assert SMALL.cost([45, 45], 16).traffic == expected
    assert traffic(played) == expected + 2 * 64


def test_cost_of_no_pair_is_nothing() -> None:
    assert PAILLIER.cost([], 4096) == PAILLIER.cost([500], 4096) == (0, 0)


@pytest.mark.parametrize(
    ("sizes", "owners", "encrypted", "rows", "at_a_time"),
    [
        # 2 chunks each, of which one client's are encrypted; 45 rows of 2 chunks.
        ([45, 45], 1, 32, 90, 1),
        # 2, 8 and 1 chunks, all encrypted; (355 · 11 - 45 · 2 - 300 · 8 - 10) / 2 rows.
        ([45, 300, 10], 3, 176, 702.5, 2),
    ],
)
def test_cost_by_hand(
    sizes: list[int], owners: int, encrypted: int, rows: float, at_a_time: int
) -> None:
    found = SMALL.cost(sizes, 16)
    seconds = 0.2 * owners + 0.012 * encrypted + (0.042 + 16 * 2.5e-6) * rows
    assert found.seconds == pytest.approx(seconds / at_a_time)
    assert found.traffic == 64 * (2 * encrypted + 4 * rows)
