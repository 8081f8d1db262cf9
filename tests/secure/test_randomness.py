"""ChaCha20's stream, known answers; keys that differ; what entropy is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from fedul_flwr.secure.session import KEY_BYTES, fresh, keystream

# RFC 8439, appendix A.1: (key, first block that is told, blocks). Nonces there are zero.
ZERO, ONE = bytes(32), bytes(31) + b"\1"
FIRST = "00ff" + "00" * 30
ANSWERS = {
    "vectors 1 and 2": (
        ZERO,
        0,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    "vector 3": (
        ONE,
        1,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    "vector 4": (
        bytes.fromhex(FIRST),
        2,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
}


@pytest.mark.parametrize(("key", "block", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_known_answers_of_rfc_8439(key: bytes, block: int, expected: str) -> None:
    answer = bytes.fromhex(expected)
    stream = keystream(key, 64 * block + len(answer))
    assert stream.dtype == np.uint8
    assert stream[64 * block :].tobytes() == answer


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
