"""AES-256 in counter mode, known answers; keys that differ; what entropy is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from fedul_flwr.secure.session import KEY_BYTES, fresh, keystream

ZERO, ONE = bytes(32), bytes(31) + b"\1"


def test_known_answers() -> None:
    """Blocks 0 and 1 under the key 0: the hash key and E(K, Y0) of GCM's test case 14."""
    answer = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b"
    stream = keystream(ZERO, 32)
    assert stream.dtype == np.uint8
    assert stream.tobytes().hex() == answer


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_a_short_stream_begins_a_long_one(size: int) -> None:
    short, long = keystream(ONE, size), keystream(ONE, 1200)
    np.testing.assert_array_equal(short, long[:size])
    assert short.flags.writeable


def test_keys_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="key"):
        keystream(bytes(31), 8)


def test_fresh_bytes_are_a_stream_under_a_key_of_entropy() -> None:
    asked: list[int] = []

    def entropy(size: int) -> bytes:
        asked.append(size)
        return ONE[:size]

    np.testing.assert_array_equal(fresh(100, entropy), keystream(ONE, 100))
    assert asked == [KEY_BYTES]
    assert fresh(64).tobytes() != fresh(64).tobytes()
