"""Keys and seals: known answers, round trips, and what does not open."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from fedul_flwr.data.types import Bytes
from fedul_flwr.secure import session as channels
from fedul_flwr.secure.session import (
    EVERYBODY,
    NONCE_BYTES,
    Address,
    derive,
    seal,
    unseal,
)
from tests.support.refusals import refuses

SECRET = bytes(range(32))
PLACE = Address(session=bytes(32), attempt=0, step="offer", source=3, destination=5)

# Keys


def test_known_answer_of_rfc_5869() -> None:
    # Test case 3, without salt and info; of its 42 bytes those of the first block of HMAC.
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert derive(b"\x0b" * 22, b"").hex() == expected


# Places


def test_the_info_of_a_place_by_hand() -> None:
    place = Address(bytes([9]) * 32, 2, "ab", 3, EVERYBODY)
    # Each part after its length, then three numbers of 8 bytes; -1 is all ones.
    assert place.info("key") == b"".join(
        [
            b"\x13" + bytes(7) + b"fedul-flwr secure 1",
            b"\x03" + bytes(7) + b"key",
            b"\x20" + bytes(7) + bytes([9]) * 32,
            b"\x02" + bytes(7) + b"ab",
            b"\x02" + bytes(7) + b"\x03" + bytes(7) + b"\xff" * 8,
        ]
    )


# Seals

ARRAYS: dict[str, NDArray[Any]] = {
    "bytes": np.arange(7, dtype=np.uint8),
    "words": np.array([[2**64 - 1, 0]], np.uint64),
    "limbs": np.array([2**32 - 1], np.uint32),
    "distances": np.array([[65535, 0], [1, 2]], np.uint16),
    "ternary": np.array([-1, 0, 1], np.int8),
    "short": np.array([-(2**15)], np.int16),
    "int": np.array([-(2**31)], np.int32),
    "long": np.array([-(2**63), 2**63 - 1]),
    "float": np.array([np.nan, -0.0, 1e-45], np.float32),
    "double": np.array([1e-300, np.inf]),
    "mask": np.array([True, False]),
    "number": np.array(7),
    "nothing": np.zeros((0, 3), np.float32),
    "no bytes": np.zeros(0, np.uint8),
    "turned": np.arange(6, dtype=np.uint16).reshape(2, 3).T,
}


@pytest.mark.parametrize("arrays", [ARRAYS, {}], ids=["all", "none"])
def test_what_was_sealed_comes_back(arrays: dict[str, NDArray[Any]]) -> None:
    sealed = seal(arrays, SECRET, PLACE, os.urandom)
    assert (sealed.dtype, sealed.ndim) == (np.uint8, 1)
    found = unseal(sealed, SECRET, PLACE)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)


def test_a_seal_begins_with_its_nonce_and_its_key_is_derived_for_the_place() -> None:
    sealed = seal({}, SECRET, PLACE, lambda size: bytes([7]) * size)
    nonce, rest = sealed[:12].tobytes(), sealed[12:].tobytes()
    assert nonce == bytes([7]) * 12
    plain = AESGCM(derive(SECRET, PLACE.info("key"))).decrypt(nonce, rest, PLACE.info("seal"))
    assert len(sealed) == 12 + len(plain) + 16


def test_a_change_of_any_bit_is_noticed() -> None:
    sealed = seal({"a": np.arange(3)}, SECRET, PLACE, os.urandom)
    for position in range(len(sealed)):
        changed = sealed.copy()
        changed[position] ^= 1 << (position % 8)
        with refuses("message-not-opened", match="Client 3's .*'offer'"):
            unseal(changed, SECRET, PLACE)


ELSEWHERE: dict[str, dict[str, Any]] = {
    "session": {"session": bytes(31) + b"\1"},
    "attempt": {"attempt": 1},
    "step": {"step": "offers"},
    "source": {"source": 4},
    "destination": {"destination": 6},
    "for several": {"destination": EVERYBODY},
    "there and back": {"source": 5, "destination": 3},
}


@pytest.mark.parametrize("change", ELSEWHERE.values(), ids=ELSEWHERE)
def test_it_opens_in_its_place_alone(change: dict[str, Any]) -> None:
    sealed = seal(ARRAYS, SECRET, replace(PLACE, **change), os.urandom)
    with refuses("message-not-opened"):
        unseal(sealed, SECRET, PLACE)


def test_it_opens_with_its_own_secret_alone() -> None:
    sealed = seal(ARRAYS, SECRET, PLACE, os.urandom)
    with refuses("message-not-opened"):
        unseal(sealed, SECRET[:31] + b"\0", PLACE)


def sealed_bytes(plain: bytes) -> Bytes:
    """Anything at all, sealed as it should be."""
    nonce = bytes(NONCE_BYTES)
    cipher = AESGCM(derive(SECRET, PLACE.info("key")))
    return np.frombuffer(nonce + cipher.encrypt(nonce, plain, PLACE.info("seal")), np.uint8)


def headed(header: object, body: bytes = b"") -> bytes:
    """As safetensors writes it."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


NO_ARRAYS: dict[str, bytes] = {
    "nothing": b"",
    "text": b"not arrays but a text that is somewhat longer",
    "no header": struct.pack("<Q", 2**60),
    "cut off": headed({"hidden": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}, b"a"),
    "unknown type": headed({"hidden": {"dtype": "Q", "shape": [1], "data_offsets": [0, 1]}}, b"a"),
    "no type of numpy": headed(
        {"hidden": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, b"ab"
    ),
}


@pytest.mark.parametrize("plain", NO_ARRAYS.values(), ids=NO_ARRAYS)
def test_what_holds_no_arrays_is_refused_and_not_quoted(plain: bytes) -> None:
    with refuses("message-form", match="Client 3's .*arrays") as error:
        unseal(sealed_bytes(plain), SECRET, PLACE)
    assert error.value.__cause__ is None


def test_what_was_cut_off_is_refused() -> None:
    sealed = seal(ARRAYS, SECRET, PLACE, os.urandom)
    for size in (len(sealed) - 1, 28, 100):
        with refuses("message-not-opened"):
            unseal(sealed[:size], SECRET, PLACE)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros(27, np.uint8), np.zeros(100, np.int8), np.zeros((10, 10), np.uint8)],
    ids=["short", "signed", "a matrix"],
)
def test_what_is_no_seal_is_refused(wrong: NDArray[Any]) -> None:
    with refuses("message-form", match="Client 3's .*sealed"):
        unseal(wrong, SECRET, PLACE)


def test_what_is_missing_is_refused() -> None:
    with refuses("message-incomplete", match="Client 3's .* 'offer'"):
        unseal(None, SECRET, PLACE)


def test_more_than_can_be_sealed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_BYTES", 2072)
    seal({"a": np.zeros(2000, np.uint8)}, SECRET, PLACE, os.urandom)
    monkeypatch.setattr(channels, "MOST_BYTES", 1000)
    with refuses("message-out-of-range", match="2,072 .* 1,000"):
        seal({"a": np.zeros(2000, np.uint8)}, SECRET, PLACE, os.urandom)
    # Safetensors' header: 8 bytes and 64 of text.
