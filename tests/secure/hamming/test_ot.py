"""Distances by oblivious transfer: equality with counting, what each party sees, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.secure.hamming.edwards import compress
from fedul_flwr.secure.hamming.ot import CHOICES, CORRECTIONS, OT, POINT, POINTS, SUMS, _context
from fedul_flwr.secure.hamming.pairwise import Seat, Turn
from tests.secure.hamming.test_base_ot import seeded
from tests.secure.hamming.test_edwards import small_order_points

STEPS = ("prepare", "offer", "answer", "reveal")
SESSION = bytes(range(32))
Pair = tuple[int, int]


@dataclass
class Play:
    """A protocol among clients; of a pair, the first in order is the owner.

    ``lost`` says from which step on a client is silent. ``turns`` has what each did, by step.
    """

    codes: Mapping[int, Bytes]
    session: bytes = SESSION
    seed: int = 0
    lost: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clients = list(self.codes)
        self.sizes = {client: len(codes) for client, codes in self.codes.items()}
        self.num_bits = 8 * next(iter(self.codes.values())).shape[1]
        self.seats = {
            client: Seat(
                own=client,
                evaluators=tuple(clients[position + 1 :]),
                owners=tuple(clients[:position]),
                sizes=self.sizes,
                num_bits=self.num_bits,
                session=self.session,
                entropy=seeded(1000 * self.seed + client),
            )
            for position, client in enumerate(clients)
        }
        self.turns: dict[str, dict[int, Turn]] = {}
        for step in STEPS:
            self.turns[step] = {
                client: self.turn(step, client)
                for client in clients
                if client not in self.lost or STEPS.index(step) < STEPS.index(self.lost[client])
            }

    def inbox(self, step: str, client: int) -> dict[int, dict[str, NDArray[Any]]]:
        """What came to a client from the step before."""
        before = self.turns[STEPS[STEPS.index(step) - 1]]
        return {
            peer: dict(turn.to_peers[client])
            for peer, turn in before.items()
            if client in turn.to_peers
        }

    def turn(self, step: str, client: int, inbox: Any = None) -> Turn:
        seat = self.seats[client]
        if step == "prepare":
            return OT.prepare(seat)
        state = self.turns[STEPS[STEPS.index(step) - 1]][client].state
        inbox = self.inbox(step, client) if inbox is None else inbox
        deed = {"offer": OT.offer, "answer": OT.answer, "reveal": OT.reveal}[step]
        return deed(seat, state, self.codes[client], inbox)

    def said(self, client: int, peer: int) -> dict[str, NDArray[Any]]:
        """What the server heard from a client about a pair."""
        heard: dict[str, NDArray[Any]] = {}
        for turns in self.turns.values():
            if client in turns:
                heard |= turns[client].to_server.get(peer, {})
        return heard

    def distances(self) -> dict[Pair, Ints]:
        found = {}
        for owner, seat in self.seats.items():
            for peer in seat.evaluators:
                by_owner, by_peer = self.said(owner, peer), self.said(peer, owner)
                if by_owner and by_peer:
                    sizes = (self.sizes[owner], self.sizes[peer])
                    found[owner, peer] = OT.distances(sizes, self.num_bits, by_owner, by_peer)
        return found


def count(one: Bytes, other: Bytes) -> Ints:
    """Bits that differ, in the clear."""
    differ = one[:, np.newaxis] ^ other
    return np.unpackbits(differ, axis=2).sum(axis=2, dtype=np.int64)


def random_codes(seed: int, points: int, num_bytes: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (points, num_bytes), dtype=np.uint8)


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


def test_traffic_and_cost() -> None:
    # 2 and 3 points of 16 bits: 128 points and 1 of 32 bytes, 48 transfers of 16 + 2 * 2 bytes,
    # twice 6 sums of 2 bytes.
    play = Play({0: random_codes(1, 2, 2), 1: random_codes(2, 3, 2)})
    sent = sum(
        array.nbytes
        for turns in play.turns.values()
        for turn in turns.values()
        for arrays in (*turn.to_peers.values(), *turn.to_server.values())
        for array in arrays.values()
    )
    assert sent == 129 * 32 + 48 * 20 + 24
    assert OT.cost([2, 3], 16).traffic == sent
    # Each with each: the pairs of three clients are those of two and two.
    three, pairs = OT.cost([2, 3, 4], 16), [OT.cost(two, 16) for two in ([2, 3], [2, 4], [3, 4])]
    assert three.traffic == sum(pair.traffic for pair in pairs)
    assert three.seconds == pytest.approx(sum(pair.seconds for pair in pairs))
    assert OT.cost([2], 16) == OT.cost([], 16) == (0, 0)
    assert OT.cost([100, 100], 1024).seconds > OT.cost([10, 100], 1024).seconds > 0


# What each party sees


def uniform(words: NDArray[np.unsignedinteger[Any]]) -> bool:
    """Whether every byte of the words is as uniform as 4 bits of it can tell."""
    data = np.ascontiguousarray(words).view(np.uint8).reshape(-1, words.itemsize)
    return all(
        chisquare(np.bincount(nibble.ravel(), minlength=16)).pvalue > 1e-3
        for column in data.T
        for nibble in (column & 15, column >> 4)
    )


PATTERNS = {
    "zeros": np.zeros((40, 2), np.uint8),
    "ones": np.full((40, 2), 255, np.uint8),
    "random": random_codes(3, 40, 2),
}


@pytest.mark.parametrize("evaluator", PATTERNS)
@pytest.mark.parametrize("owner", PATTERNS)
def test_what_one_party_sees_is_uniform_whatever_the_codes(owner: str, evaluator: str) -> None:
    play = Play({0: PATTERNS[owner], 1: PATTERNS[evaluator]})
    assert uniform(play.turns["offer"][1].to_peers[0][CHOICES])
    assert uniform(play.turns["answer"][0].to_peers[1][CORRECTIONS])
    # Of the two that the server hears, each alone; their difference is a distance, at most 16.
    own, received = play.said(0, 1)[SUMS], play.said(1, 0)[SUMS]
    assert uniform(own)
    assert uniform(received)
    assert not uniform(received - own)


def test_codes_show_in_no_message_of_the_same_shape() -> None:
    # With other codes of the same sizes, and all else the same, every message has the same form.
    forms = []
    for pattern in PATTERNS.values():
        play = Play({0: pattern, 1: pattern})
        forms.append(
            [
                (name, array.dtype, array.shape)
                for turns in play.turns.values()
                for turn in turns.values()
                for arrays in (*turn.to_peers.values(), *turn.to_server.values())
                for name, array in arrays.items()
            ]
        )
    assert forms[0] == forms[1] == forms[2]


def choices_of(play: Play) -> Bytes:
    return np.asarray(play.turns["offer"][1].to_peers[0][CHOICES])


def test_randomness_used_twice_shows_in_what_codes_differ() -> None:
    own, one, other = (random_codes(seed, 5, 4) for seed in (1, 2, 3))
    differ = (one ^ other).ravel()
    first = Play({0: own, 1: one})
    same = Play({0: own, 1: other})
    np.testing.assert_array_equal(choices_of(first) ^ choices_of(same), np.tile(differ, (128, 1)))
    # Fresh bytes or another session, either is enough.
    for fresh in (Play({0: own, 1: other}, seed=1), Play({0: own, 1: other}, session=bytes(32))):
        found = choices_of(first) ^ choices_of(fresh)
        assert abs((found == differ).mean() - 1 / 256) < 0.01


def test_pads_used_twice_show_in_what_the_owners_codes_differ() -> None:
    # Corrections are A - B + 1 - 2 b: with the same pads they differ by 2 (b' - b).
    one, other, peers = (random_codes(seed, 5, 4) for seed in (1, 2, 3))
    bits, other_bits = (np.unpackbits(codes, axis=1).T for codes in (one, other))
    differ = np.tile(2 * (bits.astype(np.uint16) - other_bits), (5, 1))
    first = Play({0: one, 1: peers}).turns["answer"][0].to_peers[1][CORRECTIONS]
    same = Play({0: other, 1: peers}).turns["answer"][0].to_peers[1][CORRECTIONS]
    np.testing.assert_array_equal(same - first, differ)
    for fresh in (Play({0: other, 1: peers}, seed=1), Play({0: other, 1: peers}, bytes(32))):
        found = fresh.turns["answer"][0].to_peers[1][CORRECTIONS] - first
        assert (found == differ).mean() < 0.01


def test_no_two_hashes_begin_alike() -> None:
    seats = [Seat(0, (), (), {}, 8, session) for session in (SESSION, bytes(32))]
    pairs = [(1, 2), (2, 1), (1, 23), (12, 3), (-1, 2)]
    contexts = [
        _context(purpose, seat, *pair)
        for purpose in ("base", "pads")
        for seat in seats
        for pair in pairs
    ]
    assert len(set(contexts)) == 20
    # No context begins another one: the fifth blank ends the names, 32 bytes of session follow.
    assert all(context[:-32].count(b" ") == 5 for context in contexts)


def test_a_step_that_is_run_again_has_fresh_randomness() -> None:
    # After a crash, say: the same state, but its entropy has gone on.
    play = Play({0: random_codes(1, 2, 2), 1: random_codes(2, 2, 2)})
    for step, client in (("prepare", 0), ("offer", 1)):
        before = play.turns[step][client].to_peers[1 - client]
        after = play.turn(step, client).to_peers[1 - client]
        for name, array in after.items():
            assert (array != before[name]).any()


# Refusals

CODES = {3: random_codes(1, 2, 2), 9: random_codes(2, 3, 2)}
OFF_CURVE = np.frombuffer((2).to_bytes(32, "little"), np.uint8)
SMALL_ORDER = [np.frombuffer(compress(point), np.uint8) for point in small_order_points()]

MALFORMED = [
    ("offer", POINTS, np.zeros((127, 32), np.uint8), "points as uint8 (127, 32)"),
    ("offer", POINTS, np.zeros((128, 31), np.uint8), "points as uint8 (128, 31)"),
    ("offer", POINTS, np.zeros(128 * 32, np.uint8), "points as uint8 (4096,)"),
    ("offer", POINTS, np.zeros((128, 32), np.int8), "points as int8 (128, 32)"),
    ("offer", POINTS, None, "no points"),
    ("answer", POINT, np.zeros(33, np.uint8), "point as uint8 (33,)"),
    ("answer", POINT, np.zeros(4, np.uint64), "point as uint64 (4,)"),
    ("answer", POINT, None, "no point"),
    ("answer", CHOICES, np.zeros((128, 5), np.uint8), "choices as uint8 (128, 5)"),
    ("answer", CHOICES, np.zeros((129, 6), np.uint8), "choices as uint8 (129, 6)"),
    ("answer", CHOICES, np.zeros((128, 6), np.uint16), "choices as uint16 (128, 6)"),
    ("answer", CHOICES, None, "no choices"),
    ("reveal", CORRECTIONS, np.zeros((47, 2), np.uint16), "corrections as uint16 (47, 2)"),
    ("reveal", CORRECTIONS, np.zeros((48, 3), np.uint16), "corrections as uint16 (48, 3)"),
    ("reveal", CORRECTIONS, np.zeros((48, 2), np.int16), "corrections as int16 (48, 2)"),
    ("reveal", CORRECTIONS, np.zeros((48, 2), ">u2"), "corrections as >u2 (48, 2)"),
    ("reveal", CORRECTIONS, None, "no corrections"),
]
FORMS = {
    POINTS: "uint8 (128, 32)",
    POINT: "uint8 (32,)",
    CHOICES: "uint8 (128, 6)",
    CORRECTIONS: "uint16 (48, 2)",
}


def refusal(step: str, name: str, array: NDArray[Any] | None) -> str:
    """What is said of a message in which one array is another, or missing."""
    play = Play(CODES)
    client, peer = (3, 9) if step == "answer" else (9, 3)
    inbox = play.inbox(step, client)
    assert set(inbox) == {peer}
    if array is None:
        del inbox[peer][name]
    else:
        inbox[peer][name] = array
    with pytest.raises(UserError) as error:
        play.turn(step, client, inbox)
    before = STEPS[STEPS.index(step) - 1]
    start = f"Client {peer} sent in step '{before}' "
    assert str(error.value).startswith(start)
    return str(error.value).removeprefix(start)


@pytest.mark.parametrize(("step", "name", "array", "was"), MALFORMED, ids=[m[3] for m in MALFORMED])
def test_refuses_another_form(step: str, name: str, array: Any, was: str) -> None:
    assert refusal(step, name, array) == f"{was}; it must be {FORMS[name]}."


@pytest.mark.parametrize("bad", [OFF_CURVE, *SMALL_ORDER])
def test_refuses_points_without_a_secret_and_tells_no_value(bad: Bytes) -> None:
    points = np.array(Play(CODES).turns["prepare"][3].to_peers[9][POINTS])
    points[100] = bad
    expected = "a point off edwards25519 or of small order; it must be of large order on it."
    assert refusal("offer", POINTS, points) == expected
    assert refusal("answer", POINT, bad) == expected


@pytest.mark.parametrize("role", ["owner", "evaluator"])
@pytest.mark.parametrize(
    ("sums", "was"),
    [
        (np.zeros((3, 2), np.uint16), "sums as uint16 (3, 2)"),
        (np.zeros(6, np.uint16), "sums as uint16 (6,)"),
        (np.zeros((2, 3), np.int64), "sums as int64 (2, 3)"),
        (None, "no sums"),
    ],
    ids=str,
)
def test_the_server_refuses_another_form(role: str, sums: Any, was: str) -> None:
    good = {SUMS: np.zeros((2, 3), np.uint16)}
    bad = {} if sums is None else {SUMS: sums}
    said = (bad, good) if role == "owner" else (good, bad)
    with pytest.raises(UserError) as error:
        OT.distances((2, 3), 16, *said)
    assert str(error.value) == f"The {role} sent {was}; it must be uint16 (2, 3)."


def test_the_server_refuses_what_is_no_distance() -> None:
    # 3 - 65523 = 16 modulo 2^16, and 3 - 65522 is 17.
    own, received = np.array([[65523]], np.uint16), np.array([[3]], np.uint16)
    assert OT.distances((1, 1), 16, {SUMS: own}, {SUMS: received}).tolist() == [[16]]
    with pytest.raises(UserError) as error:
        OT.distances((1, 1), 16, {SUMS: own - 1}, {SUMS: received})
    assert str(error.value) == (
        "The owner and the evaluator sent sums whose difference is no distance; "
        "it must be at most 16."
    )


def test_refuses_codes_longer_than_the_ring() -> None:
    message = "codes have 65536 bits; L must be at most 65535 for backend 'ot'"
    with pytest.raises(UserError) as error:
        OT.prepare(Seat(0, (), (), {0: 1}, 2**16, SESSION))
    assert str(error.value) == message
    sums = {SUMS: np.zeros((1, 1), np.uint16)}
    with pytest.raises(UserError) as error:
        OT.distances((1, 1), 2**16, sums, sums)
    assert str(error.value) == message
