"""Distances by oblivious transfer: equality with counting, base transfers, secrecy, refusals."""

import hashlib
import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from fedul_flwr.arrays import Bytes
from fedul_flwr.secure.hamming.ot import (
    CHOICES,
    CORRECTIONS,
    OT,
    POINT,
    POINTS,
    SUMS,
    _context,
    _pads,
    choose,
    columns,
    common_point,
    receiver_keys,
    rows_of,
    sender_keys,
)
from tests.support.hamming.pairs import (
    STEPS,
    Pair,
    Played,
    changed,
    check,
    play,
    random_codes,
    seeded,
)
from tests.support.hamming.reference_ot import (
    P,
    Point,
    add,
    compressed,
    decompressed,
    negative,
    small_order_points,
    times,
)
from tests.support.refusals import refuses


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


def test_an_answer_that_was_not_asked_for_is_left_out() -> None:
    # The last of four clients is the evaluator of the first and of the third.
    played = play(OT, {**THREE, 9: random_codes(2, 16, 1)}, gone={"prepare": [4]})
    inbox = {**played.inboxes["reveal"][9], 4: {CORRECTIONS: np.zeros((32, 2), np.uint16)}}
    assert list(played.turn("reveal", 9, inbox).to_server) == [8]


def test_no_secret_is_kept_after_its_use() -> None:
    played = play(OT, THREE)
    assert not any("array" in repr([*turns.values()]) for turns in played.turns.values())
    # Client 6 is the evaluator of 4 and the owner of 8.
    left = [sorted(played.turns[step][6].state) for step in STEPS]
    mine = ["points 8", "secret 8", "seeds 8"]
    assert left == [mine, ["keys 4", *mine], ["keys 4"], []]


# Base transfers: the chosen keys and no others

CONTEXT = b"a context"


def array(point: bytes) -> Bytes:
    return np.frombuffer(point, dtype=np.uint8)


def hashed(number: int) -> Bytes:
    return array(common_point(bytes([number])))


def point(data: bytes) -> Point:
    found = decompressed(data)
    assert found is not None
    return found


def outside_the_group() -> list[bytes]:
    """Bytes that are no point, another encoding of one, and points that are not of prime order."""
    small = small_order_points()
    large = point(common_point(b"large"))
    again = [P + y for y in range(19) if decompressed(y.to_bytes(32, "little"))]
    assert 5 < len(again) < 15  # half of 19
    return [
        (2).to_bytes(32, "little"),
        bytes([255]) * 32,
        *((1 + 2**255).to_bytes(32, "little"), (P - 1 + 2**255).to_bytes(32, "little")),
        *(number.to_bytes(32, "little") for number in again),
        *map(compressed, small),
        *(compressed(add(large, torsion)) for torsion in small[1:]),
    ]


@pytest.mark.parametrize("choices", [[0] * 8, [1] * 8, [0, 1, 1, 0, 1, 0, 0, 0], []], ids=str)
def test_the_receiver_gets_the_chosen_key_and_not_the_other(choices: list[int]) -> None:
    seeds, points = choose(CONTEXT, np.array(choices, np.uint8), seeded(0))
    message, keys = sender_keys(CONTEXT, points, seeded(1))
    got = receiver_keys(CONTEXT, seeds, points, message)
    assert got.shape == (len(choices), 32)
    for index, choice in enumerate(choices):
        np.testing.assert_array_equal(got[index], keys[choice, index])
        assert (got[index] != keys[1 - choice, index]).any()
    assert len({key.tobytes() for key in keys.reshape(-1, 32)}) == 2 * len(choices)


def test_pairs_have_no_public_key_in_common() -> None:
    # If two pairs had one private key, their PK_0 would be equal where their choices are: the
    # sender would have all choices, or all of them the other way round.
    choices = np.random.default_rng(0).integers(0, 2, 24).astype(np.uint8)
    seeds, points = choose(CONTEXT, choices, seeded(0))
    assert len({seed.tobytes() for seed in seeds}) == 24
    firsts = [row.tobytes() for row in points]
    common = point(common_point(CONTEXT))  # PK_1 = C - PK_0
    seconds = [compressed(add(common, negative(point(first)))) for first in firsts]
    assert len({*firsts, *seconds}) == 48


def test_no_two_runs_have_a_key_in_common() -> None:
    seeds, points = choose(CONTEXT, np.zeros(3, np.uint8), seeded(0))
    once, again = (sender_keys(CONTEXT, points, seeded(seed)) for seed in (1, 2))
    elsewhere = sender_keys(b"another context", points, seeded(1))
    found = {key.tobytes() for _, keys in (once, again, elsewhere) for key in keys.reshape(-1, 32)}
    assert len(found) == 3 * 6
    # A receiver with another context, or private keys of another run, has none of them.
    for context, own in (
        (b"a third context", seeds),
        (CONTEXT, choose(CONTEXT, np.zeros(3, np.uint8), seeded(9))[0]),
    ):
        keys = receiver_keys(context, own, points, once[0])
        assert not found & {key.tobytes() for key in keys}


def test_given_a_point_outside_the_group_or_the_common_one_then_the_sender_refuses() -> None:
    good = np.stack([hashed(7), hashed(8)])
    sender_keys(CONTEXT, good, seeded(0))
    # With the common point nothing is left for the other key.
    for bad, row in itertools.product([*outside_the_group(), common_point(CONTEXT)], (0, 1)):
        points = good.copy()
        points[row] = array(bad)
        with pytest.raises(ValueError, match="edwards25519"):
            sender_keys(CONTEXT, points, seeded(0))


