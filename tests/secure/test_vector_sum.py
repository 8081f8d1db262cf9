"""Sums of clients' vectors under masks: what they give, and what nobody learns from them."""

import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy.stats import hypergeom

from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure import vector_sum
from fedul_flwr.secure.identities import Identities, Purpose
from fedul_flwr.secure.messages import PeerError
from fedul_flwr.secure.session import (
    FROM,
    PARTICIPANTS,
    TO,
    Session,
    bytes_array,
    keystream,
    new_key,
    participants_message,
    public_key,
)
from fedul_flwr.secure.vector_sum import (
    COMPLETE,
    FIXED_DIGITS,
    NO_TAIL,
    PAIR_SHARES,
    SELF_SHARES,
    SURVIVORS,
    THRESHOLD,
    Mask,
    Member,
    Pairs,
    SumServer,
    Tail,
    Transcript,
    add_vectors,
    apart_message,
    confirm,
    degree,
    dequantize,
    fixed_numbers,
    fixed_words,
    join_sum,
    mask_vector,
    neighbors,
    offer_shares,
    open_secret,
    quantize,
    quorum,
    share_secret,
    spare,
    step_size,
    threshold,
    unmask,
    whole_numbers,
    whole_words,
)
from tests.support.refusals import refuses

Arrays = dict[str, NDArray[Any]]
QUESTION = b"m" * 32


class Party:
    """Clients of one session, each with its state, and the messages between them."""

    def __init__(
        self,
        clients: Iterable[int],
        pinned: bool = False,
        tail: Tail = NO_TAIL,
        apart: Pairs = frozenset(),
        identities: Mapping[int, Identities] | None = None,
    ) -> None:
        self.clients, self.pinned, self.tail, self.apart = sorted(clients), pinned, tail, apart
        self.purpose = Purpose("sum", 1, 0, b"n" * 32)
        self.identities: dict[int, Any] = dict.fromkeys(self.clients)
        if identities:
            self.identities = dict(identities)
        elif pinned:
            keys = {client: ec.generate_private_key(ec.SECP384R1()) for client in self.clients}
            public = {client: key.public_key() for client, key in keys.items()}
            self.identities = {c: Identities(c, key, public) for c, key in keys.items()}
        begun = {client: new_key(self.purpose, self.identities[client]) for client in self.clients}
        keys_sent = {client: answer for client, (_, answer) in begun.items()}
        listed = participants_message(keys_sent, dict.fromkeys(self.clients, 0))
        self.participants = {**listed, **apart_message(apart)}
        self.state: dict[int, Arrays] = {}
        sealed: dict[int, Arrays] = {}
        for client in self.clients:
            self.state[client], sealed[client] = join_sum(
                begun[client][0], client, self.participants, self.purpose, self.identities[client]
            )
        self.number = self.session(self.clients[0]).number
        self.parts = {
            client: {
                f"{FROM}{peer}": sealed[peer][f"{TO}{client}"]
                for peer in self.clients
                if f"{TO}{client}" in sealed[peer]
            }
            for client in self.clients
        }

    def session(self, client: int) -> Session:
        return Session.from_arrays(client, 0, self.state[client])

    def offer(
        self,
        server: SumServer,
        clients: Collection[int],
        question: bytes = QUESTION,
        **changes: NDArray[Any],
    ) -> dict[int, Arrays]:
        answers = {}
        for client in clients:
            message = {**server.terms(), **self.parts[client], **changes}
            member = Member(client, 0, self.pinned)
            self.state[client], answers[client] = offer_shares(
                member, self.state[client], message, server.number, question
            )
            server.check_shares(client, answers[client])
        return answers

    def server(self, number: int, present: Collection[int] | None = None) -> SumServer:
        here = self.clients if present is None else present
        known = {"pinned": self.pinned, "apart": self.apart}
        return SumServer(self.number, self.clients, number, here, **known)

    def begin(self, number: int = 1) -> SumServer:
        """A round in which everybody has sent its shares."""
        server = self.server(number)
        server.take_shares(self.offer(server, self.clients))
        return server

    def mask(
        self, client: int, shares: Arrays, words: NDArray[np.uint32], question: bytes = QUESTION
    ) -> NDArray[np.uint32]:
        member = Member(client, 0, self.pinned)
        self.state[client], masked = mask_vector(
            member, self.state[client], shares, words, question, self.tail
        )
        return masked

    def send(
        self, server: SumServer, words: Mapping[int, NDArray[np.uint32]]
    ) -> dict[int, NDArray[np.uint32]]:
        return {c: self.mask(c, server.shares_for(c), words[c]) for c in words}

    def signatures(self, message: Arrays, clients: Iterable[int]) -> dict[int, NDArray[Any]]:
        signed = {}
        for client in clients:
            self.state[client], signed[client] = confirm(
                self.state[client], client, message, self.identities[client]
            )
        return signed

    def open(self, server: SumServer, clients: Collection[int]) -> dict[int, Arrays]:
        message = server.list_message()
        if self.pinned:
            message = server.signed_list(self.signatures(message, clients))
        answers = {}
        for client in clients:
            self.state[client], answers[client] = unmask(
                self.state[client], client, message, self.identities[client]
            )
            server.check_unmask(client, answers[client])
        return answers

    def sum(
        self,
        number: int,
        words: Mapping[int, NDArray[np.uint32]],
        *,
        shares: Collection[int] = (),
        vector: Collection[int] = (),
        opening: Collection[int] = (),
    ) -> NDArray[np.uint32]:
        """A round in which some drop out before their shares, vector or opening."""
        server = self.server(number)
        left = [client for client in self.clients if client not in shares]
        server.take_shares(self.offer(server, left))
        left = [client for client in left if client not in vector]
        server.take_vectors(self.send(server, {client: words[client] for client in left}))
        answers = self.open(server, [client for client in left if client not in opening])
        opened, liars = server.open_sum(answers)
        assert opened.survivors == left
        assert liars == []
        return opened.words


