"""Base transfers: the chosen keys and no others, keys that nothing else has, refusals."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.hamming import ot as base_ot
from fedul_flwr.secure.hamming.ot import choose, common_point, receiver_keys, sender_keys
from tests.support.hamming.pairs import seeded
from tests.support.hamming.reference_ot import (
    BASE,
    P,
    Point,
    add,
    compressed,
    decompressed,
    montgomery,
    negative,
    scalar,
    small_order_points,
    times,
)

CONTEXT = b"a context"


def array(point: bytes) -> Bytes:
    return np.frombuffer(point, dtype=np.uint8)


def hashed(number: int) -> Bytes:
    return array(common_point(bytes([number])))


def point(data: bytes) -> Point:
    found = decompressed(data)
    assert found is not None
    return found


def other(first: bytes) -> Point:
    """PK_1 = C - PK_0."""
    return add(point(common_point(CONTEXT)), negative(point(first)))


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


@pytest.mark.parametrize("pattern", ["zeros", "ones", "random", "none"])
def test_the_receiver_gets_the_chosen_key_and_not_the_other(pattern: str) -> None:
    choices = {
        "zeros": np.zeros(8, np.uint8),
        "ones": np.ones(8, np.uint8),
        "random": np.array([0, 1, 1, 0, 1, 0, 0, 0], np.uint8),
        "none": np.zeros(0, np.uint8),
    }[pattern]
    seeds, points = choose(CONTEXT, choices, seeded(0))
    message, keys = sender_keys(CONTEXT, points, seeded(1))
    got = receiver_keys(CONTEXT, seeds, points, message)
    assert got.shape == (len(choices), 32)
    for index, choice in enumerate(choices):
        np.testing.assert_array_equal(got[index], keys[choice, index])
        assert (got[index] != keys[1 - choice, index]).any()
    assert len({key.tobytes() for key in keys.reshape(-1, 32)}) == 2 * len(choices)


def test_public_keys_of_a_pair_add_up_to_the_common_point() -> None:
    choices = np.array([0, 1], np.uint8)
    seeds, points = choose(CONTEXT, choices, seeded(0))
    for choice, seed, row in zip(choices, seeds, points, strict=True):
        pair = (row.tobytes(), compressed(other(row.tobytes())))
        assert pair[choice] == compressed(times(scalar(seed.tobytes()), BASE))


def test_pairs_have_no_public_key_in_common() -> None:
    # If two pairs had one private key, their PK_0 would be equal where their choices are: the
    # sender would have all choices, or all of them the other way round.
    choices = np.random.default_rng(0).integers(0, 2, 24).astype(np.uint8)
    seeds, points = choose(CONTEXT, choices, seeded(0))
    assert len({seed.tobytes() for seed in seeds}) == 24
    firsts = [row.tobytes() for row in points]
    seconds = [compressed(other(first)) for first in firsts]
    assert len({*firsts, *seconds}) == 48


def test_a_key_is_the_hash_of_all_that_was_said_and_the_shared_secret() -> None:
    seeds, points = choose(CONTEXT, np.zeros(2, np.uint8), seeded(0))
    message, keys = sender_keys(CONTEXT, points, seeded(1))
    for index in (0, 1):
        # r PK_0 = k R, and its u is (1 + y) / (1 - y).
        product = times(scalar(seeds[index].tobytes()), point(message.tobytes()))
        said = CONTEXT + bytes([index, 0, 0, 0, 0, 0, 0, 0]) + message.tobytes()
        data = said + points[index].tobytes() + montgomery(product)
        assert keys[0, index].tobytes() == hashlib.shake_128(data).digest(32)


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


@pytest.mark.parametrize("position", [0, 1])
def test_given_a_point_outside_the_group_then_the_sender_refuses(position: int) -> None:
    for bad in outside_the_group():
        points = np.stack([hashed(7), hashed(8)])
        sender_keys(CONTEXT, points, seeded(0))
        points[position] = array(bad)
        with pytest.raises(ValueError, match="edwards25519"):
            sender_keys(CONTEXT, points, seeded(0))


def test_given_the_common_point_then_the_sender_refuses_as_nothing_is_left_for_the_other() -> None:
    with pytest.raises(ValueError, match="edwards25519"):
        sender_keys(CONTEXT, array(common_point(CONTEXT))[np.newaxis], seeded(0))


def test_given_a_point_outside_the_group_then_the_receiver_refuses() -> None:
    seeds, points = choose(CONTEXT, np.ones(1, np.uint8), seeded(0))
    receiver_keys(CONTEXT, seeds, points, hashed(7))
    for bad in outside_the_group():
        with pytest.raises(ValueError, match="edwards25519"):
            receiver_keys(CONTEXT, seeds, points, array(bad))


def test_given_a_context_then_the_common_point_is_8_times_the_first_candidate_on_the_curve() -> (
    None
):
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


def test_given_a_hash_without_any_point_then_the_search_for_the_common_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def refuse(one: bytes, other: bytes) -> bytes:
        assert one == other
        asked.append(one)
        raise RuntimeError

    monkeypatch.setattr(base_ot, "crypto_core_ed25519_add", refuse)
    with pytest.raises(AssertionError, match="candidate"):
        common_point(b"data")
    assert len(set(asked)) == 256
