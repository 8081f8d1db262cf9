"""The five steps of encrypted distances, with a toy protocol: H, dropouts, secrecy, refusals."""

import os
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.errors import BadMessageError
from fedul_flwr.propagation.codes import hamming
from fedul_flwr.secure.encrypted_distances import (
    ANSWER,
    CONFIRM,
    CONTENT_KEY,
    OFFER,
    REVEAL,
    SEED,
    SHARE,
    SHARES,
    STEP,
    STEPS,
    Answered,
    Coded,
    DistanceServer,
    DistanceStage,
    Seeds,
    Shared,
    mask_keys,
)
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PUBLIC
from fedul_flwr.secure.similarity import Arrays, TooFewClientsError
from tests.support.refusals import refuses
from tests.support.toy_protocol import FOUR, PUBLIC_SEED, Group, group

GROUPS: dict[str, dict[int, int]] = {
    "three": {0: 4, 1: 7, 2: 5},
    "four": FOUR,
    "five, one without points": {7: 3, 3: 0, 8: 5, 1: 1, 20: 2},
    "three without points": {0: 0, 1: 0, 2: 0},
}


def shared(played: Group, client: int) -> Shared:
    """What a client keeps once it has sent its share of the seed."""
    return Shared.from_arrays(played.memories[client])


def assert_is_h(server: DistanceServer, played: Group, left: list[int]) -> None:
    codes = played.codes(left)
    assert list(server.sizes().items()) == [(c, len(played.features[c])) for c in left]
    np.testing.assert_array_equal(server.distances(), hamming(codes, codes))


@pytest.mark.parametrize("seed", [None, PUBLIC_SEED], ids=["secret seed", "public seed"])
@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS)
def test_h_is_that_of_all_codes_in_one_place(sizes: dict[int, int], seed: bytes | None) -> None:
    played = group(sizes, seed=seed)
    server = played.play()
    assert not server.ask()
    assert_is_h(server, played, list(sizes))


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
    stages = [{client: shared(one, client) for client in FOUR} for one in (earlier, played)]
    before, shares = ({c: stage.seeds.share for c, stage in found.items()} for found in stages)
    known = stages[1][1].session
    seed = known.seed(shares)
    for client in FOUR:
        guesses = [before[client], *(shares[peer] for peer in FOUR if peer != client), bytes(32)]
        for guess in guesses:
            assert known.seed({**shares, client: guess}) != seed
    assert len({stage.session.private for found in stages for stage in found.values()}) == 8


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


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("at", STEPS)
def test_fewer_than_three_are_too_few(at: str, left: int) -> None:
    stay = [*SIX][:left]
    played = group(SIX, lost=lambda step, client: step == at and client not in stay)
    with refuses("too-few-clients", TooFewClientsError, match=f"^{left} .* '{at}' ") as error:
        played.play()
    assert error.value.left == tuple(stay)


# What a client refuses


def told_so_far(until: str) -> tuple[Group, Arrays]:
    """A group before a step, and the message with which client 1 is asked for it."""
    played = group(FOUR)
    return played, played.play(until=until).ask()[1]


@pytest.mark.parametrize("at", STEPS)
def test_messages_of_other_steps_are_refused(at: str) -> None:
    played, message = told_so_far(at)
    for number, step in enumerate(STEPS):
        if step != at:
            with refuses("server-out-of-turn", match=f"'{step}'"):
                played.tell(1, {**message, STEP: np.array(number)})


def test_server_and_client_must_agree_whether_the_seed_is_secret() -> None:
    for seed, other in ((None, PUBLIC_SEED), (PUBLIC_SEED, None)):
        message = group(FOUR, seed=seed).server().ask()[1]
        with refuses("server-asks-too-much", match="whether"):
            group(FOUR, seed=other).tell(1, message)
    message = {**message, SEED: np.zeros(31, np.uint8)}
    with refuses("message-form", match="'seed'"):
        group(FOUR, seed=PUBLIC_SEED).tell(1, message)


def complaint(played: Group, client: int, message: Arrays) -> int | list[int]:
    """Whom a client complains about, all if they are several, in place of an answer.

    Then it remembers nothing any more.
    """
    before = played.memories[client]
    reply = played.tell(client, message)
    assert {*reply} == {COMPLAINT}
    assert played.memories[client] == {}
    played.memories[client] = before  # for another message
    about: list[int] = reply[COMPLAINT].tolist()
    return about[0] if len(about) == 1 else about


def changed(array: NDArray[Any], position: int) -> NDArray[Any]:
    copy = array.copy()
    copy[position] ^= 1
    return copy


SEALED = [OFFER, ANSWER, REVEAL]
"""Steps that come with messages of others."""


@pytest.mark.parametrize("position", [0, 20, -1])
@pytest.mark.parametrize("at", SEALED)
def test_the_sender_of_a_changed_message_is_complained_about(at: str, position: int) -> None:
    played, message = told_so_far(at)
    for peer in (2, 4, 9):
        name = f"from/{peer}"
        wrong = {**message, name: changed(message[name], position)}
        assert complaint(played, 1, wrong) == peer


@pytest.mark.parametrize("at", SEALED)
def test_a_message_of_somebody_else_or_another_session_is_complained_about(at: str) -> None:
    played = group(FOUR)
    messages = played.play(until=at).ask()
    mine, others = messages[1], messages[2]
    for message, peer in (
        ({**mine, "from/9": others["from/9"]}, 9),
        ({**mine, "from/9": mine["from/4"], "from/4": mine["from/9"]}, 4),
        ({**mine, "from/9": messages[9]["from/1"]}, 9),  # what it sent itself
        (told_so_far(at)[1], 2),  # of another session
    ):
        assert complaint(played, 1, message) == peer


