"""Identities of owners: whose keys are taken, and for what their signatures are good."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from numpy.typing import NDArray

from fedul_flwr.errors import OwnDataError
from fedul_flwr.secure.identities import (
    OWNERS_FILE,
    PRIVATE_FILE,
    SIGNATURE_BYTES,
    UNSIGNED,
    Identities,
    Purpose,
    read_identities,
)
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PARTICIPANTS, PUBLIC, SIGNATURES, SIZES
from fedul_flwr.secure.similarity import Arrays, ExcludedClientsError
from tests.secure.test_encrypted_distances import complaint
from tests.support.identities import identities, owners_list, write_identity
from tests.support.refusals import refuses
from tests.support.toy_protocol import FOUR, Group, group

ALL = identities(FOUR)
PURPOSE = Purpose("propagation", 2**63 + 5, 7, bytes(range(32)))
KEY = bytes(1216)


def test_what_one_has_signed_all_others_take() -> None:
    signature = ALL[4].sign(PURPOSE, KEY)
    assert (signature.dtype, signature.shape) == (np.uint8, (SIGNATURE_BYTES,))
    for owner in ALL.values():
        owner.check(4, PURPOSE, KEY, signature)


def test_what_is_signed_by_hand() -> None:
    # Each part after its length, then three numbers of 8 bytes; -1 is all ones.
    assert Purpose("columns", -1, -1, b"nn").text(3, b"key") == b"".join(
        [
            b"\x15" + bytes(7) + b"fedul-flwr identity 1",
            b"\x07" + bytes(7) + b"columns",
            b"\x02" + bytes(7) + b"nn",
            b"\x03" + bytes(7) + b"key",
            b"\xff" * 16 + b"\x03" + bytes(7),
        ]
    )


OTHERWISE: dict[str, Purpose] = {
    "another use": replace(PURPOSE, what="columns"),
    "another run": replace(PURPOSE, run=6),
    "another round": replace(PURPOSE, server_round=8),
    "another attempt": replace(PURPOSE, nonce=bytes(32)),
    "fields that run together": replace(PURPOSE, what="propagation\0", nonce=bytes(range(31))),
}


@pytest.mark.parametrize("purpose", OTHERWISE.values(), ids=OTHERWISE)
def test_a_signature_is_of_no_use_elsewhere(purpose: Purpose) -> None:
    signature = ALL[4].sign(purpose, KEY)
    with refuses("signature-wrong", match="Client 4 "):
        ALL[1].check(4, PURPOSE, KEY, signature)


def test_a_signature_is_for_one_key_and_of_one_client() -> None:
    for signature in (
        ALL[4].sign(PURPOSE, bytes([1]) + KEY[1:]),
        ALL[9].sign(PURPOSE, KEY),
        replace(ALL[4], private=ec.generate_private_key(ec.SECP384R1())).sign(PURPOSE, KEY),
        # With client 4's own key, for another client.
        replace(ALL[4], client=9).sign(PURPOSE, KEY),
        UNSIGNED,
        np.full(SIGNATURE_BYTES, 255, np.uint8),
    ):
        with refuses("signature-wrong", match="Client 4 "):
            ALL[1].check(4, PURPOSE, KEY, signature)


def test_a_client_that_is_no_owner_is_refused() -> None:
    with refuses("unknown-name", match="Client 7 "):
        ALL[1].check(7, PURPOSE, KEY, ALL[4].sign(PURPOSE, KEY))


def test_nothing_that_is_printed_has_the_private_key() -> None:
    number = ALL[4].private.private_numbers().private_value
    for text in (repr(ALL[4]), str(ALL[4])):
        assert "private" not in text
        assert str(number) not in text


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_a_folder_has_keys_of_any_curve(curve: ec.EllipticCurve, tmp_path: Path) -> None:
    key = ec.generate_private_key(curve)
    known = {**ALL[4].owners, 5: key.public_key()}
    read = read_identities(str(write_identity(tmp_path, Identities(5, key, known))), 5)
    assert read is not None
    assert list(read.owners) == [*FOUR, 5]
    replace(ALL[4], owners=known).check(5, PURPOSE, KEY, read.sign(PURPOSE, KEY))
    read.check(4, PURPOSE, KEY, ALL[4].sign(PURPOSE, KEY))


def test_blank_lines_and_names_with_spaces_do_not_count(tmp_path: Path) -> None:
    folder = write_identity(tmp_path, ALL[4])
    (folder / OWNERS_FILE).write_bytes(b"\n  \n" + LIST.replace(b"\n", b" of the north \r\n \r\n"))
    read = read_identities(str(folder), 4)
    assert read is not None
    assert read.owners == ALL[4].owners


ED25519 = ed25519.Ed25519PrivateKey.generate().private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
)
WITH_PASSWORD = ALL[4].private.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.BestAvailableEncryption(b"secret"),
)
LIST = owners_list(ALL[4].owners).encode()
OTHERS = identities([9])[9].owners, {40: ALL[4].owners[9]}
WRONG_FILES: dict[str, tuple[str, bytes, str]] = {
    "a text as key": (PRIVATE_FILE, b"key", "key-file-wrong"),
    "a key of another kind": (PRIVATE_FILE, ED25519, "key-file-wrong"),
    "another format, with a password": (PRIVATE_FILE, WITH_PASSWORD, "key-file-wrong"),
    "no number": (OWNERS_FILE, b"x" + LIST, "owners-list-wrong"),
    "no public key": (OWNERS_FILE, LIST + b"12 ecdsa nonsense x\n", "owners-list-wrong"),
    "one number twice": (OWNERS_FILE, LIST + owners_list(OTHERS[0]).encode(), "owners-list-wrong"),
    "one key twice": (OWNERS_FILE, LIST + owners_list(OTHERS[1]).encode(), "owners-list-wrong"),
    "not itself": (*(OWNERS_FILE, owners_list({9: ALL[4].owners[9]}).encode()), "key-file-wrong"),
    "another's key as its own": (
        *(OWNERS_FILE, owners_list({4: ALL[4].owners[9], 9: ALL[4].owners[4]}).encode()),
        "key-file-wrong",
    ),
}


@pytest.mark.parametrize(("file", "content", "code"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_folder_that_is_not_right_is_refused_and_the_server_is_not_told_how(
    file: str, content: bytes, code: str, tmp_path: Path
) -> None:
    folder = write_identity(tmp_path, ALL[4])
    (folder / file).write_bytes(content)
    with refuses(code, OwnDataError):
        read_identities(str(folder), 4)


@pytest.mark.parametrize("file", [PRIVATE_FILE, OWNERS_FILE])
def test_given_no_file_or_a_folder_for_it_then_it_is_refused(file: str, tmp_path: Path) -> None:
    folder = write_identity(tmp_path, ALL[4])
    (folder / file).unlink()
    with refuses("file-not-readable", OwnDataError, match=file):
        read_identities(str(folder), 4)
    (folder / file).mkdir()
    with refuses("file-not-readable", OwnDataError, match="folder"):
        read_identities(str(folder), 4)


Keys = dict[int, dict[str, NDArray[Any]]]


def keys_of(known: Mapping[int, Identities], **options: Any) -> tuple[Group, Any, Keys]:
    """Clients that have sent their keys, and the server that has not yet got them."""
    played = group(FOUR, identities=known, **options)
    server = played.server()
    return played, server, played.answer(server.ask())


@pytest.mark.parametrize(
    "stranger", [{9: identities([9])[9]}, {}], ids=["another identity", "none at all"]
)
def test_a_foreign_key_is_refused_and_nothing_is_shown(stranger: Mapping[int, Identities]) -> None:
    known = {client: one for client, one in ALL.items() if client != 9}
    played, server, answers = keys_of({**known, **stranger})
    server.take(answers)
    replies = played.answer(server.ask())
    for client in known:
        assert {*replies[client]} == {COMPLAINT}
        assert replies[client][COMPLAINT].tolist() == [9]
        assert played.memories[client] == {}
    with pytest.raises(ExcludedClientsError) as error:
        server.take(replies)
    assert {*error.value.excluded} == {9}
    assert not error.value.tied
    assert not played.seeds  # nobody has made codes


def test_a_server_that_adds_a_client_of_its_own_gets_nothing() -> None:
    """Client 70 has a key pair of the server, whether it signs with one of its own or not."""
    played, server, answers = keys_of(ALL)
    own = group({**FOUR, 70: 2}, identities=identities([70]))
    mine = own.answer({70: server.ask()[4]})[70]
    server.take(answers)
    told = server.ask()[4]
    for signature in (mine[SIGNATURES], UNSIGNED, answers[4][SIGNATURES]):
        message: Arrays = {
            **told,
            PARTICIPANTS: np.append(told[PARTICIPANTS], 70),
            SIZES: np.append(told[SIZES], 2),
            PUBLIC: np.vstack([told[PUBLIC], mine[PUBLIC]]),
            SIGNATURES: np.vstack([told[SIGNATURES], signature]),
            "commitments": np.vstack([told["commitments"], np.zeros(32, np.uint8)]),
        }
        assert complaint(played, 4, message) == 70


def test_a_server_that_replaces_a_key_by_its_own_gets_nothing() -> None:
    played, server, answers = keys_of(ALL)
    _, _, foreign = keys_of(ALL)  # another attempt: signed by the same owners
    server.take(answers)
    told = dict(server.ask()[4])
    row = sorted(FOUR).index(9)
    for names in ((PUBLIC,), (PUBLIC, SIGNATURES)):
        message = {name: array.copy() for name, array in told.items()}
        for name in names:
            message[name][row] = foreign[9][name]
        assert complaint(played, 4, message) == 9


def test_a_replayed_signature_is_refused() -> None:
    _, _, before = keys_of(ALL)
    played, server, answers = keys_of(ALL)  # the same run and round, another attempt
    server.take({**answers, 9: before[9]})
    for client in (1, 2, 4):
        assert complaint(played, client, server.ask()[client]) == 9


def test_a_signature_of_another_run_is_refused() -> None:
    played, server, answers = keys_of(ALL)
    played.run = 6
    server.take(answers)
    assert complaint(played, 4, server.ask()[4]) == [1, 2, 9]


def test_who_has_no_list_takes_any_key() -> None:
    played, server, answers = keys_of({9: ALL[9]})
    server.take(answers)
    replies = played.answer(server.ask())
    assert [COMPLAINT in replies[client] for client in (1, 2, 4, 9)] == [False] * 3 + [True]
    assert "to/9" in replies[4]