def test_given_a_point_outside_the_group_then_the_receiver_refuses() -> None:
    seeds, points = choose(CONTEXT, np.ones(1, np.uint8), seeded(0))
    receiver_keys(CONTEXT, seeds, points, hashed(7))
    for bad in outside_the_group():
        with pytest.raises(ValueError, match="edwards25519"):
            receiver_keys(CONTEXT, seeds, points, array(bad))


def test_given_a_context_then_its_point_is_8_times_the_first_candidate_on_the_curve() -> None:
    tries = []
    for number in range(12):
        data = bytes([number])
        for counter in range(20):
            candidate = hashlib.shake_128(data + counter.to_bytes(8, "little")).digest(32)
            if (found := decompressed(candidate)) is not None:
                assert common_point(data) == compressed(times(8, found))
                tries.append(counter)
                break
    # Every second candidate is a point: of 12 inputs, some take the first and some a later one.
    assert len(tries) == 12
    assert min(tries) == 0 < max(tries)


# What each party sees, and what randomness used twice shows


def uniform(words: NDArray[np.unsignedinteger[Any]]) -> bool:
    """Whether every byte of the words is as uniform as 4 bits of it can tell."""
    data = np.ascontiguousarray(words).view(np.uint8).reshape(-1, words.itemsize)
    return all(
        chisquare(np.bincount(nibble.ravel(), minlength=16)).pvalue > 1e-3
        for column in data.T
        for nibble in (column & 15, column >> 4)
    )


def choices_of(played: Played) -> NDArray[Any]:
    return played.inboxes["answer"][0][1][CHOICES]


def corrections_of(played: Played) -> NDArray[Any]:
    return played.inboxes["reveal"][1][0][CORRECTIONS]


PATTERNS = {
    "zeros": np.zeros((40, 2), np.uint8),
    "ones": np.full((40, 2), 255, np.uint8),
    "random": random_codes(40, 16),
}


@pytest.mark.parametrize("evaluator", PATTERNS)
@pytest.mark.parametrize("owner", PATTERNS)
def test_what_one_party_sees_is_uniform_whatever_the_codes(owner: str, evaluator: str) -> None:
    played = play(OT, {0: PATTERNS[owner], 1: PATTERNS[evaluator]}, entropy=seeded(0))
    assert uniform(choices_of(played))
    assert uniform(corrections_of(played))
    # Of the two that the server hears, each alone; their difference is a distance, at most 16.
    own, received = (played.server[0, 1][client][SUMS] for client in (0, 1))
    assert uniform(own)
    assert uniform(received)
    assert not uniform(received - own)


def test_a_step_that_is_run_again_has_fresh_randomness() -> None:
    # After a crash, say: the same state, but its entropy has gone on.
    played = play(OT, {0: random_codes(2, 16, 1), 1: random_codes(2, 16, 2)})
    for step, client in (("prepare", 0), ("offer", 1)):
        before = played.turns[step][client].to_peers[1 - client]
        after = played.turn(step, client).to_peers[1 - client]
        for name, array in after.items():
            assert (array != before[name]).any()


def bits_read(played: Played, owner: int, evaluator: int, secret: Bytes) -> NDArray[Any]:
    """The owner's bits, ``(L, n_owner)``, if ``secret`` is its s: by all the evaluator has.

    Of the pads A of row h of Q and B of that row plus s, choice 0 gives it A, choice 1 gives it B,
    and with s it has the row of the other, too. From corrections A - B + 1 - 2 b, b are left.
    """
    party, codes = played.parties[evaluator], played.codes[evaluator]
    keys = played.turns["offer"][evaluator].state[f"keys {owner}"]
    own = rows_of(columns(keys, codes.size))[: party.num_bits]  # of its first point
    other = own ^ secret
    ones = np.unpackbits(codes[0])[:, np.newaxis]
    context, width = _context("pads", party, owner, evaluator), party.sizes[owner]
    a, b = (
        _pads(context, 0, np.where(ones == choice, own, other), width).astype(np.int64)
        for choice in (0, 1)
    )
    sent = played.inboxes["reveal"][evaluator][owner][CORRECTIONS][: party.num_bits]
    return (a - b + 1 - sent) % 2**16 / 2


def test_only_the_secret_of_this_pair_and_session_reads_the_owners_bits() -> None:
    codes = {client: random_codes(5, 32, client) for client in range(4)}
    one, other = play(OT, codes, entropy=seeded(1)), play(OT, codes, entropy=seeded(2))
    secrets = {
        (session, owner, evaluator): played.turns["prepare"][owner].state[f"secret {evaluator}"]
        for session, played in enumerate((one, other))
        for owner, evaluator in played.server
    }
    assert len({secret.tobytes() for secret in secrets.values()}) == 12
    for owner, evaluator in one.server:
        bits = np.unpackbits(codes[owner], axis=1).T
        for place, secret in secrets.items():
            right = (bits_read(one, owner, evaluator, secret) == bits).mean()
            assert right == 1 if place == (0, owner, evaluator) else right < 0.1


CODES = {3: random_codes(2, 16), 9: random_codes(3, 16)}


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


@pytest.mark.parametrize(
    ("step", "name", "array"),
    [
        ("offer", POINTS, np.zeros((127, 32), np.uint8)),
        ("offer", POINTS, np.zeros((128, 32), np.int8)),
        ("offer", POINTS, None),
        ("answer", POINT, np.zeros(33, np.uint8)),
        ("answer", CHOICES, np.zeros((128, 5), np.uint8)),
        ("reveal", CORRECTIONS, np.zeros((48, 3), np.uint16)),
    ],
)
def test_refuses_another_form(step: str, name: str, array: Any) -> None:
    is_refused("message-form", step, name, array)


def test_refuses_points_without_a_secret() -> None:
    bad = array(outside_the_group()[0])
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
