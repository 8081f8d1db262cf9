"""What the server refuses while distances are computed, and whom it names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.distance_server import DistanceServer
from fedul_flwr.secure.encrypted_distances import (
    ANSWER,
    KEYS,
    OFFER,
    OWN_DISTANCES,
    POINTS,
    REVEAL,
    SHARES,
)
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC, SIGNATURES
from fedul_flwr.secure.similarity import ExcludedClientsError
from tests.support.refusals import refuses
from tests.support.toy_protocol import BITS, FOUR, Toy, group

Change = dict[str, NDArray[Any] | None]
IN_KEYS, IN_OFFER = "Client 1 sent in step 'keys'", "Client 1 sent in step 'offer'"
A_KEY, A_SIZE = (
    "as 'public-keys'; it must be uint8 (1216,).",
    "as 'num-points'; it must be int64 ().",
)
A_SIGNATURE = "as 'signatures'; it must be uint8 (132,)."
TO_2 = "Client 1 sent client 2 no message in step 'answer'."
ALL_OWN = "as 'own-distances'; it must be uint16 (3, 3)."
NO_OWN = f"{IN_OFFER} no distances of its points; they must be symmetric and at most L."
DISTANCES = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]], np.uint16)
IN_ANSWER, IN_REVEAL = "Client 1 sent in step 'answer'", "Client 1 sent in step 'reveal'"
OF_9 = "it must be uint16 (6, 3)."
MASK_9, MASKED_2 = f"as 'tell/9/mask'; {OF_9}", "as 'tell/2/masked'; it must be uint16 (3, 4)."
EVALUATORS_OFFER = "Client 1 sent its evaluators no message in step 'offer'."


def unasked(step: str, name: str) -> str:
    return f"Client 1 sent in step '{step}' '{name}', for which nobody asked."


MALFORMED: list[tuple[str, Change, str]] = [
    (KEYS, {PUBLIC: None}, f"{IN_KEYS} nothing {A_KEY}"),
    (KEYS, {PUBLIC: np.zeros(1215, np.uint8)}, f"{IN_KEYS} uint8 (1215,) {A_KEY}"),
    (KEYS, {PUBLIC: np.zeros(1216, np.int8)}, f"{IN_KEYS} int8 (1216,) {A_KEY}"),
    (KEYS, {SIGNATURES: None}, f"{IN_KEYS} nothing {A_SIGNATURE}"),
    (KEYS, {SIGNATURES: np.zeros(131, np.uint8)}, f"{IN_KEYS} uint8 (131,) {A_SIGNATURE}"),
    (KEYS, {POINTS: None}, f"{IN_KEYS} nothing {A_SIZE}"),
    (KEYS, {POINTS: np.array(-1)}, f"{IN_KEYS} a number of points below 0; it must be 0 or more."),
    (KEYS, {POINTS: np.array([3])}, f"{IN_KEYS} int64 (1,) {A_SIZE}"),
    (KEYS, {POINTS: np.array(3.0)}, f"{IN_KEYS} float64 () {A_SIZE}"),
    (SHARES, {OWN_DISTANCES: DISTANCES}, unasked("shares", "own-distances")),
    (SHARES, {"to/9": None}, "Client 1 sent client 9 no message in step 'shares'."),
    (OFFER, {"to/4": np.zeros(50)}, "Client 1 sent client 4 no message in step 'offer'."),
    (ANSWER, {"to/2": np.array(1, np.uint8)}, TO_2),
    (OFFER, {OWN_DISTANCES: None}, f"{IN_OFFER} nothing {ALL_OWN}"),
    (OFFER, {OWN_DISTANCES: DISTANCES.astype(np.int64)}, f"{IN_OFFER} int64 (3, 3) {ALL_OWN}"),
    (OFFER, {OWN_DISTANCES: DISTANCES[:2, :2]}, f"{IN_OFFER} uint16 (2, 2) {ALL_OWN}"),
    (OFFER, {OWN_DISTANCES: DISTANCES + np.triu(DISTANCES)}, NO_OWN),
    (OFFER, {OWN_DISTANCES: DISTANCES * np.uint16(30)}, NO_OWN),
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
    with refuses("message-incomplete", match="Client 1 .*'offer'"):
        server.check(1, answer)


def test_points_of_a_client_may_be_opposite() -> None:
    played = group(FOUR)
    server = played.play(until=OFFER)
    answer = played.answer(server.ask())[1]
    opposite = np.array([[0, BITS, 1], [BITS, 0, 2], [1, 2, 0]], np.uint16)
    assert server.check(1, {**answer, OWN_DISTANCES: opposite}) == 3
    with refuses("message-form", match="distances"):
        server.check(1, {**answer, OWN_DISTANCES: opposite + (opposite == BITS)})


def test_numbers_that_do_not_go_together_make_both_clients_leave() -> None:
    """Either one may lie: distances are differences of numbers that are random on their own."""
    played = group(FOUR)
    server = played.play(until=REVEAL)
    answers = played.answer(server.ask())
    answers[1]["tell/2/masked"] = answers[1]["tell/2/masked"] + np.uint16(30000)
    server.take(answers)
    with pytest.raises(ExcludedClientsError) as error:
        server.distances()
    assert ({*error.value.excluded}, error.value.tied, error.value.left) == ({1, 2}, {1, 2}, (4, 9))


def test_given_numbers_of_one_client_that_fit_no_other_ones_then_it_leaves_alone() -> None:
    played = group(FOUR)
    server = played.play(until=REVEAL)
    answers = played.answer(server.ask())
    for peer in (2, 4):
        name = f"tell/{peer}/masked"
        answers[1][name] = answers[1][name] + np.uint16(30000)
    server.take(answers)
    with pytest.raises(ExcludedClientsError) as error:
        server.distances()
    assert ({*error.value.excluded}, error.value.tied, error.value.left) == ({1}, set(), (2, 4, 9))


def complaints(**by_client: int) -> Any:
    """What the server makes of answers that are complaints, the client's number first: ``c1=9``."""
    played = group(FOUR)
    server = played.play(until=OFFER)
    answers = played.answer(server.ask())
    for name, subject in by_client.items():
        answers[int(name[1:])] = {COMPLAINT: np.array(subject)}
    with pytest.raises(ExcludedClientsError) as error:
        server.take(answers)
    return {*error.value.excluded}, error.value.tied, error.value.left


