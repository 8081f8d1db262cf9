"""Sums of clients' vectors under masks: what they give, and what nobody learns from them."""

import itertools
from collections.abc import Collection
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure import sharing
from fedul_flwr.secure.messages import PeerError
from fedul_flwr.secure.session import (
    FROM,
    PARTICIPANTS,
    bytes_array,
    keystream,
    new_key,
    public_key,
)
from fedul_flwr.secure.sharing import (
    PAIR_SHARES,
    SELF_SHARES,
    SURVIVORS,
    THRESHOLD,
    open_secret,
    quorum,
    spare,
)
from fedul_flwr.secure.sum_client import (
    Joined,
    Masked,
    Signed,
    Terms,
    _purpose,
    begin_session,
    join_sum,
    transcript,
)
from fedul_flwr.secure.sum_server import SumServer
from fedul_flwr.secure.words import Mask, Tail, add_masks, whole_numbers, whole_words
from tests.support.refusals import refuses
from tests.support.sum_party import QUESTION, Arrays, Party, total, vectors


@pytest.fixture
def five() -> Party:
    return Party([0, 2, 3, 7, 11])


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("count", [3, 4, 5])
def test_given_any_dropouts_then_the_sum_is_exact_or_stays_closed(count: int, pinned: bool) -> None:
    party = Party(range(count), pinned)
    words, needed = vectors(party.clients), quorum(count)
    # When each drops out: before its shares, its vector, the opening, or never. Who is who makes no
    # difference to how many are left, but to the signs of masks: each pattern and its mirror image.
    rising = itertools.combinations_with_replacement(range(4), count)
    patterns = {turned for phases in rising for turned in (phases, phases[::-1])}
    for number, phases in enumerate(sorted(patterns), 1):
        shares, vector, opening = (
            {client for client in party.clients if phases[client] == phase} for phase in range(3)
        )

        run = partial(party.sum, number, words, shares=shares, vector=vector, opening=opening)
        if count - len(shares | vector | opening) >= needed:
            assert run().tolist() == total(words, {*party.clients} - shares - vector)
        else:
            with pytest.raises(UserError):
                run()


@pytest.mark.crowd
def test_given_dropouts_in_every_phase_then_a_sum_of_many_is_exact() -> None:
    party = Party(range(110), pinned=True)  # more than mask with everybody
    words = vectors(party.clients)
    drawn = np.random.default_rng(1).permutation(110)[:33].tolist()
    shares, vector, opening = (set(drawn[phase::3]) for phase in range(3))
    found = party.sum(1, words, shares=shares, vector=vector, opening=opening)
    assert found.tolist() == total(words, {*party.clients} - shares - vector)


def test_given_whole_numbers_then_their_sum_is_exact_and_carries_reach_the_last_word() -> None:
    """With two clients that drop out; a word that wraps around is a number of its own."""
    tail, largest = Tail(3, 20), 2**619 - 1
    party = Party(range(6), tail=tail)
    numbers = {c: [largest, -1, (-1) ** c * largest // (c + 1)] for c in party.clients}
    words = {
        c: np.append(np.uint32([2**32 - 1]), whole_words(numbers[c], 20)) for c in party.clients
    }
    server = party.begin()
    server.take_vectors(party.send(server, {c: words[c] for c in range(5)}))
    opened, _ = server.open_sum(party.open(server, range(5)), tail)
    assert opened.words[0] == 2**32 - 5
    sums = [sum(numbers[c][k] for c in range(5)) for k in range(3)]
    assert whole_numbers(opened.words[1:], 20) == sums


# What nobody learns


def masks_are_unrelated(party: Party) -> bool:
    """Whether two rounds, and the clients of each, have masks that look drawn for them alone."""
    words = dict.fromkeys(party.clients, np.zeros(4000, np.uint32))
    first, second = (party.send(party.begin(number), words) for number in (1, 2))
    rows = [first[client] - second[client] for client in party.clients]
    rows += [first[client] - first[peer] for client, peer in itertools.pairwise(party.clients)]
    return all(looks_random(row) for row in [*rows, *first.values(), *second.values()])


def test_given_seeds_used_twice_then_rounds_are_comparable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of what the number of the round in a key is for."""
    pair_key = sharing.pair_key
    monkeypatch.setattr(sharing, "self_key", lambda secret, number, client: bytes(32))
    assert masks_are_unrelated(Party(range(4)))  # a self mask alone does not decide
    monkeypatch.setattr(sharing, "pair_key", lambda *given: pair_key(*given[:3], bytes(32)))
    assert not masks_are_unrelated(Party(range(4)))


def test_given_an_opened_sum_then_no_part_of_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server knows the self masks then. Vectors without them, and sums of some, are random."""
    party = Party(range(3))
    words = dict.fromkeys(party.clients, np.zeros(4000, np.uint32))
    streams: dict[int, NDArray[np.uint32]] = {}
    self_key = sharing.self_key

    def record(secret: bytes, number: int, client: int) -> bytes:
        key = self_key(secret, number, client)
        streams[client] = keystream(key, 16_000).view("<u4")
        return key

    monkeypatch.setattr(sharing, "self_key", record)
    server = party.begin()
    masked = party.send(server, words)
    server.take_vectors(masked)
    opened, _ = server.open_sum(party.open(server, party.clients))
    assert not opened.words.any()
    for some in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2)):
        part: NDArray[np.uint32] = sum(
            (masked[c] - streams[c] for c in some), np.zeros(4000, np.uint32)
        )
        assert looks_random(part)