def vectors(clients: Iterable[int], size: int = 7, seed: int = 0) -> dict[int, NDArray[np.uint32]]:
    rng = np.random.default_rng(seed)
    return {client: rng.integers(0, 2**32, size, dtype=np.uint32) for client in clients}


def total(words: Mapping[int, NDArray[np.uint32]], who: Iterable[int]) -> list[int]:
    """Sum modulo 2^32 by Python's integers."""
    rows = [words[client].tolist() for client in who]
    return [sum(column) % 2**32 for column in zip(*rows, strict=True)]


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


def test_given_numbers_then_words_count_steps_of_which_no_sum_overflows() -> None:
    rng = np.random.default_rng(0)
    # Three clients: levels floor((2^31 - 1) / 3) = 715827882, a step is 2 / 715827882.
    assert step_size(2.0, 3) == 2.0 / 715827882
    extremes = quantize(np.array([2.0, -2.0, 5.0, 0.0]), 2.0, 3, rng)
    assert extremes.view(np.int32).tolist() == [715827882, -715827882, 715827882, 0]
    whole = dequantize(np.sum([extremes] * 3, axis=0, dtype=np.uint32), 2.0, 3)
    assert whole.tolist() == [6.0, -6.0, 6.0, 0.0]


def test_given_a_number_between_two_steps_then_it_is_rounded_so_that_the_mean_is_right() -> None:
    levels = (2**31 - 1) // 1000
    quarter = np.full(100_000, 0.25 / levels)
    words = quantize(quarter, 1.0, 1000, np.random.default_rng(0))
    assert set(words.tolist()) == {0, 1}
    # Standard deviation of the mean: sqrt(0.25 * 0.75 / 100000) = 0.0014.
    assert abs(float(words.mean()) - 0.25) < 0.007


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


@pytest.mark.parametrize("number", [2**43, -(2**43)])
def test_given_a_whole_number_that_could_overflow_a_sum_then_it_is_refused(number: int) -> None:
    nearest = number - (1 if number > 0 else -1)
    assert whole_numbers(whole_words([nearest], 2), 2) == [nearest]
    with refuses("message-out-of-range"):
        whole_words([0, number], 2)


def test_given_a_mask_then_each_word_of_a_whole_number_is_uniform() -> None:
    """Carries do not show: of 2,000 numbers each value of a byte comes about equally often."""
    words, tail = np.zeros(4000, np.uint32), Tail(2000, 2)
    masks = [Mask(bytes([1]) * 32, added=True), Mask(bytes([2]) * 32, added=False)]
    vector_sum.add_masks(words, masks, tail)
    for word in words.reshape(-1, 2).T:
        counts = np.bincount(np.ascontiguousarray(word).view(np.uint8), minlength=256)
        assert ((counts - 31.25) ** 2 / 31.25).sum() < 400  # 255 degrees: above by chance 1e-8
    vector_sum.add_masks(words, [m._replace(added=not m.added) for m in masks], tail)
    assert not words.any()