def test_a_message_for_several_that_is_changed_or_missing_is_complained_about() -> None:
    # Around the circle 1 2 4 9: 9 owns its pair with 1, and 4's with 1 is 1's.
    played, message = told_so_far(ANSWER)
    assert [name for name in message if name.startswith("group/")] == ["group/9"]
    assert complaint(played, 1, {**message, "group/9": changed(message["group/9"], 30)}) == 9
    del message["group/9"]  # type: ignore[attr-defined]
    assert complaint(played, 1, message) == 9


@pytest.mark.parametrize("at", SEALED)
def test_a_client_does_not_go_on_with_one_peer_alone(at: str) -> None:
    played, message = told_so_far(at)
    few = {name: array for name, array in message.items() if name not in ("from/4", "from/9")}
    with refuses("too-few-clients", match="^2 "):
        played.tell(1, few)


def test_clients_that_made_different_seeds_notice() -> None:
    # Client 1 is not given 9's share, as if 9 had dropped out for it alone.
    played = group(FOUR)
    messages = {client: dict(message) for client, message in played.play(until=OFFER).ask().items()}
    del messages[1]["from/9"]
    replies = played.answer(messages)
    assert played.seeds[1] != played.seeds[2] == played.seeds[4] == played.seeds[9]
    step = {STEP: np.array(STEPS.index(ANSWER))}
    for own, peer in ((1, 2), (2, 1), (4, 1)):
        post = {f"from/{c}": replies[c][f"to/{own}"] for c in replies if f"to/{own}" in replies[c]}
        group_posts = {f"group/{c}": reply["to-evaluators"] for c, reply in replies.items()}
        assert complaint(played, own, {**step, **post, **group_posts}) == peer


@pytest.mark.parametrize(
    ("at", "sent", "arrays"),
    [
        (OFFER, SHARES, {}),
        (OFFER, SHARES, {SHARE: np.zeros(31, np.uint8)}),
        (OFFER, SHARES, {SHARE: np.zeros(32, np.uint8)}),  # another than that of its commitment
        (ANSWER, OFFER, {}),
        (ANSWER, OFFER, {CONFIRM: np.zeros(32, np.int8)}),
        (ANSWER, OFFER, {CONFIRM: np.zeros(32, np.uint8)}),
        (REVEAL, ANSWER, {CONTENT_KEY: np.zeros(3, np.uint8)}),
    ],
)
def test_what_a_peer_sealed_wrongly_is_complained_about(at: str, sent: str, arrays: Arrays) -> None:
    played, received = told_so_far(at)
    stage = DistanceStage.from_arrays(played.memories[4])
    assert isinstance(stage, Shared | Coded | Answered)
    sealed = stage.session.seal(1, sent, arrays, os.urandom)
    assert complaint(played, 1, {**received, "from/4": sealed}) == 4


def test_given_a_seed_that_was_not_committed_to_then_its_sender_is_complained_about() -> None:
    played, received = told_so_far(OFFER)
    stage = shared(played, 4)
    seeds = Seeds(stage.seeds.share, bytes(32)).message()
    sealed = stage.session.seal(1, SHARES, seeds, os.urandom)
    assert complaint(played, 1, {**received, "from/4": sealed}) == 4


def test_a_public_key_of_small_order_is_refused_with_its_sender() -> None:
    """u = 0 and u = 1 have the orders 1 and 4, RFC 7748; with them every secret is 0."""
    played = group(FOUR)
    server = played.server()
    answers = played.answer(server.ask())
    for u in (0, 1):
        key = answers[9][PUBLIC].copy()
        key[:32] = [u] + [0] * 31
        with refuses("key-unsafe", BadMessageError, match="Client 9 "):
            server.check(9, {**answers[9], PUBLIC: key})


def test_keys_of_masks_are_those_of_a_pair_and_an_attempt() -> None:
    played = group(FOUR)
    played.play()
    found: dict[tuple[int, int, int], bytes] = {}
    for attempt, who in enumerate(([4, 1, 9, 2], [1, 9, 2])):
        for client in who:
            unlabeled = dict.fromkeys(who, 0)
            memory, keys = mask_keys(
                played.memories[client], played.task(client), unlabeled, attempt
            )
            played.memories[client] = memory
            assert set(keys) == {*who} - {client}
            found |= {(attempt, client, peer): key for peer, key in keys.items()}
    for (attempt, one, other), key in found.items():
        assert key == found[attempt, other, one]
    assert len({*found.values()}) == 6 + 3


@pytest.mark.parametrize(
    ("participants", "attempt", "code"),
    [
        ([4, 1, 9, 2], 3, "server-out-of-turn"),
        ([4, 1, 9, 2], -1, "server-out-of-turn"),
        ([4, 1], 4, "too-few-clients"),
        ([4, 9, 2], 4, "server-names-others"),
        ([4, 1, 9, 3], 4, "server-names-others"),
    ],
)
def test_other_sums_are_refused(participants: list[int], attempt: int, code: str) -> None:
    played = group(FOUR)
    played.play()
    everybody = dict.fromkeys(FOUR, 0)
    memory, _ = mask_keys(played.memories[1], played.task(1), everybody, 3)
    with refuses(code):
        mask_keys(memory, played.task(1), dict.fromkeys(participants, 0), attempt)


@pytest.mark.parametrize("at", STEPS)
def test_a_sum_before_the_end_of_the_distances_is_refused(at: str) -> None:
    played, _ = told_so_far(at)
    with refuses("server-out-of-turn"):
        mask_keys(played.memories.get(1, {}), played.task(1), dict.fromkeys(FOUR, 0), 0)