def test_who_is_complained_about_by_several_leaves_alone() -> None:
    assert complaints(c1=9, c2=9, c4=9) == ({9}, set(), (1, 2, 4))
    assert complaints(c1=9, c2=9) == ({9}, set(), (1, 2, 4))


def test_of_a_single_complaint_both_leave() -> None:
    assert complaints(c1=9) == ({1, 9}, {1, 9}, (2, 4))


def test_given_two_that_complain_about_each_other_and_about_nobody_else_then_both_leave() -> None:
    assert complaints(c1=9, c9=1) == ({1, 9}, {1, 9}, (2, 4))


def test_who_complains_about_one_of_three_that_complain_about_it_leaves_alone() -> None:
    assert complaints(c1=9, c2=9, c4=9, c9=1) == ({9}, set(), (1, 2, 4))


def test_a_complaint_about_one_that_has_left_ends_the_attempt_and_nobody_else_leaves() -> None:
    played = group(FOUR)
    server = played.play(until=OFFER)
    answers = played.answer(server.ask())
    del answers[9]
    answers[1] = {COMPLAINT: np.array(9)}
    with pytest.raises(ExcludedClientsError) as error:
        server.take(answers)
    assert (error.value.excluded, error.value.left) == ({}, (1, 2, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        {COMPLAINT: np.array(1)},  # itself
        {COMPLAINT: np.array(7)},  # nobody
        {COMPLAINT: np.array(2.0)},
        {COMPLAINT: np.array([2])},
        {COMPLAINT: np.array(2), OWN_DISTANCES: DISTANCES},
    ],
)
def test_a_complaint_that_is_none_is_refused(wrong: Any) -> None:
    played = group(FOUR)
    server = played.play(until=OFFER)
    played.answer(server.ask())
    with refuses("message-form", BadMessageError, match="Client 1 .*'offer' .*complaint"):
        server.check(1, wrong)


def test_of_two_clients_with_one_public_key_both_leave() -> None:
    played = group(FOUR)
    server = played.server()
    answers = played.answer(server.ask())
    answers[9][PUBLIC] = answers[2][PUBLIC]
    with pytest.raises(ExcludedClientsError) as error:
        server.take(answers)
    assert {*error.value.excluded} == {2, 9}


def test_an_empty_sealed_message_is_refused() -> None:
    played = group(FOUR)
    server = played.play(until=ANSWER)
    answer = played.answer(server.ask())[1]
    for size in (0, 28, 1088 + 27):
        with refuses("message-incomplete", BadMessageError, match="client 2 "):
            server.check(1, {**answer, "to/2": np.zeros(size, np.uint8)})
    server.check(1, {**answer, "to/2": np.zeros(1088 + 28, np.uint8)})


def test_codes_too_long_for_their_distances_are_refused() -> None:
    DistanceServer(Toy(), [0, 1, 2], 65528)
    with refuses("setting-out-of-range", match="65528"):
        DistanceServer(Toy(), [0, 1, 2], 65536)
    with refuses("argument-not-allowed", match="multiple"):
        DistanceServer(Toy(), [0, 1, 2], 100)
