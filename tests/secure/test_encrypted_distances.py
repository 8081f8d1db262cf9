"""The five steps of encrypted distances, with a toy protocol: H, dropouts, secrecy, refusals."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fedul_flwr.propagation.codes import encode, hamming
from fedul_flwr.propagation.neighbors import nearest_points, neighbors_by_code
from fedul_flwr.secure.distance_server import DistanceServer
from fedul_flwr.secure.encrypted_distances import (
    ANSWER,
    CODES,
    CONFIRM,
    OFFER,
    OWN_DISTANCES,
    SHARE,
    SHARES,
    STEP,
    STEPS,
    mask_keys,
)
from fedul_flwr.secure.session import MASK_ROOTS, PRIVATE, PUBLIC, Session
from fedul_flwr.secure.similarity import TooFewClientsError
from tests.support.refusals import refuses
from tests.support.toy_protocol import BITS, FOUR, PUBLIC_SEED, Group, group

GROUPS: dict[str, dict[int, int]] = {
    "three": {0: 4, 1: 7, 2: 5},
    "four": FOUR,
    "five, one without points": {7: 3, 3: 0, 8: 5, 1: 1, 20: 2},
    "three without points": {0: 0, 1: 0, 2: 0},
}


def assert_is_h(server: DistanceServer, played: Group, left: list[int]) -> None:
    codes = played.codes(left)
    assert list(server.sizes().items()) == [(c, len(played.features[c])) for c in left]
    np.testing.assert_array_equal(server.distances(), hamming(codes, codes))


# Everybody stays


@pytest.mark.parametrize("seed", [None, PUBLIC_SEED], ids=["secret seed", "public seed"])
@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS)
def test_h_is_that_of_all_codes_in_one_place(sizes: dict[int, int], seed: bytes | None) -> None:
    played = group(sizes, seed=seed)
    server = played.play()
    assert not server.ask()
    assert_is_h(server, played, list(sizes))


def test_with_a_public_seed_the_graph_is_that_of_its_codes() -> None:
    played = group(FOUR, seed=PUBLIC_SEED)
    points = np.concatenate([*played.features.values()])
    server = played.play()
    for k in (1, 4):
        expected = neighbors_by_code(encode(points, PUBLIC_SEED, BITS), k)
        assert (nearest_points(server.compared(), k) != expected).nnz == 0
        assert expected.nnz > 0


def test_no_two_sessions_have_the_same_secret_seed() -> None:
    one, other = group(FOUR), group(FOUR)
    one.play()
    other.play()
    assert {*one.seeds.values()}.isdisjoint(other.seeds.values())


def test_given_a_seed_of_before_then_those_without_one_take_it() -> None:
    seed, other = bytes([1]) * 32, bytes([2]) * 32
    for held, wanted in (
        ({1: seed}, seed),
        ({2: seed, 4: seed, 1: other}, seed),  # most
        ({2: seed, 4: other}, seed),  # of as many, that of the first client
    ):
        played = group(FOUR, run_seeds=held)
        server = played.play()
        assert {*played.seeds.values()} == {wanted}
        assert_is_h(server, played, list(FOUR))


def test_the_server_lacks_the_seed_if_it_lacks_one_share_of_this_session() -> None:
    # All clients but one tell it their shares; of the last it knows those of other sessions, and
    # those of others in this one.
    earlier, played = group(FOUR), group(FOUR)
    for one in (earlier, played):
        one.play(until=OFFER)
    before, shares = (
        {client: memory[SHARE].tobytes() for client, memory in one.memories.items()}
        for one in (earlier, played)
    )
    known = Session.from_arrays(1, 7, played.memories[1])
    seed = known.seed(shares)
    for client in FOUR:
        guesses = [before[client], *(shares[peer] for peer in FOUR if peer != client), bytes(32)]
        for guess in guesses:
            assert known.seed({**shares, client: guess}) != seed
    keys = {
        memory[PRIVATE].tobytes() for one in (earlier, played) for memory in one.memories.values()
    }
    assert len(keys) == 8


def test_protocols_are_bound_to_the_number_of_the_session() -> None:
    numbers = set()
    for played in (group(FOUR), group(FOUR)):
        played.play(until=OFFER)
        for client, memory in played.memories.items():
            number = Session.from_arrays(client, 7, memory).number
            assert memory["state/session"].tobytes() == number
            numbers.add(number)
    assert len(numbers) == 2


def test_seeds_are_confirmed_by_a_hash_of_their_own() -> None:
    played = group(FOUR)
    played.play(until=ANSWER)
    for client, memory in played.memories.items():
        expected = hashlib.sha256(played.seeds[client] + b"confirm").digest()
        assert memory[CONFIRM].tobytes() == expected


def secrets(played: Group) -> dict[str, bytes]:
    """What no message may show, by what it is."""
    found = {f"seed of {client}": seed for client, seed in played.seeds.items()}
    for number, memory in enumerate(played.past):
        for name in (PRIVATE, SHARE, CODES, CONFIRM):
            if name in memory:
                found[f"{name}, {number}"] = memory[name].tobytes()
        for peer, root in enumerate(memory.get(MASK_ROOTS, ())):
            if root.any():  # not its own
                found[f"mask root {peer}, {number}"] = root.tobytes()
        for row, code in enumerate(memory.get(CODES, ())):
            found[f"code {row}, {number}"] = code.tobytes()
    for client in played.features:
        _, keys = mask_keys(
            played.memories[client], played.task(client), dict.fromkeys(played.features, 0), 0
        )
        found |= {f"mask key of {client} and {peer}": key for peer, key in keys.items()}
    return found


def shown(played: Group) -> bytes:
    """All arrays that the server sent or was sent, one after the other."""
    messages = [part for _, _, *both in played.heard for part in both]
    return b" ".join(array.tobytes() for arrays in messages for array in arrays.values())


def test_the_server_sees_no_secret() -> None:
    played = group(FOUR)
    played.play()
    text, kept = shown(played), secrets(played)
    # Of 4 clients: a seed; private keys after 4 steps, shares after 2, codes after 2, confirmations
    # after 1; 3 roots of masks after 1; codes of 18 points after 2; 3 keys of masks.
    assert len(kept) == 4 + 4 * (4 + 2 + 2 + 1 + 3) + 18 * 2 + 4 * 3
    for what, secret in kept.items():
        assert len(secret) >= BITS // 8
        assert secret not in text, what
        assert secret.hex().encode() not in text, what
    # The search does find what is there: public keys and the distances of own points.
    keys = [memory[PUBLIC] for memory in played.past if PUBLIC in memory]
    assert keys
    assert all(key.tobytes() in text for of_all in keys for key in of_all)
    own = [reply[OWN_DISTANCES] for step, _, _, reply in played.heard if step == OFFER]
    assert all(array.tobytes() in text for array in own)


def test_a_public_seed_is_in_the_messages() -> None:
    played = group(FOUR, seed=PUBLIC_SEED)
    played.play()
    assert PUBLIC_SEED in shown(played)


def test_codes_shares_and_keys_are_forgotten_with_the_last_step() -> None:
    played = group(FOUR)
    played.play()
    for memory in played.memories.values():
        assert set(memory) == {STEP, MASK_ROOTS, "participants", "sizes"}


# Some drop out

SIX = {4: 5, 1: 3, 9: 6, 2: 4, 0: 2, 5: 3}


@pytest.mark.parametrize("gone", [[1], [4, 0], [9, 2, 5]], ids=str)
@pytest.mark.parametrize("at", STEPS)
def test_who_drops_out_is_as_if_never_there(at: str, gone: list[int]) -> None:
    played = group(SIX, lost=lambda step, client: step == at and client in gone)
    server = played.play()
    left = [client for client in SIX if client not in gone]
    assert_is_h(server, played, left)
    for step, client, *_ in played.heard:
        assert client in left or STEPS.index(step) < STEPS.index(at)


def test_one_after_the_other_drops_out() -> None:
    gone = {SHARES: 4, OFFER: 9, ANSWER: 5}
    played = group(SIX, lost=lambda step, client: gone.get(step) == client)
    assert_is_h(played.play(), played, [1, 2, 0])


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("at", STEPS)
def test_fewer_than_three_are_too_few(at: str, left: int) -> None:
    stay = [*SIX][:left]
    played = group(SIX, lost=lambda step, client: step == at and client not in stay)
    with refuses("too-few-clients", TooFewClientsError, match=f"^{left} .* '{at}' ") as error:
        played.play()
    assert error.value.left == tuple(stay)


def test_answers_of_others_are_not_heard() -> None:
    played = group(FOUR, lost=lambda step, client: (step, client) == (SHARES, 9))
    server = played.play(until=OFFER)
    messages = server.ask()
    assert 9 not in messages
    server.take({**played.answer(messages), 9: {}, 77: {}})
    assert list(server.sizes()) == [4, 1, 2]


# Steps that are done again


@pytest.mark.parametrize("at", STEPS)
def test_a_step_may_be_done_again_where_its_end_was_not_remembered(at: str) -> None:
    played = group(FOUR)
    server = played.play(until=at)
    messages = server.ask()
    before = dict(played.memories)
    first = played.answer(messages)
    played.memories = before  # as if processes ended before they could note it
    again = played.answer(messages)
    for client, reply in again.items():
        for name in [name for name in reply if name.startswith("to/")]:
            assert reply[name][:12].tobytes() != first[client][name][:12].tobytes()
    server.take(again)
    while messages := server.ask():
        server.take(played.answer(messages))
    assert_is_h(server, played, list(FOUR))