def looks_random(words: NDArray[np.uint32]) -> bool:
    """Each of 16 classes of the upper four bits has its share: chi² of 15 degrees below 50."""
    counts = np.bincount(words >> 28, minlength=16)
    share = len(words) / 16
    return bool(((counts - share) ** 2 / share).sum() < 50)


def server_reads(colluders: Collection[int]) -> bool:
    """Whether the server and ``colluders`` of four clients can compute client 3's vector, from all
    that passes through the server before the sum is opened and what colluders keep."""
    party = Party(range(4))
    words = vectors(party.clients)
    server = party.server(1)
    answers = party.offer(server, party.clients)
    server.take_shares(answers)
    masked = party.send(server, words)
    shares: dict[int, NDArray[Any]] = {}
    for place in range(3):
        if place in colluders:
            masked_stage = party.stage(place)
            assert isinstance(masked_stage, Masked)
            shares[place] = sharing.share_rows(masked_stage.opened[3])
        else:
            with suppress(SafetensorError):  # what is encrypted has no form
                sealed = answers[3][sharing.SEALED][place]
                shares[place] = load(sealed.tobytes()[:-28])["shares"]
    needed = server.terms()[THRESHOLD].item()
    if len(shares) < needed:
        return False
    used = {place: shares[place] for place in sorted(shares)[:needed]}
    self_secret, key_secret = (
        open_secret({place: share[kind].tobytes() for place, share in used.items()})
        for kind in (0, 1)
    )
    assert self_secret is not None
    assert key_secret is not None
    read = masked[3].copy()
    masks = [Mask(sharing.self_key(self_secret, 1, 3), added=False)]
    for peer, row in enumerate(answers[3][sharing.PAIR_KEYS]):
        masks.append(Mask(sharing.open_pair_key(key_secret, row), added=peer < 3))
    add_masks(read, masks)
    return bool((read == words[3]).all())


def test_given_fewer_colluders_than_the_threshold_then_a_vector_is_not_read() -> None:
    assert not server_reads([])
    assert not server_reads([0, 1])
    assert server_reads([0, 1, 2])  # the attack works


def test_given_shares_in_the_clear_then_the_server_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_the_clear(
        arrays: Arrays, secret: bytes, address: object, entropy: object
    ) -> NDArray[np.uint8]:
        return np.frombuffer(save(arrays) + bytes(28), np.uint8)

    def read(message: NDArray[np.uint8], secret: bytes, address: object) -> Arrays:
        return load(message.tobytes()[:-28])

    monkeypatch.setattr(sharing, "seal", in_the_clear)
    monkeypatch.setattr(sharing, "unseal", read)
    assert server_reads([])


