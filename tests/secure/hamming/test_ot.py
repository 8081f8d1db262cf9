"""Distances by oblivious transfer: equality with counting, dropouts, traffic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.secure.hamming.ot import CORRECTIONS, OT
from tests.secure.hamming.ot_play import STEPS, Pair, Play, random_codes


def count(one: Bytes, other: Bytes) -> Ints:
    """Bits that differ, in the clear."""
    differ = one[:, np.newaxis] ^ other
    return np.unpackbits(differ, axis=2).sum(axis=2, dtype=np.int64)


def assert_equals_counting(play: Play, pairs: list[Pair]) -> None:
    found = play.distances()
    assert list(found) == pairs
    for (owner, evaluator), distances in found.items():
        expected = count(play.codes[owner], play.codes[evaluator])
        assert distances.dtype == np.int64
        np.testing.assert_array_equal(distances, expected, strict=True)


@pytest.mark.parametrize(
    ("sizes", "num_bytes"),
    [
        ((7, 7), 16),
        ((2, 3), 131),
        ((1, 1), 1),
        ((1, 9), 3),
        ((9, 1), 3),
        ((0, 4), 2),
        ((4, 0), 2),
        ((0, 0), 2),
    ],
    ids=str,
)
def test_equals_counting(sizes: Pair, num_bytes: int) -> None:
    codes = {5: random_codes(1, sizes[0], num_bytes), 2: random_codes(2, sizes[1], num_bytes)}
    assert_equals_counting(Play(codes), [(5, 2)])


def test_all_equal_and_all_different() -> None:
    zeros, ones = np.zeros((2, 3), np.uint8), np.full((3, 3), 255, np.uint8)
    for one, other, expected in (
        (zeros, zeros, 0),
        (ones, ones, 0),
        (zeros, ones, 24),
        (ones, zeros, 24),
    ):
        found = Play({0: one, 1: other}).distances()[0, 1]
        assert found.tolist() == [[expected] * len(other)] * len(one)


def test_a_distance_by_hand() -> None:
    # 10110000 and 10011000 differ in bits 2 and 4; 11111111 and 10011000 in the five that are 0.
    codes = {0: np.array([[0b10110000], [255]], np.uint8), 1: np.array([[0b10011000]], np.uint8)}
    assert Play(codes).distances()[0, 1].tolist() == [[2], [5]]


def test_three_clients_side_by_side() -> None:
    codes = {7: random_codes(1, 4, 5), 3: random_codes(2, 2, 5), 11: random_codes(3, 3, 5)}
    assert_equals_counting(Play(codes), [(7, 3), (7, 11), (3, 11)])


def test_the_longest_codes_fill_the_ring() -> None:
    # L = 65528 = 2^16 - 8.
    codes = {0: np.zeros((1, 8191), np.uint8), 1: np.full((1, 8191), 255, np.uint8)}
    assert Play(codes).distances()[0, 1].tolist() == [[65528]]


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_equals_counting_for_any_codes(data: st.DataObject) -> None:
    num_bytes = data.draw(st.integers(1, 3))
    codes = {}
    for client in range(2):
        raw = data.draw(st.lists(st.binary(min_size=num_bytes, max_size=num_bytes), max_size=4))
        codes[client] = np.frombuffer(b"".join(raw), np.uint8).reshape(-1, num_bytes)
    assert_equals_counting(Play(codes, seed=data.draw(st.integers(0, 9))), [(0, 1)])


@pytest.mark.parametrize(
    ("client", "step", "left"),
    [
        (4, "prepare", [(6, 8)]),
        (6, "offer", [(4, 8)]),
        (8, "offer", [(4, 6)]),
        (6, "answer", [(4, 8)]),
        # An owner has said all there is to say once it has answered.
        (4, "reveal", [(4, 6), (4, 8), (6, 8)]),
        (6, "reveal", [(4, 8), (6, 8)]),
    ],
)
def test_who_drops_out_is_left_out(client: int, step: str, left: list[Pair]) -> None:
    codes = {4: random_codes(1, 2, 2), 6: random_codes(2, 3, 2), 8: random_codes(3, 1, 2)}
    assert_equals_counting(Play(codes, lost={client: step}), left)


def test_an_answer_that_was_not_asked_for_is_left_out() -> None:
    codes = {4: random_codes(1, 2, 2), 6: random_codes(2, 3, 2), 8: random_codes(3, 1, 2)}
    play = Play(codes, lost={4: "prepare"})
    inbox = {**play.inbox("reveal", 8), 4: {CORRECTIONS: np.zeros((16, 2), np.uint16)}}
    assert list(play.turn("reveal", 8, inbox).to_server) == [6]


def test_nothing_but_arrays_and_no_secret_after_its_use() -> None:
    play = Play({0: random_codes(1, 2, 2), 1: random_codes(2, 3, 2), 2: random_codes(3, 1, 2)})
    for turns in play.turns.values():
        for turn in turns.values():
            for arrays in (turn.state, *turn.to_peers.values(), *turn.to_server.values()):
                assert all(isinstance(array, np.ndarray) for array in arrays.values())
            assert "array" not in repr(turn)
    # Client 1 is the evaluator of 0 and the owner of 2.
    left = [sorted(play.turns[step][1].state) for step in STEPS]
    mine = ["points 2", "secret 2", "seeds 2"]
    assert left == [mine, ["keys 0", *mine], ["keys 0"], []]


def sent_by(play: Play) -> int:
    """Bytes of all messages."""
    return sum(
        array.nbytes
        for turns in play.turns.values()
        for turn in turns.values()
        for arrays in (*turn.to_peers.values(), *turn.to_server.values())
        for array in arrays.values()
    )


def test_traffic_and_cost() -> None:
    # 2 and 3 points of 16 bits: 128 points and 1 of 32 bytes, 48 transfers of 16 + 2 * 2 bytes,
    # twice 6 sums of 2 bytes.
    codes = [random_codes(1, 2, 2), random_codes(2, 3, 2)]
    assert sent_by(Play({0: codes[0], 1: codes[1]})) == 129 * 32 + 48 * 20 + 24
    # Who has more points may be the evaluator: 32 transfers of 16 + 2 * 3 bytes. The mean counts.
    assert sent_by(Play({0: codes[1], 1: codes[0]})) == 129 * 32 + 32 * 22 + 24
    assert OT.cost([2, 3], 16).traffic == 129 * 32 + (48 * 20 + 32 * 22) / 2 + 24
    # Of equal sizes, three clients are three pairs.
    sent = sent_by(Play(dict.fromkeys(range(3), codes[0])))
    assert OT.cost([2, 2, 2], 16).traffic == sent == 3 * OT.cost([2, 2], 16).traffic
    # Three work two at a time.
    assert OT.cost([2, 2, 2], 16).seconds == pytest.approx(1.5 * OT.cost([2, 2], 16).seconds)
    assert OT.cost([100, 100], 1024).seconds > OT.cost([10, 100], 1024).seconds > 0
    assert OT.cost([2], 16) == OT.cost([], 16) == (0, 0)
