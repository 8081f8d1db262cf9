"""What the server refuses while distances are computed, and whom it names."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.errors import BadMessageError
from fedul_flwr.secure.encrypted_distances import (
    ANSWER,
    KEYS,
    OFFER,
    OWN_DISTANCES,
    POINTS,
    REVEAL,
    SHARES,
    DistanceServer,
)
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC, SIGNATURES
from fedul_flwr.secure.similarity import ExcludedClientsError
from tests.support.refusals import refuses
from tests.support.toy_protocol import BITS, FOUR, Toy, group

Change = dict[str, NDArray[Any] | None]
Answers = dict[int, dict[str, NDArray[Any]]]
DISTANCES = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]], np.uint16)
MALFORMED: list[tuple[str, Change, str]] = [
    (KEYS, {PUBLIC: None}, "message-form"),
    (KEYS, {PUBLIC: np.zeros(1215, np.uint8)}, "message-form"),
    (KEYS, {SIGNATURES: np.zeros(131, np.uint8)}, "message-form"),
    (KEYS, {POINTS: np.array(-1)}, "message-out-of-range"),
    (KEYS, {POINTS: np.array([3])}, "message-form"),
    (SHARES, {OWN_DISTANCES: DISTANCES}, "message-unasked"),
    (SHARES, {"to/9": None}, "message-incomplete"),
    (OFFER, {"to/4": np.zeros(50)}, "message-incomplete"),
    (ANSWER, {"to/2": np.array(1, np.uint8)}, "message-incomplete"),
    (OFFER, {OWN_DISTANCES: None}, "message-form"),
    (OFFER, {OWN_DISTANCES: DISTANCES[:2, :2]}, "message-form"),
    (OFFER, {OWN_DISTANCES: DISTANCES + np.triu(DISTANCES)}, "message-form"),
    (OFFER, {OWN_DISTANCES: DISTANCES * np.uint16(30)}, "message-form"),
    (SHARES, {"tell/8/mask": np.zeros(1)}, "message-unasked"),
    (ANSWER, {"tell/1/mask": np.zeros(1)}, "message-unasked"),
    (OFFER, {"to-evaluators": None}, "message-incomplete"),
    (OFFER, {"to-owners": np.zeros(50, np.uint8)}, "message-unasked"),
    # On the circle 1, 2, 4, 9 client 1 owns its pairs with 2 and 4, and 9 the one with it.
    (ANSWER, {"tell/9/mask": np.zeros((3, 6), np.uint16)}, "message-form"),
    (REVEAL, {"tell/2/masked": np.zeros((3, 4))}, "message-form"),
]


def answered(at: str) -> tuple[DistanceServer, Answers]:
    """A server that waits for a step's answers, and these."""
    played = group(FOUR)
    server = played.play(until=at)
    return server, played.answer(server.ask())


@pytest.mark.parametrize(("at", "change", "code"), MALFORMED)
def test_malformed_answers_are_refused(at: str, change: Change, code: str) -> None:
    server, answers = answered(at)
    odd = {name: array for name, array in {**answers[1], **change}.items() if array is not None}
    with refuses(code, match=f"Client 1 sent .*'{at}'"):
        server.take({**answers, 1: odd})


def test_a_message_to_all_owners_is_missed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    server, answers = answered(OFFER)
    assert "to-evaluators" in answers[1]
    monkeypatch.setattr(Toy, "groups", {OFFER: "owners"})
    with refuses("message-incomplete", match="Client 1 .*'offer'"):
        server.check(1, answers[1])


def test_points_of_a_client_may_be_opposite() -> None:
    server, answers = answered(OFFER)
    opposite = np.array([[0, BITS, 1], [BITS, 0, 2], [1, 2, 0]], np.uint16)
    assert server.check(1, {**answers[1], OWN_DISTANCES: opposite}) == 3
    with refuses("message-form", match="distances"):
        server.check(1, {**answers[1], OWN_DISTANCES: opposite + (opposite == BITS)})