def test_given_no_self_mask_then_a_late_vector_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of what self masks are for: a client that was taken for gone sends after all."""

    def reads(number: int) -> bool:
        party = Party(range(4), pinned=True)
        words = vectors(party.clients)
        server = party.begin(number)
        masked = party.send(server, words)
        late = masked.pop(3).copy()
        server.take_vectors(masked)
        answers = party.open(server, [0, 1, 2])
        opened, _ = server.open_sum(answers)
        assert opened.words.tolist() == total(words, [0, 1, 2])
        # The keys of client 3's pair masks are open now.
        shares = {place: answers[place][PAIR_SHARES][0].tobytes() for place in range(3)}
        secret = open_secret(shares)
        assert secret is not None
        masks = [Mask(sharing.self_key(bytes(16), number, 3), added=False)]  # known if constant
        for peer, row in enumerate(server._answers[3][sharing.PAIR_KEYS]):
            masks.append(Mask(sharing.open_pair_key(secret, row), added=peer < 3))
        add_masks(late, masks)
        return bool((late == words[3]).all())

    assert not reads(1)
    monkeypatch.setattr(sharing, "self_key", lambda secret, number, client: bytes(32))
    assert reads(2)


def test_given_a_round_that_is_over_then_a_client_keeps_nothing_of_it(five: Party) -> None:
    before = {client: set(arrays) for client, arrays in five.stages.items()}
    five.sum(1, vectors(five.clients))
    assert {client: set(arrays) for client, arrays in five.stages.items()} == before
    assert {type(five.stage(client)) for client in five.clients} == {Joined}


def test_given_another_model_than_announced_then_a_client_refuses(five: Party) -> None:
    server = five.begin()
    with refuses("model-mismatch", match="announced"):
        five.mask(0, server.shares_for(0), vectors([0])[0], b"x" * 32)


def test_given_two_models_then_the_sum_is_noise() -> None:
    party = Party(range(3))
    words = dict.fromkeys(party.clients, np.zeros(50, np.uint32))
    server = party.server(1)
    answers = party.offer(server, [0, 1])
    answers |= party.offer(server, [2], b"y" * 32)
    server.take_shares(answers)
    masked = party.send(server, {client: words[client] for client in (0, 1)})
    masked[2] = party.mask(2, server.shares_for(2), words[2], b"y" * 32)
    server.take_vectors(masked)
    opened, _ = server.open_sum(party.open(server, party.clients))
    assert (opened.words != 0).mean() > 0.9


@pytest.mark.parametrize(
    "change",
    [
        {THRESHOLD: np.array(3, np.int64)},
        {THRESHOLD: np.array(6, np.int64)},
        {PARTICIPANTS: np.array([0, 2, 3, 7], np.int64)},
        {PARTICIPANTS: np.array([0, 2, 3, 7, 11, 12], np.int64)},
        {PARTICIPANTS: np.array([0, 2, 3, 7, 11, 11], np.int64)},
    ],
    ids=["below", "above", "without", "stranger", "twice"],
)
def test_given_terms_that_protect_less_then_clients_refuse(change: dict[str, NDArray[Any]]) -> None:
    party = Party([0, 2, 3, 7, 11])
    party.offer(party.server(70), [11])
    with pytest.raises(UserError):
        party.offer(party.server(71), [11], **change)
    party.offer(party.server(71), [11])
    with refuses("server-out-of-turn", match="71"):
        party.offer(party.server(71), [11])


def test_given_messages_out_of_turn_then_a_client_refuses() -> None:
    party = Party(range(3))
    words = vectors(party.clients)
    server = party.server(1)
    with refuses("server-out-of-turn", match="masked"):
        party.mask(0, {}, words[0])
    server.take_shares(party.offer(server, party.clients))
    with refuses("server-out-of-turn", match="secure"):
        party.unmask(0, {SURVIVORS: np.arange(3)})
    masked = party.send(server, words)
    with refuses("server-out-of-turn", match="masked"):
        party.mask(0, server.shares_for(0), words[0])
    server.take_vectors(masked)
    party.open(server, party.clients)
    with refuses("server-out-of-turn", match="secure"):
        party.open(server, [0])


@pytest.mark.parametrize(
    "survivors",
    [[0, 1], [1, 2, 3], [0, 2, 1], [0, 0, 1], [0, 1, 2, 9]],
    ids=["few", "without", "order", "twice", "a stranger"],
)
def test_given_a_list_that_opens_too_much_then_a_client_refuses(survivors: list[int]) -> None:
    party = Party(range(4))
    server = party.begin()
    party.send(server, vectors(party.clients))
    with pytest.raises(UserError):
        party.unmask(0, {SURVIVORS: np.array(survivors, np.int64)})


def test_given_identities_then_a_list_without_enough_signatures_opens_nothing() -> None:
    party = Party(range(3), pinned=True)
    server = party.begin()
    server.take_vectors(party.send(server, vectors(party.clients)))
    message = server.list_message()
    signed = party.signatures(message, party.clients)
    for wrong in (
        {},
        {0: signed[0], 1: signed[1]},
        {**signed, 2: signed[1]},
        {**signed, 2: np.ones_like(signed[2])},
    ):
        with pytest.raises(UserError):
            party.unmask(0, server.signed_list(wrong))
    with pytest.raises(UserError):
        party.unmask(0, message)
    party.unmask(0, server.signed_list(signed), least=3)


def test_given_a_list_with_clients_that_sent_nothing_then_the_least_number_must_sign() -> None:
    party = Party(range(5), pinned=True)
    server = party.begin()
    masked = party.send(server, vectors(party.clients))
    server.take_vectors(masked)  # the server says that it has all, and lets clients 3 and 4 go
    signed = party.signatures(server.list_message(), range(5))
    three = server.signed_list({client: signed[client] for client in range(3)})
    with refuses("signature-wrong"):  # more than two thirds of five are four
        party.unmask(0, three)
    four = server.signed_list({client: signed[client] for client in range(4)})
    with refuses("signature-wrong"):
        party.unmask(0, four, least=5)
    with refuses("too-few-clients"):
        party.unmask(0, four, least=6)
    party.unmask(0, four)


def signed_and_sent(party: Party, number: int, question: bytes = QUESTION) -> SumServer:
    """A sum to which all have sent their vectors."""
    server = party.server(number)
    server.take_shares(party.offer(server, party.clients, question))
    words = vectors(party.clients)
    masked = {c: party.mask(c, server.shares_for(c), words[c], question) for c in party.clients}
    server.take_vectors(masked)
    return server


@pytest.mark.parametrize("other", ["number", "question", "keys", "participants", "nothing"])
def test_given_signatures_of_another_sum_then_they_open_nothing(other: str) -> None:
    """With the same list of clients, which is all that both have in common."""
    party = Party(range(4), pinned=True)
    if other == "nothing":
        earlier = party
        server = signed_and_sent(party, 1)
        signed = party.signatures(server.list_message(), party.clients)
    else:
        question = b"y" * 32 if other == "question" else QUESTION
        clients = range(5) if other == "participants" else range(4)
        known = party.identities
        if other == "participants":
            known = Party(clients, pinned=True).identities
            party = Party(range(4), identities=known, pinned=True)
        keys = other in ("keys", "participants")
        earlier = Party(clients, identities=known, pinned=True) if keys else party
        begun = signed_and_sent(earlier, 2 if other == "number" else 1, question)
        message = {SURVIVORS: np.arange(4)}
        signed = earlier.signatures(message, range(4))
        if other in ("number", "question"):  # a client that had to forget it, in the same session
            for client in range(4):
                stage = party.stage(client)
                assert isinstance(stage, Signed)
                party.store(client, Joined(0, stage.member))
        assert begun.survivors == list(clients)
        server = signed_and_sent(party, 1)
        own = party.signatures(server.list_message(), [0])
        signed = {**signed, **own}
    message = server.signed_list(signed)
    if other == "nothing":
        party.unmask(0, message)
    else:
        with refuses("signature-wrong"):
            party.unmask(0, message)


def test_given_another_transcript_at_one_client_then_the_others_do_not_open() -> None:
    party = Party(range(4), pinned=True)
    server = party.server(1)
    answers = party.offer(server, [0, 1, 2])
    answers |= party.offer(server, [3], b"y" * 32)
    server.take_shares(answers)
    words = vectors(party.clients)
    masked = party.send(server, {c: words[c] for c in range(3)})
    masked[3] = party.mask(3, server.shares_for(3), words[3], b"y" * 32)
    server.take_vectors(masked)
    message = server.signed_list(party.signatures(server.list_message(), party.clients))
    for client in range(3):
        with refuses("signature-wrong", match="Client 3"):
            party.unmask(client, message)


SAID: dict[str, Any] = {
    **{"session": b"s" * 32, "number": 1, "present": (0, 1, 2, 3), "needed": 3},
    **{"apart": frozenset({(0, 2)}), "question": QUESTION},
}


@pytest.mark.parametrize(
    "change",
    [
        {"session": b"t" * 32},
        {"number": 2},
        {"present": (0, 1, 2)},
        {"needed": 4},
        {"apart": frozenset({(0, 1)})},
        {"question": b"r" * 32},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_in_a_transcript_changes_masks_and_what_is_signed(
    change: dict[str, Any],
) -> None:
    digests = transcript(**SAID), transcript(**{**SAID, **change})
    keys = {sharing.pair_key(bytes(32), 0, 1, digest) for digest in digests}
    terms = [Terms((0, 1), (0, 1), 2, digest) for digest in digests]
    assert len(keys) == len({_purpose(each, [0, 1]).nonce for each in terms}) == 2
    assert _purpose(terms[0], [0, 1]) != _purpose(terms[0], [0, 2])


@pytest.mark.crowd
def test_given_signatures_of_others_than_its_neighbors_then_a_client_does_not_open() -> None:
    """So many have signed, but of the neighbors, who have the shares, too few."""
    party = Party(range(101), pinned=True)
    server = signed_and_sent(party, 1)
    beside = server._peers[0]
    quiet = set(beside[: 101 - quorum(101)])
    signed = party.signatures(server.list_message(), set(party.clients) - quiet)
    assert len(signed) == quorum(101)
    with refuses("signature-wrong"):
        party.unmask(0, server.signed_list(signed))
    # Of a client that has enough neighbors among those who have signed nothing is kept back.
    other = next(c for c in signed if len({*server._peers[c]} - quiet) >= server._needed)
    party.unmask(other, server.signed_list(signed))


def test_given_a_second_list_then_an_owner_signs_and_opens_the_first_alone() -> None:
    party = Party(range(5), pinned=True)
    server = signed_and_sent(party, 1)
    signed = party.signatures(server.list_message(), party.clients)
    for listed in (range(5), range(4)):
        with refuses("server-out-of-turn", match="second signature"):
            party.signatures({SURVIVORS: np.arange(len(listed))}, [0])
    fewer = {SURVIVORS: np.arange(4), "signatures": np.stack([signed[c] for c in range(4)])}
    with refuses("server-out-of-turn"):
        party.unmask(0, fewer)
    stage = party.stage(1)
    assert isinstance(stage, Signed)
    party.store(1, Masked(stage.last, stage.member, stage.terms, stage.opened))
    with refuses("server-out-of-turn"):
        party.unmask(1, server.signed_list(signed))


@pytest.mark.parametrize("pinned", [False, True])
def test_given_fewer_sharers_than_the_threshold_then_no_vector_is_sent(pinned: bool) -> None:
    party = Party(range(6), pinned)
    server = party.begin()
    shares = server.shares_for(0)
    needed = server._needed
    for count in range(needed - 1):  # beside its own
        few = {name: array[:count] for name, array in shares.items()}
        with refuses("too-few-clients"):
            party.mask(0, few, vectors([0])[0])
    party.mask(0, {name: array[: needed - 1] for name, array in shares.items()}, vectors([0])[0])


def test_given_two_thirds_that_are_left_then_the_server_does_not_ask_for_more() -> None:
    """Three of five neighbors could open every secret, and four must be in a sum of five."""
    party = Party(range(5), pinned=True)
    server = party.begin()
    masked = party.send(server, vectors(party.clients))
    with refuses("sum-stays-closed"):
        server.take_vectors({client: masked[client] for client in range(3)})
    server.take_vectors({client: masked[client] for client in range(4)})


# Pairs that share nothing


@pytest.mark.parametrize("pinned", [False, True])
def test_given_pairs_apart_then_the_sum_is_exact_also_with_dropouts(pinned: bool) -> None:
    apart = frozenset({(0, 2), (1, 6)})  # of seven clients five or more are left for each
    party = Party(range(7), pinned, apart=apart)
    words = vectors(party.clients)
    assert f"{FROM}2" not in party.parts[0]
    assert party.sum(1, words).tolist() == total(words, party.clients)
    for number, gone in enumerate((2, 4), 2):
        left = party.sum(number, words, vector={gone})
        assert left.tolist() == total(words, {*party.clients} - {gone})


@pytest.mark.parametrize(
    "apart",
    [
        {(0, 1), (0, 2), (0, 3)},
        {(0, 9)},
        {(1, 0)},
        {(1, 1)},
    ],
    ids=["too many of one", "a stranger", "order", "itself"],
)
def test_given_pairs_that_split_clients_then_they_refuse(apart: set[tuple[int, int]]) -> None:
    with pytest.raises(UserError):
        Party(range(7), apart=frozenset(apart))


def test_given_whatever_pairs_a_server_keeps_apart_then_honest_clients_stay_together() -> None:
    """Each has lost fewer than a third of all pairs, and fewer than a third of all collude."""
    for count in range(4, 13):
        honest = count - (count - 1) // 3
        # A group without pairs to the rest would have lost at least honest - size pairs each.
        for size in range(1, honest):
            assert max(size, honest - size) > spare(count, True)


def test_given_identities_then_an_exchanged_key_is_refused_and_named() -> None:
    party = Party(range(3), pinned=True)
    _, public = new_key(party.purpose, None)
    message = {name: array.copy() for name, array in party.participants.items()}
    message["public-keys"][1] = public["public-keys"]
    keyed, _ = begin_session(None, party.purpose, party.identities[0])
    message["public-keys"][0] = bytes_array(public_key(keyed.private))
    with pytest.raises(PeerError) as error:
        join_sum(keyed, 0, 1, message, party.identities[0])
    assert error.value.peers == (1,)


def test_given_a_changed_sealed_share_then_its_sender_is_named(five: Party) -> None:
    server = five.server(1)
    answers = five.offer(server, five.clients)
    answers[2][sharing.SEALED][1, -1] ^= 1  # of the peers 0, 3, 7 and 11
    server.take_shares(answers)
    with pytest.raises(PeerError) as error:
        five.mask(3, server.shares_for(3), vectors([3])[3])
    assert error.value.peers == (2,)


def test_given_a_wrong_share_to_open_with_then_the_sum_is_right_and_its_sender_is_named() -> None:
    party = Party(range(5), pinned=True)
    words = vectors(party.clients)
    server = party.begin()
    server.take_vectors(party.send(server, words))
    answers = party.open(server, party.clients)
    answers[1][SELF_SHARES] = answers[1][SELF_SHARES].copy()
    answers[1][SELF_SHARES][:, -1] ^= 1
    opened, liars = server.open_sum(answers)
    assert opened.words.tolist() == total(words, party.clients)
    assert liars == [1]


def test_given_a_malformed_answer_then_the_server_names_its_client(five: Party) -> None:
    server = five.server(1)
    answer = five.offer(server, [7])[7]
    missing = {name: array for name, array in answer.items() if name != sharing.SEALED}
    short = {**answer, sharing.HASHES: answer[sharing.HASHES][:1]}
    for wrong in (missing, short, {**answer, "what": np.zeros(1)}):
        with pytest.raises(BadMessageError, match="Client 7"):
            server.check_shares(7, wrong)


@pytest.mark.parametrize("needed", [4, 5])
def test_given_a_secret_that_takes_all_to_open_when_one_drops_out_then_no_share_leaves(
    needed: int,
) -> None:
    party = Party(range(5))
    server = party.server(1)
    answers = party.offer(server, party.clients, **{THRESHOLD: np.array(needed, np.int64)})
    server.take_shares(answers)
    words = vectors(party.clients)
    server.take_vectors(party.send(server, {client: words[client] for client in range(4)}))
    with nullcontext() if needed == 4 else refuses("too-few-clients"):
        party.unmask(0, server.list_message())


def test_given_shares_of_an_earlier_sum_then_they_do_not_open() -> None:
    """With them in another list a server would get both secrets of a client in the earlier sum."""
    party = Party(range(5))
    earlier, words = party.begin(1).shares_for(0), vectors(party.clients)
    server = party.begin(2)
    with refuses("message-not-opened"):
        party.mask(0, earlier, words[0])
    party.mask(0, server.shares_for(0), words[0])
