"""Distances by oblivious transfer: malformed messages are refused, by name and without values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes
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
    ("offer", POINTS, np.zeros((127, 32), np.uint8)),
    ("offer", POINTS, np.zeros((128, 32), np.int8)),
    ("offer", POINTS, None),
    ("answer", POINT, np.zeros(33, np.uint8)),
    ("answer", CHOICES, np.zeros((128, 5), np.uint8)),
    ("reveal", CORRECTIONS, np.zeros((48, 3), np.uint16)),
]


@cache
def played() -> Played:
    """Without a fault."""
    return play(OT, CODES)


def is_refused(code: str, step: str, name: str, array: NDArray[Any] | None) -> None:
    """A message in which one array is another, or missing, is refused, and its sender named."""
    client, peer = (3, 9) if step == "answer" else (9, 3)
    message = played().inboxes[step][client][peer]
    before = STEPS[STEPS.index(step) - 1]
    with refuses(code, match=f"Client {peer} sent in step '{before}' "):
        played().turn(step, client, {peer: changed(message, name, array)})


@pytest.mark.parametrize(("step", "name", "array"), MALFORMED)
def test_refuses_another_form(step: str, name: str, array: Any) -> None:
    is_refused("message-form", step, name, array)


@pytest.mark.parametrize("bad", [OFF_CURVE, NOT_CANONICAL, *SMALL_ORDER])
def test_refuses_points_without_a_secret(bad: Bytes) -> None:
    points = np.array(played().turns["prepare"][3].to_peers[9][POINTS])
    points[100] = bad
    is_refused("key-unsafe", "offer", POINTS, points)
    is_refused("key-unsafe", "answer", POINT, bad)


@pytest.mark.parametrize(("role", "step"), [("owner", "answer"), ("evaluator", "reveal")])
def test_the_server_refuses_another_form(role: str, step: str) -> None:
    good = {SUMS: np.zeros((2, 3), np.uint16)}
    for bad in ({SUMS: np.zeros((3, 2), np.uint16)}, {}):
        said = (bad, good) if role == "owner" else (good, bad)
        with refuses("message-form", match=f"The {role} sent in step '{step}' "):
            OT.distances((2, 3), 16, *said)


def test_the_server_refuses_what_is_no_distance() -> None:
    # 3 - 65523 = 16 modulo 2^16, and 3 - 65522 is 17.
    own, received = np.array([[65523]], np.uint16), np.array([[3]], np.uint16)
    assert OT.distances((1, 1), 16, {SUMS: own}, {SUMS: received}).tolist() == [[16]]
    with refuses("peer-cheated", match="16"):
        OT.distances((1, 1), 16, {SUMS: own - 1}, {SUMS: received})


def test_refuses_codes_longer_than_the_ring() -> None:
    with refuses("setting-out-of-range", match="65536"):
        OT.prepare(Party(0, (), (), {0: 1}, 2**16, SESSION))
    sums = {SUMS: np.zeros((1, 1), np.uint16)}
    with refuses("setting-out-of-range", match="65536"):
        OT.distances((1, 1), 2**16, sums, sums)
