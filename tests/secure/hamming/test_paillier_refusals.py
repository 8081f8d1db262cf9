"""Malformed messages of Paillier's protocol: who sent what in which step."""

from __future__ import annotations

import numpy as np
import pytest
from gmpy2 import mpz

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.hamming.paillier import Paillier, to_bytes
from fedul_flwr.secure.hamming.pairwise import Arrays, Party, StepResult
from tests.secure.hamming.test_paillier import EVALUATOR, OWNER, SMALL, pair, private_key
from tests.support.hamming.pairs import changed, random_codes
from tests.support.refusals import refuses

PLAYED = pair(random_codes(41, 8), random_codes(3, 8, 1))
"""Two chunks of 39 and 2 points, 8 bits, 3 rows."""

OFFERED = PLAYED.inboxes["answer"][EVALUATOR][OWNER]
ANSWERED = PLAYED.inboxes["reveal"][OWNER][EVALUATOR]
REVEALED, MASKS = (PLAYED.server[OWNER, EVALUATOR][client] for client in (OWNER, EVALUATOR))
KEY = private_key(PLAYED)


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
        (KEY.n**2, "out of range"),
        (mpz(0), "coprime"),
        (KEY.n, "coprime"),
        (KEY.p, "coprime"),
        (3 * KEY.q, "coprime"),
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
    sums, masks = (with_number(a, KEY.n) for a in (REVEALED["sums"], MASKS["masks"]))
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
    with refuses("message-form", match=f"{TO_SERVER[0]} sums that do not go with the masks"):
        Paillier(32).distances((points, 1), 8, by_owner, {"masks": to_bytes([mpz(77)], 4)[None]})


def test_refuses_longer_codes() -> None:
    with refuses("setting-out-of-range", match="8192"):
        SMALL.prepare(Party(0, (1,), (), {0: 1, 1: 1}, 8192, bytes(32)))
    with refuses("setting-out-of-range", match="8192"):
        SMALL.distances((1, 1), 8192, {}, {})
    assert SMALL.prepare(Party(0, (1,), (), {0: 1, 1: 1}, 8191, bytes(32))) == StepResult()
