"""A client's end of a session: refusals, and what all participants derive alike."""

import hashlib
import itertools
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.secure.identities import UNSIGNED, Purpose
from fedul_flwr.secure.messages import PeerError
from fedul_flwr.secure.session import (
    CAPSULE_BYTES,
    EVERYBODY,
    NONCE,
    PARTICIPANTS,
    PUBLIC,
    SIGNATURES,
    SIZES,
    Address,
    Session,
    bytes_array,
    capsule_opener,
    derive,
    join,
    mask_key,
    pair_secret,
    pairs_of,
    participants_message,
    public_key,
    require_enough,
    require_signed,
    unseal,
)
from tests.support.refusals import refuses

CLIENTS = [2, 5, 9, 11]
KEYS = {client: bytes([client]) * 96 for client in CLIENTS}
PUBLIC_KEYS = {client: public_key(key) for client, key in KEYS.items()}
POINTS = {2: 30, 5: 0, 9: 7, 11: 7}
ROUND, SERVERS = 4, bytes(range(32))
ANSWERS = {
    client: {PUBLIC: bytes_array(key), SIGNATURES: UNSIGNED} for client, key in PUBLIC_KEYS.items()
}
TOLD = participants_message(ANSWERS, POINTS)


def joined(own: int, told: Mapping[str, NDArray[Any]] = TOLD, **other: Any) -> Session:
    purpose = Purpose("propagation", 8, ROUND, SERVERS)
    identities = other.pop("identities", None)
    options = {"private": KEYS[own], "purpose": purpose, **other}
    session = join(own, message=told, num_points=POINTS[own], **options)
    require_signed(session, told, options["purpose"], identities)
    return session


WRONG_FORM: dict[str, dict[str, Any]] = {
    "no keys": {PUBLIC: None},
    "participants of another type": {PARTICIPANTS: np.array(CLIENTS, np.int32)},
    "sizes of another type": {SIZES: np.array([30.0, 0, 7, 7])},
    "a number for a list": {PARTICIPANTS: np.array(5)},
    "short keys": {PUBLIC: TOLD[PUBLIC][:, :1215]},
    "short signatures": {SIGNATURES: TOLD[SIGNATURES][:, :131]},
    "somebody twice": {PARTICIPANTS: np.array([2, 5, 5, 11])},
    "no order": {PARTICIPANTS: np.array([5, 2, 9, 11])},
    "a negative number": {PARTICIPANTS: np.array([-1, 5, 9, 11])},
}
WRONG: dict[str, dict[str, Any]] = {
    "a negative size": {SIZES: np.array([30, 0, -7, 7])},
    "a key twice": {PUBLIC: TOLD[PUBLIC][[0, 1, 2, 0]]},
    "not this client": {PARTICIPANTS: np.array([2, 6, 9, 11])},
    "its key as another's": {PUBLIC: TOLD[PUBLIC][[1, 0, 2, 3]]},
    "another size": {SIZES: np.array([30, 1, 7, 7])},
}


@pytest.mark.parametrize(
    ("change", "code"),
    [*((change, "message-form") for change in WRONG_FORM.values())]
    + [(change, "server-names-others") for change in WRONG.values()],
    ids=[*WRONG_FORM, *WRONG],
)
def test_other_lists_are_refused(change: dict[str, Any], code: str) -> None:
    told = {name: array for name, array in {**TOLD, **change}.items() if array is not None}
    with refuses(code):
        joined(5, told)


@pytest.mark.parametrize("count", [0, 2])
def test_too_few_participants_are_refused(count: int) -> None:
    told = {name: array[1 : 1 + count] for name, array in TOLD.items()}
    with refuses("too-few-clients", match=f"^{count} .* 3 or more"):
        joined(5, told)
    require_enough(range(3))
    with refuses("too-few-clients"):
        require_enough(np.arange(count))


def test_a_key_that_the_server_tells_does_not_become_the_clients_own() -> None:
    # With it the server could read all that this client says and hears.
    foreign = {"private": bytes_array(bytes([77]) * 96), NONCE: bytes_array(bytes(32))}
    session = joined(5, {**TOLD, **foreign})
    assert (session.private, session.nonce) == (KEYS[5], SERVERS)


@pytest.mark.parametrize(("source", "reader"), [*itertools.permutations(CLIENTS, 2)])
def test_what_one_seals_for_another_the_other_opens(source: int, reader: int) -> None:
    sealed = joined(source).seal(reader, "offer", {"a": np.arange(3)}, os.urandom)
    found = joined(reader).unseal(source, "offer", sealed)
    assert found["a"].tolist() == [0, 1, 2]
    # No third client does, whoever it takes for the sender, nor the sender for its reader's.
    for third in set(CLIENTS) - {source, reader}:
        for claimed in set(CLIENTS) - {third}:
            with refuses("message-not-opened", match=f"Client {claimed}'s"):
                joined(third).unseal(claimed, "offer", sealed)
    with refuses("message-not-opened", match=f"Client {reader}'s .*'offer'"):
        joined(source).unseal(reader, "offer", sealed)
    with refuses("message-not-opened", match=f"Client {source}'s .*'answer'"):
        joined(reader).unseal(source, "answer", sealed)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (PUBLIC_KEYS[2][:32] + bytes([255]) * 1184, "ML-KEM-768"),
        (bytes(32) + PUBLIC_KEYS[2][32:], "X25519"),
    ],
)
def test_given_a_key_without_secrets_then_its_sender_is_named(key: bytes, kind: str) -> None:
    session = replace(joined(5), public={**PUBLIC_KEYS, 2: key})
    with refuses("key-unsafe", PeerError, match=f"Client 2 .*{kind}") as e:
        session.seal(2, "offer", {}, os.urandom)
    assert e.value.peers == (2,)


