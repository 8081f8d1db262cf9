"""Paillier: all of Z_35 by hand, distances equal to plain ones, secrecy, refusals."""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import replace

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from scipy.stats import kstest

from fedul_flwr.arrays import Bytes, Ints
from fedul_flwr.secure.hamming import paillier
from fedul_flwr.secure.hamming.paillier import (
    Number,
    Paillier,
    PrivateKey,
    add_plaintext,
    from_bytes,
    generate_key,
    nth_residue,
    signed_products,
    to_bytes,
)
from fedul_flwr.secure.hamming.pairwise import Arrays, Party, StepResult
from fedul_flwr.secure.session import Entropy
from tests.support.hamming.pairs import (
    Played,
    changed,
    check,
    messages,
    plain_distances,
    play,
    random_codes,
    seeded,
)
from tests.support.refusals import refuses

TINY = PrivateKey(mpz(5), mpz(7))
KEY = generate_key(512, os.urandom)


def scripted(values: Iterable[int]) -> Callable[[int], bytes]:
    """Entropy that gives these numbers, one at a call."""
    left = iter(values)
    return lambda size: next(left).to_bytes(size, "big")


def test_decryption_by_hand() -> None:
    # n = 35, n² = 1225, m = 12, r = 2. 2^35 = 34359738368 = 18 modulo 1225, 1 + 12 * 35 = 421,
    # 421 * 18 = 7578 = 228 modulo 1225.
    # p = 5: 228 = 3 modulo 25, 3^4 = 81 = 6, L = (6 - 1) / 5 = 1; 1 / -7 = 1 / 3 = 2 modulo 5; 2.
    # q = 7: 228 = 32 modulo 49, 32^6 = 22, L = (22 - 1) / 7 = 3; 1 / -5 = 1 / 2 = 4 modulo 7; 5.
    # 12 is 2 modulo 5 and 5 modulo 7.
    assert TINY.n == 35
    assert (1 + 12 * 35) * 2**35 % 1225 == 228
    assert TINY.decrypt(mpz(228)) == 12


def test_every_ciphertext_of_z_35_is_decrypted() -> None:
    coprime = [r for r in range(35) if math.gcd(r, 35) == 1]
    seen = set()
    for plaintext in range(35):
        for r in coprime:
            ciphertext = (1 + plaintext * 35) * r**35 % 1225
            assert TINY.decrypt(mpz(ciphertext)) == plaintext
            seen.add(ciphertext)
    # (m, r) -> c is one to one: 35 * 24 = 840 = phi(1225).
    assert len(seen) == 840


def test_nobody_can_try_out_all_randomness() -> None:
    # With r below 2^16, say, whoever divides by all r^n reads the plaintext.
    entropy = seeded(1)
    key = generate_key(256, entropy)
    drawn = [key.encrypt(mpz(0), entropy) for _ in range(300)]
    # r^n modulo p has the part x^p = x that was drawn modulo p.
    for prime in (key.p, key.q):
        assert kstest([uniform(x % prime, prime) for x in drawn], "uniform")[1] > 1e-3
    root = gmpy2.invert(key.n, math.lcm(int(key.p - 1), int(key.q - 1)))
    powers = [nth_residue(key.n, entropy) for _ in range(300)]
    found = [uniform(gmpy2.powmod(power, root, key.n), key.n) for power in powers]
    assert kstest(found, "uniform")[1] > 1e-3