@given(st.binary(min_size=16, max_size=16), st.integers(1, 6), st.integers(0, 4), st.randoms())
def test_enough_shares_open_a_secret(secret: bytes, needed: int, spare: int, draw: Any) -> None:
    shares = share_secret(secret, needed, needed + spare, draw.randbytes)
    chosen = draw.sample(range(needed + spare), needed)
    assert open_secret({place: shares[place] for place in chosen}) == secret


def test_given_one_share_too_few_then_every_secret_is_as_likely() -> None:
    shares = share_secret(b"0123456789abcdef", 3, 5, np.random.default_rng(0).bytes)
    # Two points fix no parabola: with any secret there is one third share that fits, and one alone.
    for secret in (b"0123456789abcdef", b"x" * 16, bytes(16)):
        value = int.from_bytes(secret)
        # p(0) = 3 p(1) - 3 p(2) + p(3), so p(3) = p(0) - 3 p(1) + 3 p(2).
        ones, twos = (int.from_bytes(share) for share in shares[:2])
        third = (value - 3 * ones + 3 * twos) % vector_sum.PRIME
        assert open_secret({0: shares[0], 1: shares[1], 2: third.to_bytes(17)}) == secret


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("count", [3, 100, 101, 250])
def test_given_clients_then_neighbors_are_mutual_and_as_many_for_each(
    count: int, pinned: bool
) -> None:
    beside = neighbors(b"s" * 32, range(count), pinned)
    assert {len(peers) for peers in beside.values()} == {degree(count, pinned)}
    assert all(client in beside[peer] for client, peers in beside.items() for peer in peers)
    assert all(client not in peers for client, peers in beside.items())
    assert neighbors(b"s" * 32, range(count), pinned) == beside
    other = neighbors(b"t" * 32, range(count), pinned)
    assert degree(count, pinned) == count - 1 or other != beside


@pytest.mark.parametrize(("pinned", "share", "gone"), [(True, 0.2, 0.3), (False, 0.1, 0.1)])
@pytest.mark.parametrize("count", [150, 1000])
def test_neighbors_are_as_many_as_the_page_says(
    count: int, pinned: bool, share: float, gone: float
) -> None:
    """docs/privacy.md: a fifth or a tenth of all, drawn at random, read somebody by a chance below
    2^-40; so few neighbors fail after so many dropouts. Two neighbors fewer are too few."""
    others = count - 1

    def chances(peers: int) -> tuple[float, float]:
        needed = threshold(peers + 1, pinned)
        reading = needed if pinned else 2 * needed - peers - 1  # beside all others, who are split
        read = hypergeom.sf(reading - 1, others, round(share * count), peers)
        lost = hypergeom.sf(peers + 1 - needed, others, round(gone * count), peers)
        return count * read, count * lost

    def enough(peers: int) -> bool:
        read, lost = chances(peers)
        return read <= 2**-40 and lost <= 2**-10

    peers = degree(count, pinned)
    assert enough(peers)
    assert peers == COMPLETE // 2 or not enough(peers - 2)


@pytest.mark.parametrize(
    ("holders", "pinned", "needed"),
    [(3, False, 3), (3, True, 3), (9, False, 7), (9, True, 5), (59, False, 40), (59, True, 30)],
)
def test_threshold(holders: int, pinned: bool, needed: int) -> None:
    assert threshold(holders, pinned) == needed


def test_quorum_and_pairs_to_spare() -> None:
    # More than two thirds: 2·3/3 + 1 = 3, 2·4/3 + 1 = 3 (rounded down), 2·10/3 + 1 = 7.
    assert [quorum(count) for count in (1, 3, 4, 5, 10, 100)] == [3, 3, 3, 4, 7, 67]
    # Fewer than a third: of 3 none, of 4 one, of 10 three. With 250 the neighbors count.
    assert [spare(count, True) for count in (3, 4, 6, 7, 10)] == [0, 1, 1, 2, 3]
    assert spare(250, True) == degree(250, True) // 3


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
    pair_key = vector_sum._pair_key
    monkeypatch.setattr(vector_sum, "_self_key", lambda secret, number, client: bytes(32))
    assert masks_are_unrelated(Party(range(4)))  # a self mask alone does not decide
    monkeypatch.setattr(vector_sum, "_pair_key", lambda *given: pair_key(*given[:3], bytes(32)))
    assert not masks_are_unrelated(Party(range(4)))