def test_given_no_sealed_message_then_its_sender_is_named() -> None:
    for size, code in ((1115, "message-form"), (1116, "message-not-opened")):
        with refuses(code, PeerError) as error:
            joined(5).unseal(9, "offer", np.zeros(size, np.uint8))
        assert error.value.peers == (9,)
    with refuses("message-incomplete", PeerError):
        joined(5).unseal(9, "offer", None)


def test_what_is_for_several_opens_with_its_key() -> None:
    key, sealed = joined(5).seal_for_several("offer", {"a": np.arange(3)}, os.urandom)
    for reader in (2, 9):
        found = joined(reader).unseal_for_several(5, "offer", sealed, key)
        assert found["a"].tolist() == [0, 1, 2]
    for peer, step, secret in ((2, "offer", key), (5, "answer", key), (5, "offer", bytes(32))):
        with refuses("message-not-opened", match=f"Client {peer}'s .*'{step}'"):
            joined(9).unseal_for_several(peer, step, sealed, secret)
    again, _ = joined(5).seal_for_several("offer", {}, os.urandom)
    assert again != key


def test_a_session_is_the_same_after_it_was_remembered() -> None:
    session = joined(9)
    assert Session.from_arrays(session.to_arrays()) == session
    assert {array.dtype.kind for array in session.to_arrays().values()} == {"i", "u"}


def test_the_number_by_hand() -> None:
    told = [b"fedul-flwr session 2", SERVERS, ROUND.to_bytes(8, "little")]
    for client in CLIENTS:
        told += [client.to_bytes(8, "little"), POINTS[client].to_bytes(8, "little")]
        told += [PUBLIC_KEYS[client]]
    assert joined(5).number == hashlib.sha256(b"".join(told)).digest()


def test_the_place_of_a_message_by_hand() -> None:
    sealed = joined(5).seal(2, "offer", {"a": np.arange(3)}, os.urandom)
    secret = pair_secret(KEYS[2], PUBLIC_KEYS[5], 5)
    secret += capsule_opener(KEYS[2])(sealed[:CAPSULE_BYTES].tobytes())
    found = unseal(sealed[CAPSULE_BYTES:], secret, Address(joined(2).number, 0, "offer", 5, 2))
    assert found["a"].tolist() == [0, 1, 2]


SHARES = {client: bytes([100 + client]) * 32 for client in CLIENTS}


def test_what_keys_are_derived_from_by_hand() -> None:
    # Each purpose has words of its own: no two of these could be the same key.
    session = joined(5)
    secret, number = pair_secret(KEYS[5], PUBLIC_KEYS[2], 2), session.number
    shares = [
        derive(KEYS[own], Address(number, 0, "sum", own, peer).info("mask share"))
        for own, peer in ((2, 5), (5, 2))
    ]
    assert joined(2).mask_share(5).tobytes() == shares[0]
    root = derive(secret + b"".join(shares), Address(number, 0, "sum", 2, 5).info("masks"))
    arrived = {peer: joined(peer).mask_share(5).tobytes() for peer in CLIENTS if peer != 5}
    assert session.mask_roots(arrived)[2] == root
    everybody = Address(b"", 3, "sum", EVERYBODY, EVERYBODY)
    assert mask_key(bytes(32), 3) == derive(bytes(32), everybody.info("mask"))
    everybody = Address(number, 0, "seed", EVERYBODY, EVERYBODY)
    who = b"".join(client.to_bytes(8, "little") for client in CLIENTS)
    together = b"".join(SHARES[client] for client in CLIENTS)
    seed = derive(together, everybody.info("seed") + who)
    assert {joined(client).seed(SHARES) for client in CLIENTS} == {seed}
    assert session.seed(dict(reversed(SHARES.items()))) == seed


@pytest.mark.parametrize("count", range(2, 10))
def test_every_pair_has_one_owner_and_one_evaluator(count: int) -> None:
    participants = [3 * place + 1 for place in range(count)]
    roles = {client: pairs_of(client, participants) for client in participants}
    pairs = [(client, peer) for client, (evaluators, _) in roles.items() for peer in evaluators]
    assert sorted(tuple(sorted(pair)) for pair in pairs) == [
        *itertools.combinations(participants, 2)
    ]
    assert sorted(pairs) == sorted(
        (peer, client) for client, (_, owners) in roles.items() for peer in owners
    )
    owned = [len(evaluators) for evaluators, _ in roles.values()]
    assert max(owned) - min(owned) == (count + 1) % 2  # even where count - 1 is