def uniform(number: mpz, bound: mpz) -> float:
    """number / bound, of integers beyond a float's range."""
    return float(mpz(2**53) * number // bound) / 2**53


def test_encryption_without_the_private_key_by_hand() -> None:
    # r = 1 + 1 = 2, 2^35 = 18 modulo 1225.
    assert nth_residue(mpz(35), scripted([1])) == 18
    # r is from 1 to 34: of draws 33 is the last, 34 is drawn again. 34^35 = (-1)^35 = -1 modulo 35
    # and (35 - 1)^35 = -1 + 35 · 35 = -1 modulo 1225.
    assert nth_residue(mpz(35), scripted([33])) == 1224
    assert nth_residue(mpz(35), scripted([34, 1])) == 18
    assert add_plaintext(mpz(18), mpz(12), mpz(35)) == 228
    assert add_plaintext(mpz(18), mpz(12 - 35), mpz(35)) == 228


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
    # Who owns no pair has no key and reveals nothing.
    assert played.turns["offer"][EVALUATOR] == played.turns["reveal"][EVALUATOR] == StepResult()


def test_extreme_distances_stay_in_their_slots() -> None:
    # The largest L that is a multiple of 8: 8184 < 2^13 = 8192.
    zeros, ones = np.zeros((1, 1023), np.uint8), np.full((1, 1023), 255, np.uint8)
    played = pair(np.concatenate([ones, zeros, ones]), np.concatenate([zeros, ones]), Paillier(64))
    assert played.distances[OWNER, EVALUATOR].tolist() == [[8184, 0], [0, 8184], [8184, 0]]


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


def numbers(*values: int, width: int) -> Bytes:
    """Chunks of one row each."""
    return to_bytes([mpz(value) for value in values], width)[:, None]


def drawing(masks: list[Number], size: int = 64) -> Entropy:
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
    second = answer(played, other, drawing(shifted))
    assert masks_of(second) == shifted
    assert seen_by_owner(played, second) == seen


def test_masks_are_uniform_below_the_modulus() -> None:
    codes = {OWNER: random_codes(1, 8), EVALUATOR: random_codes(400, 8, 1)}
    played = play(SMALL, codes, entropy=seeded(1))
    masks, n = masks_of(played.turns["answer"][EVALUATOR]), modulus(played)
    assert len(set(masks)) == 400
    assert max(masks) < n
    assert kstest([uniform(mask, n) for mask in masks], "uniform")[1] > 1e-3


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
    one, other = (answer(played, others, drawing(masks)) for _ in range(2))
    assert seen_by_owner(played, one) == seen_by_owner(played, other)
    rows = [result.to_peers[OWNER]["ciphertexts"] for result in (one, other)]
    assert (rows[0] != rows[1]).any(axis=2).all()


def passes(played: Played, answered: StepResult, guess: Bytes) -> bool:
    """The owner's test of a guess: (1 + n)^m is 1 modulo n, so masks drop out of what it gets."""
    n, offered = modulus(played), played.turns["offer"][OWNER].to_evaluators["ciphertexts"]
    product = signed_products(from_bytes(offered[0]), np.unpackbits(guess, axis=1), n)[0]
    returned = from_bytes(answered.to_peers[OWNER]["ciphertexts"][0])[0]
    return bool(product % n == returned % n)


def test_without_fresh_randomness_the_owner_tests_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert not any(str(int(prime)) in repr(KEY) for prime in (KEY.p, KEY.q))
    played = pair(random_codes(3, 16), random_codes(2, 16, 1))
    joined = b"".join(a.tobytes() for arrays in messages(played) for a in arrays.values())
    for name in "pq":
        assert played.turns["offer"][OWNER].state[name].tobytes() not in joined
    for turns in played.turns.values():
        assert all(repr(result) == "StepResult()" for result in turns.values())


PLAYED = pair(random_codes(41, 8), random_codes(3, 8, 1))
"""Two chunks of 39 and 2 points, 8 bits, 3 rows."""

OFFERED = PLAYED.inboxes["answer"][EVALUATOR][OWNER]
ANSWERED = PLAYED.inboxes["reveal"][OWNER][EVALUATOR]
REVEALED, MASKS = (PLAYED.server[OWNER, EVALUATOR][client] for client in (OWNER, EVALUATOR))
OWNERS_KEY = private_key(PLAYED)


def with_number(array: Bytes, number: int | mpz) -> Bytes:
    """The same with another number in the last place of the first chunk."""
    copy = array.copy()
    copy[0, -1] = to_bytes([mpz(number)], array.shape[-1])[0]
    return copy


def answer_to(offered: Arrays) -> StepResult:
    return PLAYED.turn("answer", EVALUATOR, {OWNER: offered})


def reveal_of(answered: Arrays) -> StepResult:
    return PLAYED.turn("reveal", OWNER, {EVALUATOR: answered})


BY_OWNER = f"Client {OWNER} sent in step 'offer'"
BY_EVALUATOR = f"Client {EVALUATOR} sent in step 'answer'"
TO_SERVER = "The owner sent in step 'reveal'", "The evaluator sent in step 'answer'"


@pytest.mark.parametrize("how", ["missing", "shorter", "another type"])
def test_given_an_array_of_another_form_then_it_is_refused_and_its_sender_named(how: str) -> None:
    def wrong(arrays: Arrays, name: str) -> Arrays:
        array = arrays[name]
        forms = {"missing": None, "shorter": array[..., 1:], "another type": array.astype(np.int8)}
        return changed(arrays, name, forms[how])

    for name in ("modulus", "ciphertexts"):
        with refuses("message-form", match=f"{BY_OWNER} .* as '{name}'"):
            answer_to(wrong(OFFERED, name))
    with refuses("message-form", match=f"{BY_EVALUATOR} .* as 'ciphertexts'"):
        reveal_of(wrong(ANSWERED, "ciphertexts"))
    for name in ("modulus", "sums"):
        with refuses("message-form", match=f"{TO_SERVER[0]} .* as '{name}'"):
            SMALL.distances((41, 3), 8, wrong(REVEALED, name), MASKS)
    with refuses("message-form", match=f"{TO_SERVER[1]} .* as 'masks'"):
        SMALL.distances((41, 3), 8, REVEALED, wrong(MASKS, "masks"))


@pytest.mark.parametrize(
    "number", [0, 2**511 - 1, 2**512 - 2, 2**511], ids=["0", "short", "even", "power of 2"]
)
def test_given_a_modulus_that_is_even_or_short_then_it_is_refused(number: int) -> None:
    modulus = to_bytes([mpz(number)], 64)[0]
    with refuses("message-form", match=f"{BY_OWNER} a modulus of another kind"):
        answer_to(changed(OFFERED, "modulus", modulus))
    with refuses("message-form", match=f"{TO_SERVER[0]} a modulus of another kind"):
        SMALL.distances((41, 3), 8, changed(REVEALED, "modulus", modulus), MASKS)


@pytest.mark.parametrize(
    ("number", "rule"),
    [
        (OWNERS_KEY.n**2, "out of range"),
        (mpz(0), "coprime"),
        (OWNERS_KEY.n, "coprime"),
        (OWNERS_KEY.p, "coprime"),
        (3 * OWNERS_KEY.q, "coprime"),
    ],
    ids=["n²", "0", "n", "p", "3 q"],
)
def test_ciphertexts_that_are_none(number: mpz, rule: str) -> None:
    offered, answered = (with_number(sent["ciphertexts"], number) for sent in (OFFERED, ANSWERED))
    with refuses("message-form", match=f"{BY_OWNER} ciphertexts .*{rule}"):
        answer_to(changed(OFFERED, "ciphertexts", offered))
    with refuses("message-form", match=f"{BY_EVALUATOR} ciphertexts .*{rule}"):
        reveal_of({"ciphertexts": answered})


def test_given_sums_or_masks_of_n_then_they_are_out_of_range() -> None:
    sums, masks = (with_number(a, OWNERS_KEY.n) for a in (REVEALED["sums"], MASKS["masks"]))
    with refuses("message-form", match=f"{TO_SERVER[0]} sums out of range"):
        SMALL.distances((41, 3), 8, changed(REVEALED, "sums", sums), MASKS)
    with refuses("message-form", match=f"{TO_SERVER[1]} masks out of range"):
        SMALL.distances((41, 3), 8, REVEALED, {"masks": masks})


@pytest.mark.parametrize(
    ("points", "plaintext"),
    # Slots of 13 bits: above L = 8 in the first and in the second; beyond the last; negative.
    [(2, 9), (2, 9 << 13), (2, 1 << 26), (1, 1 << 13), (2, -1)],
)
def test_sums_that_are_no_distances(points: int, plaintext: int) -> None:
    n = 2**32 - 5
    sums = to_bytes([mpz((plaintext + 77) % n)], 4)[None]
    by_owner = {"modulus": to_bytes([mpz(n)], 4)[0], "sums": sums}
    with refuses("message-form", match=f"{TO_SERVER[0]} sums that do not go with the masks .* 8"):
        Paillier(32).distances((points, 1), 8, by_owner, {"masks": to_bytes([mpz(77)], 4)[None]})


def test_refuses_longer_codes() -> None:
    with refuses("setting-out-of-range", match="8192"):
        SMALL.prepare(Party(0, (1,), (), {0: 1, 1: 1}, 8192, bytes(32)))
    with refuses("setting-out-of-range", match="8192"):
        SMALL.distances((1, 1), 8192, {}, {})
    assert SMALL.prepare(Party(0, (1,), (), {0: 1, 1: 1}, 8191, bytes(32))) == StepResult()