def test_given_an_opened_sum_then_no_part_of_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server knows the self masks then. Vectors without them, and sums of some, are random."""
    party = Party(range(3))
    words = dict.fromkeys(party.clients, np.zeros(4000, np.uint32))
    streams: dict[int, NDArray[np.uint32]] = {}
    self_key = vector_sum._self_key

    def record(secret: bytes, number: int, client: int) -> bytes:
        key = self_key(secret, number, client)
        streams[client] = keystream(key, 16_000).view("<u4")
        return key

    monkeypatch.setattr(vector_sum, "_self_key", record)
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
            senders = party.state[place][vector_sum.SENDERS].tolist()
            shares[place] = party.state[place][vector_sum.OPENED][senders.index(3)]
        else:
            with suppress(SafetensorError):  # what is encrypted has no form
                sealed = answers[3][vector_sum.SEALED][place]
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
    masks = [Mask(vector_sum._self_key(self_secret, 1, 3), added=False)]
    for peer, row in enumerate(answers[3][vector_sum.PAIR_KEYS]):
        masks.append(Mask(vector_sum._open_pair_key(key_secret, row), added=peer < 3))
    vector_sum.add_masks(read, masks)
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

    monkeypatch.setattr(vector_sum, "seal", in_the_clear)
    monkeypatch.setattr(vector_sum, "unseal", read)
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
        masks = [Mask(vector_sum._self_key(bytes(16), number, 3), added=False)]  # known if constant
        for peer, row in enumerate(server._answers[3][vector_sum.PAIR_KEYS]):
            masks.append(Mask(vector_sum._open_pair_key(secret, row), added=peer < 3))
        vector_sum.add_masks(late, masks)
        return bool((late == words[3]).all())

    assert not reads(1)
    monkeypatch.setattr(vector_sum, "_self_key", lambda secret, number, client: bytes(32))
    assert reads(2)


def test_given_a_round_that_is_over_then_a_client_keeps_nothing_of_it(five: Party) -> None:
    before = {client: set(state) for client, state in five.state.items()}
    five.sum(1, vectors(five.clients))
    kept = {client: set(state) for client, state in five.state.items()}
    assert all(kept[client] - before[client] <= {vector_sum.ROOTS} for client in five.clients)


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
        unmask(party.state[0], 0, {SURVIVORS: np.arange(3)}, None)
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
        unmask(party.state[0], 0, {SURVIVORS: np.array(survivors, np.int64)}, None)


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
            unmask(party.state[0], 0, server.signed_list(wrong), party.identities[0])
    with pytest.raises(UserError):
        unmask(party.state[0], 0, message, party.identities[0])
    unmask(party.state[0], 0, server.signed_list(signed), party.identities[0], least=3)


def test_given_a_list_with_clients_that_sent_nothing_then_the_least_number_must_sign() -> None:
    party = Party(range(5), pinned=True)
    server = party.begin()
    masked = party.send(server, vectors(party.clients))
    server.take_vectors(masked)  # the server says that it has all, and lets clients 3 and 4 go
    signed = party.signatures(server.list_message(), range(5))
    three = server.signed_list({client: signed[client] for client in range(3)})
    with refuses("signature-wrong"):  # more than two thirds of five are four
        unmask(party.state[0], 0, three, party.identities[0])
    four = server.signed_list({client: signed[client] for client in range(4)})
    with refuses("signature-wrong"):
        unmask(party.state[0], 0, four, party.identities[0], least=5)
    with refuses("too-few-clients"):
        unmask(party.state[0], 0, four, party.identities[0], least=6)
    unmask(party.state[0], 0, four, party.identities[0])


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
            kept = {"last-round": np.array(0)}
            party.state = {c: vector_sum._without_round(party.state[c]) | kept for c in range(4)}
        assert begun.survivors == list(clients)
        server = signed_and_sent(party, 1)
        own = party.signatures(server.list_message(), [0])
        signed = {**signed, **own}
    message = server.signed_list(signed)
    if other == "nothing":
        unmask(party.state[0], 0, message, party.identities[0])
    else:
        with refuses("signature-wrong"):
            unmask(party.state[0], 0, message, party.identities[0])


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
            unmask(party.state[client], client, message, party.identities[client])


@pytest.mark.parametrize(
    "change",
    [
        {"session": b"t" * 32},
        {"number": 2},
        {"participants": (0, 1, 2)},
        {"needed": 4},
        {"apart": frozenset({(0, 1)})},
        {"question": b"r" * 32},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_in_a_transcript_changes_masks_and_what_is_signed(
    change: dict[str, Any],
) -> None:
    one = Transcript(b"s" * 32, 1, (0, 1, 2, 3), 3, frozenset({(0, 2)}), QUESTION)
    other = one._replace(**change)
    assert one.digest != other.digest
    keys = {vector_sum._pair_key(bytes(32), 0, 1, each.digest) for each in (one, other)}
    state = [{vector_sum.TRANSCRIPT: bytes_array(each.digest)} for each in (one, other)]
    assert len(keys) == len({vector_sum._purpose(each, [0, 1]).nonce for each in state}) == 2
    assert vector_sum._purpose(state[0], [0, 1]) != vector_sum._purpose(state[0], [0, 2])


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
        unmask(party.state[0], 0, server.signed_list(signed), party.identities[0])
    # Of a client that has enough neighbors among those who have signed nothing is kept back.
    other = next(c for c in signed if len({*server._peers[c]} - quiet) >= server._needed)
    unmask(party.state[other], other, server.signed_list(signed), party.identities[other])


def test_given_a_second_list_then_an_owner_signs_and_opens_the_first_alone() -> None:
    party = Party(range(5), pinned=True)
    server = signed_and_sent(party, 1)
    signed = party.signatures(server.list_message(), party.clients)
    for listed in (range(5), range(4)):
        with refuses("server-out-of-turn", match="second signature"):
            party.signatures({SURVIVORS: np.arange(len(listed))}, [0])
    fewer = {SURVIVORS: np.arange(4), "signatures": np.stack([signed[c] for c in range(4)])}
    with refuses("server-out-of-turn"):
        unmask(party.state[0], 0, fewer, party.identities[0])
    never = {k: v for k, v in party.state[1].items() if k != vector_sum.SIGNED}
    with refuses("server-out-of-turn"):
        unmask(never, 1, server.signed_list(signed), party.identities[1])


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
    begun, _ = new_key(party.purpose, party.identities[0])
    message["public-keys"][0] = bytes_array(public_key(begun["private-key"].tobytes()))
    with pytest.raises(PeerError) as error:
        join_sum(begun, 0, message, party.purpose, party.identities[0])
    assert error.value.peers == (1,)


def test_given_a_changed_sealed_share_then_its_sender_is_named(five: Party) -> None:
    server = five.server(1)
    answers = five.offer(server, five.clients)
    answers[2][vector_sum.SEALED][1, -1] ^= 1  # of the peers 0, 3, 7 and 11
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
    missing = {name: array for name, array in answer.items() if name != vector_sum.SEALED}
    short = {**answer, vector_sum.HASHES: answer[vector_sum.HASHES][:1]}
    for wrong in (missing, short, {**answer, "what": np.zeros(1)}):
        with pytest.raises(BadMessageError, match="Client 7"):
            server.check_shares(7, wrong)


def test_sums_in_fixed_point_are_exact_but_for_the_rounding_of_each_summand() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=2000) * 10.0 ** rng.integers(-10, 15, 2000) for _ in range(7)]
    vectors = [fixed_words(part) for part in parts]
    total = fixed_numbers(add_vectors(vectors, Tail(2000, FIXED_DIGITS)))
    exact = np.array([math.fsum(row) for row in np.stack(parts, axis=1)])
    bound = 7 * 2.0**-49 + np.abs(exact) * 2.0**-52
    assert (np.abs(total - exact) <= bound).all()
    # The same numbers as whole ones of four words.
    whole = whole_words([round(Fraction(float(n)) * 2**48) for n in parts[0]], FIXED_DIGITS)
    np.testing.assert_array_equal(vectors[0], whole)
    edges = [-0.5, 2.0**57, -(2.0**57), 2.0**16, -(2.0**16), -(2.0**-48), 0.0]
    assert fixed_numbers(fixed_words(np.array([*edges, -1e-18]))).tolist() == [*edges, 0.0]


@pytest.mark.parametrize("number", [np.nan, np.inf, -(2.0**58)])
def test_given_a_number_beyond_fixed_point_then_it_is_refused(number: float) -> None:
    with refuses("message-out-of-range"):
        fixed_words(np.array([number]))
