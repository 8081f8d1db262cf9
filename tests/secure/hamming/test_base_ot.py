"""Base transfers: the chosen keys and no others, keys that nothing else has, refusals."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure.hamming.base_ot import choose, receiver_keys, sender_keys
from fedul_flwr.secure.hamming.edwards import (
    POINT_BYTES,
    P,
    add,
    compress,
    decompress,
    hashed_point,
    negative,
)
from tests.secure.hamming.test_edwards import BASE, clamped, small_order_points, times
from tests.support.hamming.pairs import seeded

CONTEXT = b"a context"


def array(point: bytes) -> Bytes:
    return np.frombuffer(point, dtype=np.uint8)


def hashed(number: int) -> Bytes:
    return array(compress(hashed_point(bytes([number]))))


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
        first = decompress(row.tobytes())
        pair = (first, add(hashed_point(CONTEXT), negative(first)))
        scalar = clamped(hashlib.sha512(seed.tobytes()).digest()[:32])
        assert pair[choice] == times(scalar, BASE)


def test_pairs_have_no_public_key_in_common() -> None:
    # If two pairs had one private key, their PK_0 would be equal where their choices are: the
    # sender would have all choices, or all of them the other way round.
    choices = np.random.default_rng(0).integers(0, 2, 24).astype(np.uint8)
    seeds, points = choose(CONTEXT, choices, seeded(0))
    assert len({seed.tobytes() for seed in seeds}) == 24
    common = hashed_point(CONTEXT)
    firsts = [row.tobytes() for row in points]
    seconds = [compress(add(common, negative(decompress(first)))) for first in firsts]
    assert len({*firsts, *seconds}) == 48


def test_a_key_is_the_hash_of_all_that_was_said_and_the_shared_secret() -> None:
    seeds, points = choose(CONTEXT, np.zeros(2, np.uint8), seeded(0))
    message, keys = sender_keys(CONTEXT, points, seeded(1))
    point = decompress(message.tobytes())
    for index in (0, 1):
        # r PK_0 = k R, and its u is (1 + y) / (1 - y).
        product = times(clamped(hashlib.sha512(seeds[index].tobytes()).digest()[:32]), point)
        shared = (1 + product.y) * pow(1 - product.y, -1, P) % P
        said = CONTEXT + bytes([index, 0, 0, 0, 0, 0, 0, 0]) + message.tobytes()
        data = said + points[index].tobytes() + shared.to_bytes(32, "little")
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


def test_private_keys_are_from_the_entropy_that_is_given() -> None:
    choices = np.zeros(2, np.uint8)
    one, same, other = (choose(CONTEXT, choices, seeded(seed)) for seed in (0, 0, 1))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(one, other, strict=True):
        assert (a != b).any(axis=1).all()


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("kind", ["off", "small", "common"])
def test_the_sender_refuses_points_without_a_secret(kind: str, place: int) -> None:
    common = hashed_point(CONTEXT)
    bad = {
        "off": [array((2).to_bytes(32, "little"))],
        "small": [array(compress(point)) for point in small_order_points()],
        # PK_1 is what is left of C: of small order itself.
        "common": [array(compress(add(common, point))) for point in small_order_points()],
    }[kind]
    for point in bad:
        points = np.stack([hashed(7), hashed(8)])
        sender_keys(CONTEXT, points, seeded(0))
        points[place] = point
        with pytest.raises(ValueError):  # noqa: PT011 - of Python or of the library
            sender_keys(CONTEXT, points, seeded(0))


def test_the_receiver_refuses_points_without_a_secret() -> None:
    seeds, points = choose(CONTEXT, np.ones(1, np.uint8), seeded(0))
    receiver_keys(CONTEXT, seeds, points, hashed(7))
    off = [array((2).to_bytes(POINT_BYTES, "little")), array(bytes([255]) * POINT_BYTES)]
    for message in [*off, *(array(compress(point)) for point in small_order_points())]:
        with pytest.raises(ValueError):  # noqa: PT011 - of Python or of the library
            receiver_keys(CONTEXT, seeds, points, message)
