"""Malformed messages of Paillier's protocol: who sent what in which step, and no value."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gmpy2 import mpz
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes
from fedul_flwr.errors import UserError
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

WRONG_FORMS: list[NDArray[Any] | None] = [
    None,
    np.zeros((), np.uint8),
    np.zeros((2, 3, 63), np.uint8),
    np.zeros((2, 3, 127), np.uint8),
    np.zeros((1, 3, 128), np.uint8),
    np.zeros((2, 4, 128), np.uint8),
    np.zeros((2, 4, 64), np.uint8),
    np.zeros((2, 3, 128), np.int8),
    np.zeros((2, 3, 64), np.float64),
    np.zeros((64, 1), np.uint8),
    np.zeros(65, np.uint8),
]


def name_of(form: NDArray[Any] | None) -> str:
    return "nothing" if form is None else f"{form.dtype} {form.shape}"


def with_number(array: Bytes, number: int | mpz) -> Bytes:
    """The same with another number in the last place of the first chunk."""
    copy = array.copy()
    copy[0, -1] = to_bytes([mpz(number)], array.shape[-1])[0]
    return copy


def answer_to(offered: Arrays) -> StepResult:
    return PLAYED.turn("answer", EVALUATOR, {OWNER: offered})


def reveal_of(answered: Arrays) -> StepResult:
    return PLAYED.turn("reveal", OWNER, {EVALUATOR: answered})


def refusal(wanted: str) -> Any:
    return pytest.raises(UserError, match=f"^{re.escape(wanted)}$")


@pytest.mark.parametrize("form", WRONG_FORMS, ids=name_of)
def test_forms_of_all_arrays(form: NDArray[Any] | None) -> None:
    found = f"{name_of(form)} as"
    offer, answer = (
        f"Client {OWNER} sent in step 'offer'",
        f"Client {EVALUATOR} sent in step 'answer'",
    )
    with refusal(f"{offer} {found} 'modulus'; it must be uint8 (64,)."):
        answer_to(changed(OFFERED, "modulus", form))
    with refusal(f"{offer} {found} 'ciphertexts'; it must be uint8 (2, 8, 128)."):
        answer_to(changed(OFFERED, "ciphertexts", form))
    with refusal(f"{answer} {found} 'ciphertexts'; it must be uint8 (2, 3, 128)."):
        reveal_of(changed(ANSWERED, "ciphertexts", form))
    owner = "The owner sent in step 'reveal'"
    with refusal(f"{owner} {found} 'modulus'; it must be uint8 (64,)."):
        SMALL.distances((41, 3), 8, changed(REVEALED, "modulus", form), MASKS)
    with refusal(f"{owner} {found} 'sums'; it must be uint8 (2, 3, 64)."):
        SMALL.distances((41, 3), 8, changed(REVEALED, "sums", form), MASKS)
    with refusal(
        f"The evaluator sent in step 'answer' {found} 'masks'; it must be uint8 (2, 3, 64)."
    ):
        SMALL.distances((41, 3), 8, REVEALED, changed(MASKS, "masks", form))


@pytest.mark.parametrize(
    "number", [0, 1, 2**511 - 1, 2**512 - 2, 2**511], ids=["0", "1", "short", "even", "power of 2"]
)
def test_moduli(number: int) -> None:
    modulus = to_bytes([mpz(number)], 64)[0]
    rule = "a modulus of another kind; it must be odd and have 512 bits."
    with refusal(f"Client {OWNER} sent in step 'offer' {rule}"):
        answer_to(changed(OFFERED, "modulus", modulus))
    with refusal(f"The owner sent in step 'reveal' {rule}"):
        SMALL.distances((41, 3), 8, changed(REVEALED, "modulus", modulus), MASKS)


TOO_LARGE = "ciphertexts out of range; they must be below the modulus squared."
NOT_COPRIME = "ciphertexts that are none; they must be coprime to the modulus."


@pytest.mark.parametrize(
    ("number", "rule"),
    [
        (KEY.n**2, TOO_LARGE),
        (2**1024 - 1, TOO_LARGE),
        (mpz(0), NOT_COPRIME),
        (KEY.n, NOT_COPRIME),
        (KEY.p, NOT_COPRIME),
        (3 * KEY.q, NOT_COPRIME),
    ],
    ids=["n²", "largest", "0", "n", "p", "3 q"],
)
def test_ciphertexts_that_are_none(number: mpz, rule: str) -> None:
    offered, answered = (with_number(sent["ciphertexts"], number) for sent in (OFFERED, ANSWERED))
    with refusal(f"Client {OWNER} sent in step 'offer' {rule}"):
        answer_to(changed(OFFERED, "ciphertexts", offered))
    with refusal(f"Client {EVALUATOR} sent in step 'answer' {rule}"):
        reveal_of({"ciphertexts": answered})


@pytest.mark.parametrize("number", [KEY.n, 2**512 - 1], ids=["n", "largest"])
def test_sums_and_masks_out_of_range(number: mpz) -> None:
    with refusal(
        "The owner sent in step 'reveal' sums out of range; they must be below the modulus."
    ):
        sums = with_number(REVEALED["sums"], number)
        SMALL.distances((41, 3), 8, changed(REVEALED, "sums", sums), MASKS)
    with refusal(
        "The evaluator sent in step 'answer' masks out of range; they must be below the modulus."
    ):
        SMALL.distances((41, 3), 8, REVEALED, {"masks": with_number(MASKS["masks"], number)})


@pytest.mark.parametrize(
    ("points", "plaintext"),
    # Slots of 13 bits: above L = 8 in the first and in the second; beyond the last; negative.
    [(2, 9), (2, 9 << 13), (2, 1 << 26), (1, 1 << 13), (2, -1)],
)
def test_sums_that_are_no_distances(points: int, plaintext: int) -> None:
    n = 2**32 - 5
    sums = to_bytes([mpz((plaintext + 77) % n)], 4)[None]
    by_owner = {"modulus": to_bytes([mpz(n)], 4)[0], "sums": sums}
    with refusal(
        "The owner sent in step 'reveal' sums that do not go with the masks of the evaluator; "
        "distances must be from 0 to 8."
    ):
        Paillier(32).distances((points, 1), 8, by_owner, {"masks": to_bytes([mpz(77)], 4)[None]})


def test_masks_of_another_session_do_not_go_with_the_sums() -> None:
    again = PLAYED.turn("answer", EVALUATOR)
    with refuses("message-form", match="masks"):
        SMALL.distances((41, 3), 8, REVEALED, again.to_server[OWNER])


@pytest.mark.parametrize("num_bits", [8192, 16384])
def test_refuses_longer_codes(num_bits: int) -> None:
    message = rf"^codes have {num_bits} bits; paillier compares at most 8191$"
    with pytest.raises(UserError, match=message):
        SMALL.prepare(Party(0, (1,), (), {0: 1, 1: 1}, num_bits, bytes(32)))
    with pytest.raises(UserError, match=message):
        SMALL.distances((1, 1), num_bits, {}, {})
    for longest in (8184, 8191):
        assert SMALL.prepare(Party(0, (1,), (), {0: 1, 1: 1}, longest, bytes(32))) == StepResult()
