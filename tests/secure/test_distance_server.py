"""What the server refuses while distances are computed, and whom it names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.errors import UserError
from fedul_flwr.secure.distance_server import DistanceServer
from fedul_flwr.secure.encrypted_distances import (
    ANSWER,
    KEYS,
    OFFER,
    OWN,
    POINTS,
    REVEAL,
    SHARES,
)
from fedul_flwr.secure.session import PUBLIC
from tests.support.toy_protocol import BITS, FOUR, Toy, group

Change = dict[str, NDArray[Any] | None]
IN_KEYS, IN_OFFER = "Client 1 sent in step 'keys'", "Client 1 sent in step 'offer'"
A_KEY, A_SIZE = "as 'public-keys'; it must be uint8 (32,).", "as 'num-points'; it must be int64 ()."
TO_2 = "Client 1 sent client 2 no message in step 'answer'."
ALL_OWN = "as 'own-distances'; it must be uint16 (3, 3)."
NO_OWN = f"{IN_OFFER} no distances of its points; they must be symmetric and at most L."
OWN_DISTANCES = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]], np.uint16)
IN_ANSWER, IN_REVEAL = "Client 1 sent in step 'answer'", "Client 1 sent in step 'reveal'"
OF_9 = "it must be uint16 (6, 3)."
MASK_9, MASKED_2 = f"as 'tell/9/mask'; {OF_9}", "as 'tell/2/masked'; it must be uint16 (3, 4)."
EVALUATORS_OFFER = "Client 1 sent its evaluators no message in step 'offer'."


def unasked(step: str, name: str) -> str:
    return f"Client 1 sent in step '{step}' '{name}', for which nobody asked."


MALFORMED: list[tuple[str, Change, str]] = [
    (KEYS, {PUBLIC: None}, f"{IN_KEYS} nothing {A_KEY}"),
    (KEYS, {PUBLIC: np.zeros(31, np.uint8)}, f"{IN_KEYS} uint8 (31,) {A_KEY}"),
    (KEYS, {PUBLIC: np.zeros(32, np.int8)}, f"{IN_KEYS} int8 (32,) {A_KEY}"),
    (KEYS, {POINTS: None}, f"{IN_KEYS} nothing {A_SIZE}"),
    (KEYS, {POINTS: np.array(-1)}, f"{IN_KEYS} a number of points below 0; it must be 0 or more."),
    (KEYS, {POINTS: np.array([3])}, f"{IN_KEYS} int64 (1,) {A_SIZE}"),
    (KEYS, {POINTS: np.array(3.0)}, f"{IN_KEYS} float64 () {A_SIZE}"),
    (SHARES, {OWN: OWN_DISTANCES}, unasked("shares", "own-distances")),
    (SHARES, {"to/9": None}, "Client 1 sent client 9 no message in step 'shares'."),
    (OFFER, {"to/4": np.zeros(50)}, "Client 1 sent client 4 no message in step 'offer'."),
    (ANSWER, {"to/2": np.array(1, np.uint8)}, TO_2),
    (OFFER, {OWN: None}, f"{IN_OFFER} nothing {ALL_OWN}"),
    (OFFER, {OWN: OWN_DISTANCES.astype(np.int64)}, f"{IN_OFFER} int64 (3, 3) {ALL_OWN}"),
    (OFFER, {OWN: OWN_DISTANCES[:2, :2]}, f"{IN_OFFER} uint16 (2, 2) {ALL_OWN}"),
    (OFFER, {OWN: OWN_DISTANCES + np.triu(OWN_DISTANCES)}, NO_OWN),
    (OFFER, {OWN: OWN_DISTANCES * np.uint16(30)}, NO_OWN),
    (SHARES, {"tell/8/mask": np.zeros(1)}, unasked("shares", "tell/8/mask")),
    (ANSWER, {"tell/1/mask": np.zeros(1)}, unasked("answer", "tell/1/mask")),
    (REVEAL, {"tell/x/mask": np.zeros(1)}, unasked("reveal", "tell/x/mask")),
    (REVEAL, {"tell/": np.zeros(1)}, unasked("reveal", "tell/")),
    (OFFER, {"to-evaluators": None}, EVALUATORS_OFFER),
    (OFFER, {"to-evaluators": np.zeros((1, 50), np.uint8)}, EVALUATORS_OFFER),
    (OFFER, {"to-evaluators": np.zeros(50)}, EVALUATORS_OFFER),
    (OFFER, {"to-owners": np.zeros(50, np.uint8)}, unasked("offer", "to-owners")),
    # On the circle 1, 2, 4, 9 client 1 owns its pairs with 2 and 4, and 9 the one with it.
    (ANSWER, {"tell/9/mask": None}, f"{IN_ANSWER} nothing as 'tell/9/mask'; {OF_9}"),
    (ANSWER, {"tell/9/mask": np.zeros((3, 6), np.uint16)}, f"{IN_ANSWER} uint16 (3, 6) {MASK_9}"),
    (REVEAL, {"tell/2/masked": np.zeros((3, 4))}, f"{IN_REVEAL} float64 (3, 4) {MASKED_2}"),
]  # fmt: skip


@pytest.mark.parametrize(("at", "change", "message"), MALFORMED)
def test_malformed_answers_are_refused(at: str, change: Change, message: str) -> None:
    played = group(FOUR)
    server = played.play(until=at)
    answers = played.answer(server.ask())
    odd = {name: array for name, array in {**answers[1], **change}.items() if array is not None}
    with pytest.raises(UserError) as error:
        server.take({**answers, 1: odd})
    assert str(error.value) == message


def test_a_message_to_all_owners_is_missed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    played = group(FOUR)
    server = played.play(until=OFFER)
    answer = played.answer(server.ask())[1]
    assert "to-evaluators" in answer
    monkeypatch.setattr(Toy, "groups", {OFFER: "owners"})
    with pytest.raises(UserError) as error:
        server.check(1, answer)
    assert str(error.value) == "Client 1 sent its owners no message in step 'offer'."


def test_points_of_a_client_may_be_opposite() -> None:
    played = group(FOUR)
    server = played.play(until=OFFER)
    answer = played.answer(server.ask())[1]
    opposite = np.array([[0, BITS, 1], [BITS, 0, 2], [1, 2, 0]], np.uint16)
    assert server.check(1, {**answer, OWN: opposite}) == 3
    with pytest.raises(UserError, match="at most L"):
        server.check(1, {**answer, OWN: opposite + (opposite == BITS)})


def test_numbers_that_do_not_go_together_name_both_clients() -> None:
    """Either one may lie: distances are differences of numbers that are random on their own."""
    played = group(FOUR)
    server = played.play(until=REVEAL)
    answers = played.answer(server.ask())
    answers[1]["tell/2/masked"] = answers[1]["tell/2/masked"] + np.uint16(30000)
    server.take(answers)
    with pytest.raises(UserError) as error:
        server.distances()
    said = "Comparing owner 1 and evaluator 2: the owner sent a distance above L."
    assert str(error.value) == said


def test_codes_too_long_for_their_distances_are_refused() -> None:
    DistanceServer(Toy(), [0, 1, 2], 65528)
    with pytest.raises(UserError) as error:
        DistanceServer(Toy(), [0, 1, 2], 65536)
    assert str(error.value) == (
        "Codes of 65536 bits are too long to be compared in secret: "
        "xclp.num-bits must be 65528 or less."
    )
    with pytest.raises(UserError, match="multiple of 8"):
        DistanceServer(Toy(), [0, 1, 2], 100)
