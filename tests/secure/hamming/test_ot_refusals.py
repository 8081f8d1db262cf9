"""Distances by oblivious transfer: malformed messages are refused, by name and without values."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes
from fedul_flwr.errors import UserError
from fedul_flwr.secure.hamming.ot import CHOICES, CORRECTIONS, OT, POINT, POINTS, SUMS
from fedul_flwr.secure.hamming.pairwise import Party
from tests.support.hamming.pairs import SESSION, STEPS, Played, changed, play, random_codes
from tests.support.hamming.reference_ot import P, compressed, small_order_points
from tests.support.refusals import refuses

CODES = {3: random_codes(2, 16), 9: random_codes(3, 16)}
OFF_CURVE = np.frombuffer((2).to_bytes(32, "little"), np.uint8)
SMALL_ORDER = [np.frombuffer(compressed(point), np.uint8) for point in small_order_points()]
NOT_CANONICAL = np.frombuffer((P + 3).to_bytes(32, "little"), np.uint8)

MALFORMED = [
    ("offer", POINTS, np.zeros((127, 32), np.uint8), "uint8 (127, 32) as 'points'"),
    ("offer", POINTS, np.zeros((128, 31), np.uint8), "uint8 (128, 31) as 'points'"),
    ("offer", POINTS, np.zeros(128 * 32, np.uint8), "uint8 (4096,) as 'points'"),
    ("offer", POINTS, np.zeros((128, 32), np.int8), "int8 (128, 32) as 'points'"),
    ("offer", POINTS, None, "nothing as 'points'"),
    ("answer", POINT, np.zeros(33, np.uint8), "uint8 (33,) as 'point'"),
    ("answer", POINT, np.zeros(4, np.uint64), "uint64 (4,) as 'point'"),
    ("answer", POINT, None, "nothing as 'point'"),
    ("answer", CHOICES, np.zeros((128, 5), np.uint8), "uint8 (128, 5) as 'choices'"),
    ("answer", CHOICES, np.zeros((129, 6), np.uint8), "uint8 (129, 6) as 'choices'"),
    ("answer", CHOICES, np.zeros((128, 6), np.uint16), "uint16 (128, 6) as 'choices'"),
    ("answer", CHOICES, None, "nothing as 'choices'"),
    ("reveal", CORRECTIONS, np.zeros((47, 2), np.uint16), "uint16 (47, 2) as 'corrections'"),
    ("reveal", CORRECTIONS, np.zeros((48, 3), np.uint16), "uint16 (48, 3) as 'corrections'"),
    ("reveal", CORRECTIONS, np.zeros((48, 2), np.int16), "int16 (48, 2) as 'corrections'"),
    ("reveal", CORRECTIONS, np.zeros((48, 2), ">u2"), ">u2 (48, 2) as 'corrections'"),
    ("reveal", CORRECTIONS, None, "nothing as 'corrections'"),
]
FORMS = {
    POINTS: "uint8 (128, 32)",
    POINT: "uint8 (32,)",
    CHOICES: "uint8 (128, 6)",
    CORRECTIONS: "uint16 (48, 2)",
}


@cache
def played() -> Played:
    """Without a fault."""
    return play(OT, CODES)


def refusal(step: str, name: str, array: NDArray[Any] | None) -> str:
    """What is said of a message in which one array is another, or missing."""
    client, peer = (3, 9) if step == "answer" else (9, 3)
    inbox = played().inboxes[step][client]
    assert set(inbox) == {peer}
    with pytest.raises(UserError) as error:
        played().turn(step, client, {peer: changed(inbox[peer], name, array)})
    before = STEPS[STEPS.index(step) - 1]
    start = f"Client {peer} sent in step '{before}' "
    assert str(error.value).startswith(start)
    return str(error.value).removeprefix(start)


@pytest.mark.parametrize(("step", "name", "array", "was"), MALFORMED, ids=[m[3] for m in MALFORMED])
def test_refuses_another_form(step: str, name: str, array: Any, was: str) -> None:
    assert refusal(step, name, array) == f"{was}; it must be {FORMS[name]}."


@pytest.mark.parametrize("bad", [OFF_CURVE, NOT_CANONICAL, *SMALL_ORDER])
def test_refuses_points_without_a_secret_and_tells_no_value(bad: Bytes) -> None:
    points = np.array(played().turns["prepare"][3].to_peers[9][POINTS])
    points[100] = bad
    expected = "a point that gives no secret; it must be of prime order on edwards25519."
    assert refusal("offer", POINTS, points) == expected
    assert refusal("answer", POINT, bad) == expected


@pytest.mark.parametrize(("role", "step"), [("owner", "answer"), ("evaluator", "reveal")])
@pytest.mark.parametrize(
    ("sums", "was"),
    [
        (np.zeros((3, 2), np.uint16), "uint16 (3, 2) as 'sums'"),
        (np.zeros(6, np.uint16), "uint16 (6,) as 'sums'"),
        (np.zeros((2, 3), np.int64), "int64 (2, 3) as 'sums'"),
        (None, "nothing as 'sums'"),
    ],
    ids=str,
)
def test_the_server_refuses_another_form(role: str, step: str, sums: Any, was: str) -> None:
    good = {SUMS: np.zeros((2, 3), np.uint16)}
    bad = {} if sums is None else {SUMS: sums}
    said = (bad, good) if role == "owner" else (good, bad)
    with refuses("message-form", match=re.escape(f"The {role} sent in step '{step}' {was}")):
        OT.distances((2, 3), 16, *said)


def test_the_server_refuses_what_is_no_distance() -> None:
    # 3 - 65523 = 16 modulo 2^16, and 3 - 65522 is 17.
    own, received = np.array([[65523]], np.uint16), np.array([[3]], np.uint16)
    assert OT.distances((1, 1), 16, {SUMS: own}, {SUMS: received}).tolist() == [[16]]
    with refuses("peer-cheated", match="16"):
        OT.distances((1, 1), 16, {SUMS: own - 1}, {SUMS: received})


def test_refuses_codes_longer_than_the_ring() -> None:
    message = "codes have 65536 bits; L must be at most 65535 for backend 'ot'"
    with pytest.raises(UserError) as error:
        OT.prepare(Party(0, (), (), {0: 1}, 2**16, SESSION))
    assert str(error.value) == message
    sums = {SUMS: np.zeros((1, 1), np.uint16)}
    with pytest.raises(UserError) as error:
        OT.distances((1, 1), 2**16, sums, sums)
    assert str(error.value) == message