@pytest.mark.parametrize(
    ("wrong", "gone", "tied", "left"),
    # Either one of a pair may lie: distances are differences of numbers that are random alone.
    [([2], {1, 2}, {1, 2}, (4, 9)), ([2, 4], {1}, set(), (2, 4, 9))],
)
def test_given_numbers_that_do_not_go_together_then_one_or_both_leave(
    wrong: list[int], gone: set[int], tied: set[int], left: tuple[int, ...]
) -> None:
    server, answers = answered(REVEAL)
    for peer in wrong:
        name = f"tell/{peer}/masked"
        answers[1][name] = answers[1][name] + np.uint16(30000)
    server.take(answers)
    with pytest.raises(ExcludedClientsError) as error:
        server.distances()
    assert ({*error.value.excluded}, error.value.tied, error.value.left) == (gone, tied, left)


@pytest.mark.parametrize(
    ("about", "gone", "tied", "left"),
    [
        ({1: 9, 2: 9, 4: 9}, {9}, set(), (1, 2, 4)),
        ({1: 9, 2: 9}, {9}, set(), (1, 2, 4)),
        ({1: 9}, {1, 9}, {1, 9}, (2, 4)),
        ({1: 9, 9: 1}, {1, 9}, {1, 9}, (2, 4)),
        ({1: 9, 2: 9, 4: 9, 9: 1}, {9}, set(), (1, 2, 4)),
    ],
    ids=["all but one", "two", "one", "each about the other", "back at one of three"],
)
def test_given_complaints_then_who_has_most_of_them_leaves(
    about: dict[int, int], gone: set[int], tied: set[int], left: tuple[int, ...]
) -> None:
    server, answers = answered(OFFER)
    answers |= {client: {COMPLAINT: np.array([subject])} for client, subject in about.items()}
    with pytest.raises(ExcludedClientsError) as error:
        server.take(answers)
    assert ({*error.value.excluded}, error.value.tied, error.value.left) == (gone, tied, left)


def test_a_complaint_about_one_that_has_left_ends_the_attempt_and_nobody_else_leaves() -> None:
    server, answers = answered(OFFER)
    del answers[9]
    answers[1] = {COMPLAINT: np.array([9])}
    with pytest.raises(ExcludedClientsError) as error:
        server.take(answers)
    assert (error.value.excluded, error.value.left) == ({}, (1, 2, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        {COMPLAINT: np.array([1])},
        {COMPLAINT: np.array([7])},
        {COMPLAINT: np.array([2.0])},
        {COMPLAINT: np.array([2]), OWN_DISTANCES: DISTANCES},
    ],
    ids=["itself", "nobody", "a float", "more"],
)
def test_a_complaint_that_is_none_is_refused(wrong: Any) -> None:
    server, _ = answered(OFFER)
    with refuses("message-form", BadMessageError, match="Client 1 .*'offer' .*complaint"):
        server.check(1, wrong)


def test_of_two_clients_with_one_public_key_both_leave() -> None:
    server, answers = answered(KEYS)
    answers[9][PUBLIC] = answers[2][PUBLIC]
    with pytest.raises(ExcludedClientsError) as error:
        server.take(answers)
    assert {*error.value.excluded} == {2, 9}


def test_an_empty_sealed_message_is_refused() -> None:
    server, answers = answered(ANSWER)
    for size in (0, 28, 1088 + 27):
        with refuses("message-incomplete", BadMessageError, match="client 2 "):
            server.check(1, {**answers[1], "to/2": np.zeros(size, np.uint8)})
    server.check(1, {**answers[1], "to/2": np.zeros(1088 + 28, np.uint8)})


def test_codes_too_long_for_their_distances_are_refused() -> None:
    DistanceServer(Toy(), [0, 1, 2], 65528)
    with refuses("setting-out-of-range", match="65528"):
        DistanceServer(Toy(), [0, 1, 2], 65536)
    with refuses("argument-not-allowed", match="multiple"):
        DistanceServer(Toy(), [0, 1, 2], 100)
