"""Key pairs: known answers, keys without a secret, and capsules that only their reader opens."""

from __future__ import annotations

import os

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey

from fedul_flwr.secure.session import (
    CAPSULE_BYTES,
    PRIVATE_BYTES,
    PUBLIC_BYTES,
    capsule_opener,
    encapsulate,
    is_public_key,
    new_private_key,
    pair_secret,
    public_key,
)
from tests.support.refusals import refuses

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


def test_a_new_private_key_is_entropy() -> None:
    assert new_private_key(lambda size: bytes(range(size))) == bytes(range(32 + 64))
    assert new_private_key(os.urandom) != new_private_key(os.urandom)


# ML-KEM-768

MINE = bytes(range(PRIVATE_BYTES))
THEIRS = bytes(range(1, PRIVATE_BYTES + 1))


def test_a_public_key_is_one_of_each_kind() -> None:
    whole = public_key(MINE)
    assert len(whole) == PUBLIC_BYTES == 32 + 1184
    seeded = MLKEM768PrivateKey.from_seed_bytes(MINE[32:])
    assert whole[32:] == seeded.public_key().public_bytes_raw()
    assert public_key(THEIRS)[:32] != whole[:32]


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
