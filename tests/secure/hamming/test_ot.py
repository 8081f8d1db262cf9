"""Distances by oblivious transfer: equality with counting, dropouts, traffic."""

from __future__ import annotations

import numpy as np
import pytest

from fedul_flwr.secure.hamming.ot import CORRECTIONS, OT
from tests.support.hamming.pairs import (
    STEPS,
    Pair,
    check,
    plain_distances,
    play,
    random_codes,
    traffic,
)


@pytest.mark.parametrize(
    ("sizes", "num_bits"),
    [
        ((7, 7), 128),
        ((2, 3), 1048),  # two blocks of 512 transfers a point, and a third one that is not full
        ((1, 1), 8),
        ((1, 9), 24),
        ((9, 1), 24),
        ((0, 4), 16),
        ((4, 0), 16),
        ((0, 0), 16),
    ],
    ids=str,
)
def test_equals_counting(sizes: tuple[int, int], num_bits: int) -> None:
    codes = {5: random_codes(sizes[0], num_bits, 1), 2: random_codes(sizes[1], num_bits, 2)}
    played = play(OT, codes)
    assert list(played.distances) == [(5, 2)]
    check(played)


def test_a_distance_by_hand() -> None:
    # 10110000 and 10011000 differ in bits 2 and 4; 11111111 and 10011000 in the five that are 0.
    codes = {0: np.array([[0b10110000], [255]], np.uint8), 1: np.array([[0b10011000]], np.uint8)}
    assert play(OT, codes).distances[0, 1].tolist() == [[2], [5]]


def test_the_longest_codes_fill_the_ring() -> None:
    # L = 65528 = 2^16 - 8.
    codes = {0: np.zeros((1, 8191), np.uint8), 1: np.full((1, 8191), 255, np.uint8)}
    assert play(OT, codes).distances[0, 1].tolist() == [[65528]]


THREE = {4: random_codes(2, 16), 6: random_codes(3, 16), 8: random_codes(1, 16)}
"""4 owns the pair with 6, 6 that with 8, and 8 that with 4."""


@pytest.mark.parametrize(
    ("client", "step", "left"),
    [
        (4, "prepare", (6, 8)),
        (6, "offer", (8, 4)),
        (8, "offer", (4, 6)),
        (6, "answer", (8, 4)),
        (4, "reveal", (6, 8)),
    ],
)
def test_who_drops_out_is_left_out(client: int, step: str, left: Pair) -> None:
    played = play(OT, THREE, gone={step: [client]})
    assert list(played.distances) == [left]
    check(played)


def test_an_owner_has_said_all_there_is_to_say_once_it_has_answered() -> None:
    played = play(OT, THREE, gone={"reveal": [4]})
    np.testing.assert_array_equal(played.compare(4, 6), plain_distances(THREE[4], THREE[6]))


def test_an_answer_that_was_not_asked_for_is_left_out() -> None:
    # The last of four clients is the evaluator of the first and of the third.
    played = play(OT, {**THREE, 9: random_codes(2, 16, 1)}, gone={"prepare": [4]})
    inbox = {**played.inboxes["reveal"][9], 4: {CORRECTIONS: np.zeros((32, 2), np.uint16)}}
    assert list(played.turn("reveal", 9, inbox).to_server) == [8]


def test_no_secret_is_kept_after_its_use() -> None:
    played = play(OT, THREE)
    assert all(
        "array" not in repr(result) for turns in played.turns.values() for result in turns.values()
    )
    # Client 6 is the evaluator of 4 and the owner of 8.
    left = [sorted(played.turns[step][6].state) for step in STEPS]
    mine = ["points 8", "secret 8", "seeds 8"]
    assert left == [mine, ["keys 4", *mine], ["keys 4"], []]


def test_traffic_and_cost() -> None:
    # 2 and 3 points of 16 bits: 128 points and 1 of 32 bytes, 48 transfers of 16 + 2 * 2 bytes,
    # twice 6 sums of 2 bytes.
    codes = [random_codes(2, 16), random_codes(3, 16)]
    assert traffic(play(OT, {0: codes[0], 1: codes[1]})) == 129 * 32 + 48 * 20 + 24
    # Who has more points may be the evaluator: 32 transfers of 16 + 2 * 3 bytes. The mean counts.
    assert traffic(play(OT, {0: codes[1], 1: codes[0]})) == 129 * 32 + 32 * 22 + 24
    assert OT.cost([2, 3], 16).traffic == 129 * 32 + (48 * 20 + 32 * 22) / 2 + 24
    assert OT.cost([2], 16) == OT.cost([], 16) == (0, 0)


@pytest.mark.parametrize(
    ("sizes", "pairs", "transfers", "distances", "at_a_time"),
    [
        # One pair; (2 + 3) / 2 points of 16 bits; 2 · 3 distances.
        ([2, 3], 1, 40, 6, 1),
        # Three pairs of which two work at a time; each of 5 points in 2 / 2 pairs.
        ([2, 0, 3], 3, 80, 6, 2),
    ],
)
def test_cost_by_hand(
    sizes: list[int], pairs: int, transfers: int, distances: int, at_a_time: int
) -> None:
    found = OT.cost(sizes, 16)
    seconds = 0.07 * pairs + 3e-6 * transfers + 2e-8 * 16 * distances
    assert found.seconds == pytest.approx(seconds / at_a_time)
    assert found.traffic == 129 * 32 * pairs + 16 * transfers + (2 * 16 + 4) * distances
