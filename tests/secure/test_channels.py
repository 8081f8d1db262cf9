"""Keys, seals and streams of bytes: known answers, round trips, and what does not open."""

import json
import os
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from fedul_flwr.secure import session as channels
from fedul_flwr.secure.session import (
    CAPSULE_BYTES,
    EVERYBODY,
    NONCE_BYTES,
    PRIVATE_BYTES,
    Address,
    capsule_opener,
    derive,
    encapsulate,
    is_public_key,
    keystream,
    pair_secret,
    public_key,
    seal,
    unseal,
)
from tests.support.refusals import refuses

SECRET = bytes(range(32))
PLACE = Address(session=bytes(32), attempt=0, step="offer", source=3, destination=5)


def test_known_answer_of_rfc_5869() -> None:
    # Test case 3, without salt and info; of its 42 bytes those of the first block of HMAC.
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert derive(b"\x0b" * 22, b"").hex() == expected


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


ARRAYS: dict[str, NDArray[Any]] = {
    "words": np.array([[2**64 - 1, 0]], np.uint64),
    "short": np.array([-(2**15)], np.int16),
    "long": np.array([-(2**63), 2**63 - 1]),
    "float": np.array([np.nan, -0.0, 1e-45], np.float32),
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


def headed(dtype: str, length: int, num_bytes: int, body: bytes) -> bytes:
    """An array as safetensors writes it."""
    about = {"dtype": dtype, "shape": [length], "data_offsets": [0, num_bytes]}
    text = json.dumps({"hidden": about}).encode()
    return struct.pack("<Q", len(text)) + text + body


NO_ARRAYS: dict[str, bytes] = {
    "nothing": b"",
    "text": b"not arrays but a text that is somewhat longer",
    "no header": struct.pack("<Q", 2**60),
    "cut off": headed("U8", 2, 2, b"a"),
    "unknown type": headed("Q", 1, 1, b"a"),
    "no type of numpy": headed("BF16", 1, 2, b"ab"),
}


@pytest.mark.parametrize("plain", NO_ARRAYS.values(), ids=NO_ARRAYS)
def test_what_holds_no_arrays_is_refused_and_not_quoted(plain: bytes) -> None:
    nonce, cipher = bytes(NONCE_BYTES), AESGCM(derive(SECRET, PLACE.info("key")))
    sealed = np.frombuffer(nonce + cipher.encrypt(nonce, plain, PLACE.info("seal")), np.uint8)
    with refuses("message-form", match="Client 3's .*arrays") as error:
        unseal(sealed, SECRET, PLACE)
    assert error.value.__cause__ is None


def test_more_than_can_be_sealed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_BYTES", 2072)
    seal({"a": np.zeros(2000, np.uint8)}, SECRET, PLACE, os.urandom)
    monkeypatch.setattr(channels, "MOST_BYTES", 1000)
    with refuses("message-out-of-range", match="2,072 .* 1,000"):
        seal({"a": np.zeros(2000, np.uint8)}, SECRET, PLACE, os.urandom)
    # Safetensors' header: 8 bytes and 64 of text.


SEED = bytes(range(64))
"""Of ML-KEM's part of a private key."""

# RFC 7748, section 6.1.
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")


def test_known_answers_of_rfc_7748() -> None:
    assert public_key(ALICE + SEED)[:32] == ALICE_PUBLIC
    assert public_key(BOB + SEED)[:32] == BOB_PUBLIC
    assert pair_secret(ALICE, BOB_PUBLIC, 1) == pair_secret(BOB, ALICE_PUBLIC, 0) == SHARED
    # Section 5.2, the first vector.
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    assert pair_secret(scalar, point, 0) == bytes.fromhex(
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    )


PRIME = 2**255 - 19
WITHOUT_SECRET: dict[str, bytes] = {
    "zero": bytes(32),
    "one": (1).to_bytes(32, "little"),
    "minus one": (PRIME - 1).to_bytes(32, "little"),
    "zero, written as p": PRIME.to_bytes(32, "little"),
    "one, written as p + 1": (PRIME + 1).to_bytes(32, "little"),
    # The two u of order 8.
    "order 8": bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    "order 8 too": bytes.fromhex(
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"
    ),
    "31 bytes": ALICE_PUBLIC[:31],
    "none": b"",
}


@pytest.mark.parametrize("key", WITHOUT_SECRET.values(), ids=WITHOUT_SECRET)
def test_public_keys_with_which_there_is_no_secret_are_refused(key: bytes) -> None:
    with refuses("key-unsafe", match="Client 17 .*X25519"):
        pair_secret(ALICE, key, 17)
    assert not is_public_key(key + public_key(MINE)[32:])
    assert is_public_key(public_key(MINE))


MINE = bytes(range(PRIVATE_BYTES))
THEIRS = bytes(range(1, PRIVATE_BYTES + 1))


def test_the_secret_of_a_capsule_is_its_readers_alone_and_another_each_time() -> None:
    one, other = (encapsulate(public_key(MINE), 3) for _ in range(2))
    assert len(one.capsule) == CAPSULE_BYTES
    assert len({one.secret, other.secret}) == len({one.capsule, other.capsule}) == 2
    assert capsule_opener(MINE)(one.capsule) == one.secret
    assert capsule_opener(THEIRS)(one.capsule) != one.secret
    changed = bytes([one.capsule[0] ^ 1]) + one.capsule[1:]
    assert capsule_opener(MINE)(changed) not in (one.secret, other.secret)


def test_the_librarys_own_reader_opens_a_capsule_and_ours_one_of_its() -> None:
    private = MLKEM768PrivateKey.from_seed_bytes(MINE[32:])
    made = encapsulate(public_key(MINE), 3)
    assert private.decapsulate(made.capsule) == made.secret
    secret, capsule = MLKEM768PublicKey.from_public_bytes(public_key(MINE)[32:]).encapsulate()
    assert capsule_opener(MINE)(capsule) == secret


@pytest.mark.parametrize("wrong", [b"", bytes([255]) * 1184, bytes(1183), bytes(1185)])
def test_what_is_no_key_of_ml_kem_is_refused_with_its_sender(wrong: bytes) -> None:
    key = public_key(MINE)[:32] + wrong
    assert not is_public_key(key)
    with refuses("key-unsafe", match="Client 17 .*ML-KEM-768"):
        encapsulate(key, 17)


def test_without_ml_kem_one_sentence_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(seed: bytes) -> MLKEM768PrivateKey:
        raise UnsupportedAlgorithm("no")

    monkeypatch.setattr(MLKEM768PrivateKey, "from_seed_bytes", none, raising=True)
    for call in (lambda: public_key(MINE), lambda: capsule_opener(MINE)):
        with refuses("package-missing", match="ML-KEM-768"):
            call()


ZERO, ONE = bytes(32), bytes(31) + b"\1"


def test_a_stream_begins_with_the_known_answers_of_gcms_test_case_14() -> None:
    """Blocks 0 and 1 under the key 0 are its hash key and E(K, Y0)."""
    answer = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b"
    stream = keystream(ZERO, 32)
    assert stream.dtype == np.uint8
    assert stream.tobytes().hex() == answer
