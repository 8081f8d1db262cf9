"""Pooled moments from masked sums: exact, of any size of columns, whoever drops out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from numpy.typing import NDArray

from fedul_flwr.data.standardize import Moments, moments, pooled
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.secure.column_sums import (
    DIGITS,
    PART,
    MomentServer,
    answer_sum,
    exact_sums,
    moments_of,
)
from fedul_flwr.secure.identities import Identities
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import NONCE, PARTICIPANTS, PRIVATE, PUBLIC, SIGNATURES
from fedul_flwr.secure.similarity import Arrays, ExcludedClientsError, TooFewClientsError
from tests.support.identities import identities
from tests.support.refusals import refuses

SIZES = {0: 7, 3: 1, 4: 20, 9: 13}
RNG = np.random.default_rng(5)
SCALES = np.array([1e-9, 1.0, 1e9, 1e-30, 1e18])
ROWS = {
    client: (SCALES * RNG.normal(client, 1, (size, 5))).astype(np.float32)
    for client, size in SIZES.items()
}
"""Points of four clients with columns of very different sizes."""


class Clients:
    """Clients that answer by the functions under test; ``sent`` has all that they said."""

    def __init__(
        self,
        rows: Mapping[int, NDArray[np.float32]],
        fewest: int = 3,
        identities: Mapping[int, Identities] = MappingProxyType({}),
        run: int = 5,
    ) -> None:
        self.rows, self.identities = rows, identities
        self.fewest, self.run = fewest, run
        self.memories: dict[int, Arrays] = {}
        self.sent: list[dict[int, Arrays]] = []

    def answer(self, client: int, message: Arrays) -> Arrays:
        rows, known = self.rows[client], self.identities.get(client)
        self.memories[client], reply = answer_sum(
            self.memories.get(client, {}),
            message,
            client,
            lambda: exact_sums(rows, np.arange(len(rows))),
            self.fewest,
            self.run,
            known,
        )
        return reply

    def play(
        self, server: MomentServer, lost: Callable[[int, int], bool] = lambda step, client: False
    ) -> MomentServer:
        """All messages; ``lost(step, client)``: its answer does not arrive."""
        while messages := server.ask():
            replies = {client: self.answer(client, told) for client, told in messages.items()}
            for client, reply in replies.items():
                server.check(client, reply)
            step = len(self.sent)
            self.sent.append(replies)
            server.take({c: reply for c, reply in replies.items() if not lost(step, c)})
        return server


def with_keys() -> tuple[Clients, MomentServer]:
    """Four clients, and a server that knows their keys."""
    clients = Clients(ROWS)
    server = MomentServer(SIZES, 5)
    server.take({c: clients.answer(c, told) for c, told in server.ask().items()})
    return clients, server


def with_shares() -> tuple[Clients, MomentServer]:
    """The same, and the server knows what they have sealed for each other."""
    clients, server = with_keys()
    server.take({c: clients.answer(c, told) for c, told in server.ask().items()})
    return clients, server


def exact(rows: Mapping[int, NDArray[np.float32]], clients: list[int]) -> Moments:
    """Moments of all points together in rational numbers, rounded once."""
    points = np.concatenate([rows[client] for client in clients]).tolist()
    means, variances = [], []
    for column in zip(*points, strict=True):
        numbers = [Fraction(number) for number in column]
        mean = sum(numbers) / Fraction(len(numbers))
        means.append(float(mean))
        variances.append(float(sum((x - mean) ** 2 for x in numbers) / len(numbers)))
    return Moments(np.array(means), np.array(variances))


def assert_equal(found: Moments, wanted: Moments) -> None:
    assert found.means.tolist() == wanted.means.tolist()
    assert found.variances.tolist() == wanted.variances.tolist()


def test_moments_by_hand() -> None:
    # Points 1 and 2 have the sum 3 and the sum of squares 5: mean 1.5, variance 2.5 - 2.25.
    found = moments_of(2, [3 << 320, 0, 5 << 320, 0])
    assert_equal(found, Moments(np.array([1.5, 0.0]), np.array([0.25, 0.0])))


def test_a_sum_of_squares_that_no_float32_numbers_have_is_refused() -> None:
    # Of two points it is below 2·2^256.
    bound = 2 << 320 << 256
    assert moments_of(2, [0, bound - 1]).variances == pytest.approx(2.0**256)
    for number in (bound, -1):
        with refuses("sum-wrong", match="columns"):
            moments_of(2, [0, number])


def test_given_columns_of_any_size_then_moments_are_those_of_exact_arithmetic() -> None:
    found = Clients(ROWS).play(MomentServer(SIZES, 5)).moments()
    assert_equal(found, exact(ROWS, [*SIZES]))


def test_given_columns_of_any_size_then_moments_are_those_of_plaintext_and_of_numpy() -> None:
    found = Clients(ROWS).play(MomentServer(SIZES, 5)).moments()
    parts = [moments(rows, np.arange(len(rows))) for rows in ROWS.values()]
    plain = pooled([*SIZES.values()], parts)
    together = np.concatenate([*ROWS.values()]).astype(np.float64)
    for means, variances in (plain, Moments(together.mean(axis=0), together.var(axis=0))):
        np.testing.assert_allclose(found.means, means, rtol=1e-14)
        np.testing.assert_allclose(found.variances, variances, rtol=1e-14)


def test_given_a_small_variance_beside_a_large_mean_then_no_digit_is_lost() -> None:
    # Squares of 10^9 differ by 128 in float64, and the variance is about 1,000.
    # Numbers 10^9 and, for one in three, 64 more: 64² · 2/9 = 910.2, no multiple of 128.
    column = (1e9 + 64 * (np.arange(30) % 3 == 0)).astype(np.float32)[:, None]
    rows = dict.fromkeys(range(3), column)
    found = Clients(rows).play(MomentServer(dict.fromkeys(rows, 30), 1)).moments()
    together = np.concatenate([*rows.values()]).astype(np.float64)
    assert found.variances == pytest.approx(together.var(axis=0), rel=1e-14)
    naive = (together**2).mean(axis=0) - together.mean(axis=0) ** 2
    assert naive != pytest.approx(together.var(axis=0), rel=1e-2)


@pytest.mark.parametrize("value", [0.0, 3.25, -1e-9, 1e9, 3.0e38, 1e-45])
def test_given_a_constant_column_then_its_variance_is_0(value: float) -> None:
    rows = {client: np.full((4, 1), value, np.float32) for client in (1, 2, 5)}
    found = Clients(rows).play(MomentServer(dict.fromkeys(rows, 4), 1)).moments()
    assert found.means.tolist() == [float(np.float32(value))]
    assert found.variances.tolist() == [0.0]


def test_given_points_are_dealt_in_another_way_then_the_moments_have_the_same_bits() -> None:
    points = np.concatenate([*ROWS.values()])
    dealt = dict(enumerate(np.split(points[RNG.permutation(len(points))], [2, 9, 30])))
    sizes = {client: len(rows) for client, rows in dealt.items()}
    found = Clients(dealt).play(MomentServer(sizes, 5)).moments()
    assert_equal(found, Clients(ROWS).play(MomentServer(SIZES, 5)).moments())


def test_clients_without_points_are_not_asked() -> None:
    rows = {**ROWS, 5: ROWS[0][:0]}
    server = MomentServer({**SIZES, 5: 0}, 5)
    assert set(server.ask()) == set(SIZES)
    assert_equal(Clients(rows).play(server).moments(), exact(ROWS, [*SIZES]))


def test_given_a_client_sends_no_key_then_the_moments_are_those_of_the_others() -> None:
    clients = Clients(ROWS)
    found = clients.play(MomentServer(SIZES, 5), lambda step, c: (step, c) == (0, 4)).moments()
    assert len(clients.sent) == 3
    assert_equal(found, exact(ROWS, [0, 3, 9]))


def test_given_a_client_sends_no_share_then_the_moments_are_those_of_the_others() -> None:
    found = Clients(ROWS).play(MomentServer(SIZES, 5), lambda step, c: (step, c) == (1, 4))
    assert_equal(found.moments(), exact(ROWS, [0, 3, 9]))


def test_given_a_client_is_late_with_its_part_then_there_is_no_other_sum() -> None:
    """With one of the others alone the server would know the late part to the last bit."""
    clients, server = with_shares()
    asked = server.ask()
    parts = {client: clients.answer(client, message) for client, message in asked.items()}
    with refuses("client-silent", match=" 3, 4, "):
        server.take({client: part for client, part in parts.items() if client not in (3, 4)})
    with refuses("client-silent", match=r"\(s\) 4, ") as error:
        server.take({client: part for client, part in parts.items() if client != 4})
    assert not isinstance(error.value, TooFewClientsError)
    # A server that tries all the same gets nothing: nobody has a key left for others.
    for client in (0, 3, 9):
        others = {name: array for name, array in asked[client].items() if name != "from/4"}
        with refuses("server-out-of-turn", match="columns"):
            clients.answer(client, others)


def test_given_the_same_points_again_then_a_client_sends_something_else() -> None:
    clients = Clients(ROWS)
    clients.play(MomentServer(SIZES, 5))
    clients.play(MomentServer(SIZES, 5))
    for client in SIZES:
        before, after = (clients.sent[step][client][PART] for step in (2, 5))
        assert (before != after).all()
        assert before.dtype == np.uint32
        assert before.shape == (2 * 5, DIGITS)


def test_after_the_first_sum_a_client_has_no_private_key() -> None:
    clients = Clients(ROWS)
    server = MomentServer(SIZES, 5)
    replies = {c: clients.answer(c, told) for c, told in server.ask().items()}
    assert all(PRIVATE in memory for memory in clients.memories.values())
    server.take(replies)
    clients.play(server)
    assert not any(PRIVATE in memory for memory in clients.memories.values())


def test_two_who_share_what_they_know_have_the_moments_of_a_third() -> None:
    rows = {client: ROWS[client] for client in (0, 4, 9)}
    found = Clients(rows).play(MomentServer({c: SIZES[c] for c in rows}, 5)).moments()
    colluding = np.concatenate([rows[0], rows[4]]).astype(np.float64)
    left = found.means * 40 - colluding.sum(axis=0)  # 7 + 20 + 13 points
    np.testing.assert_allclose(left / 13, rows[9].mean(axis=0, dtype=np.float64), rtol=1e-12)


def test_given_two_honest_clients_change_their_points_then_nobody_else_sees_another_result() -> (
    None
):
    rows = {client: ROWS[4][5 * client : 5 * client + 5] for client in range(4)}
    swapped = {**rows, 2: rows[3], 3: rows[2]}
    sizes = dict.fromkeys(rows, 5)
    one, other = (Clients(held).play(MomentServer(sizes, 5)) for held in (rows, swapped))
    assert_equal(one.moments(), other.moments())


# Refusals

TOO_FEW = (
    "Setting standardize-sum = 'masked': {}, and fewer than {} cannot hide their columns from each "
    "other. Choose standardize = 'owner' or 'constants'."
)


def test_two_clients_with_points_are_too_few() -> None:
    with pytest.raises(TooFewClientsError) as error:
        MomentServer({0: 5, 1: 0, 2: 3}, 5)
    assert str(error.value) == TOO_FEW.format("2 client(s) have points", 3)


def test_two_clients_that_are_left_are_too_few() -> None:
    with pytest.raises(TooFewClientsError) as error:
        Clients(ROWS).play(MomentServer(SIZES, 5), lambda step, c: step == 0 and c > 3)
    assert str(error.value) == TOO_FEW.format("2 client(s) were left", 3)


def test_given_more_are_wanted_then_server_and_client_refuse_fewer() -> None:
    with pytest.raises(TooFewClientsError) as error:
        MomentServer(SIZES, 5, 5)
    assert str(error.value) == TOO_FEW.format("4 client(s) have points", 5)
    with refuses("too-few-clients", match="^4 .* 5 "):
        Clients(ROWS, fewest=5).play(MomentServer(SIZES, 5))


NO_LIST = "The server sent no list of participants."


@pytest.mark.parametrize("client", [0, 9])
def test_given_a_list_that_is_none_then_a_client_refuses_it(client: int) -> None:
    clients, server = with_keys()
    message = server.ask()[client]
    for wrong in (message[PARTICIPANTS][::-1], message[PARTICIPANTS].astype(float)):
        with pytest.raises(UserError) as error:
            clients.answer(client, {**message, PARTICIPANTS: wrong})
        assert str(error.value) == NO_LIST


def test_a_client_that_has_no_key_answers_no_sum() -> None:
    clients, server = with_keys()
    clients.memories[3] = {}
    with refuses("server-out-of-turn", match="columns"):
        clients.answer(3, server.ask()[3])


def test_a_client_refuses_what_is_no_nonce() -> None:
    with refuses("message-form", match="'nonce'"):
        Clients(ROWS).answer(3, {NONCE: np.zeros(31, np.uint8)})


def test_a_client_whose_key_was_replaced_refuses() -> None:
    clients = Clients(ROWS)
    server = MomentServer(SIZES, 5)
    answers = {c: clients.answer(c, told) for c, told in server.ask().items()}
    server.take({**answers, 3: Clients(ROWS).answer(3, {NONCE: np.zeros(32, np.uint8)})})
    with refuses("server-names-others", match="client 3 "):
        clients.answer(3, server.ask()[3])


def test_given_one_was_told_another_list_then_nobody_sends_sums() -> None:
    clients, server = with_keys()
    messages = dict(server.ask())
    lied = {**messages[9], PUBLIC: messages[9][PUBLIC].copy()}
    lied[PUBLIC][0] = Clients(ROWS).answer(0, {NONCE: np.zeros(32, np.uint8)})[PUBLIC]
    server.take({c: clients.answer(c, lied if c == 9 else m) for c, m in messages.items()})
    replies = {c: clients.answer(c, message) for c, message in server.ask().items()}
    assert [{*reply} for reply in replies.values()] == [{COMPLAINT}] * 4
    assert [int(replies[client][COMPLAINT]) for client in (0, 3, 4)] == [9] * 3
    with refuses("client-silent", match="Client 9: "):
        server.take(replies)


def test_given_a_wrong_part_then_masks_do_not_cancel() -> None:
    clients, server = with_shares()
    parts = {c: clients.answer(c, message) for c, message in server.ask().items()}
    server.take({**parts, 9: {PART: parts[9][PART] + np.uint32(1 << 31)}})
    with refuses("sum-wrong", match="columns"):
        server.moments()


@pytest.mark.parametrize("wrong", [np.ones(1200, np.uint8), np.zeros(1120, np.uint8)])
def test_given_what_one_has_sealed_does_not_open_then_all_others_name_it(
    wrong: NDArray[np.uint8],
) -> None:
    clients, server = with_keys()
    replies = {c: dict(clients.answer(c, told)) for c, told in server.ask().items()}
    for name in replies[4]:
        replies[4][name] = wrong
    server.check(4, replies[4])
    server.take(replies)
    answers = {c: clients.answer(c, message) for c, message in server.ask().items()}
    assert {c: int(answers[c][COMPLAINT]) for c in (0, 3, 9)} == {0: 4, 3: 4, 9: 4}
    assert not any(clients.memories[client] for client in SIZES)
    with refuses("client-silent", match="Client 4: "):
        server.take(answers)


def test_given_complaints_before_any_sums_then_a_new_sum_begins_without_their_subject() -> None:
    clients, server = with_keys()
    answers = {c: dict(clients.answer(c, told)) for c, told in server.ask().items()}
    for client in (0, 3, 9):
        answers[client] = {COMPLAINT: np.array(4)}
        server.check(client, answers[client])
    with pytest.raises(ExcludedClientsError) as error:
        server.take(answers)
    assert ({*error.value.excluded}, error.value.left) == ({4}, (0, 3, 9))
    left = {client: SIZES[client] for client in error.value.left}
    assert_equal(clients.play(MomentServer(left, 5)).moments(), exact(ROWS, [0, 3, 9]))


@pytest.mark.parametrize(
    "wrong",
    [
        {COMPLAINT: np.array(4)},  # of client 4 itself
        {COMPLAINT: np.array(5)},
        {COMPLAINT: np.array([0])},
        {COMPLAINT: np.array(0), "more": np.array(0)},
    ],
)
def test_a_complaint_that_is_none_is_refused(wrong: Arrays) -> None:
    _, server = with_keys()
    with refuses("message-form", BadMessageError, match="Client 4 .*complaint"):
        server.check(4, wrong)


@pytest.mark.parametrize(
    "sealed",
    [
        None,
        np.zeros(0, np.uint8),
        np.zeros(1088 + 27, np.uint8),
        np.zeros(2000),
        np.zeros((2000, 1), np.uint8),
    ],
)
def test_a_client_that_seals_nothing_for_another_is_refused(
    sealed: NDArray[np.uint8] | None,
) -> None:
    clients, server = with_keys()
    answer = dict(clients.answer(4, server.ask()[4]))
    server.check(4, answer)
    server.check(4, {**answer, "to/9": np.zeros(1088 + 28, np.uint8)})
    del answer["to/9"]
    if sealed is not None:
        answer["to/9"] = sealed
    with refuses("message-incomplete", BadMessageError, match="Client 4 .* client 9"):
        server.check(4, answer)


def test_messages_out_of_turn_are_refused() -> None:
    clients, server = with_keys()
    told = server.ask()[4]
    with refuses("server-out-of-turn", match="columns"):
        clients.answer(4, {})
    clients.answer(4, told)
    with refuses("server-out-of-turn", match="columns"):
        clients.answer(4, told)


# Identities


def test_given_identities_then_the_moments_are_the_same_and_a_foreign_key_gets_no_sums() -> None:
    known = identities(SIZES)
    found = Clients(ROWS, identities=known).play(MomentServer(SIZES, 5))
    assert_equal(found.moments(), exact(ROWS, [*SIZES]))
    for stranger in (identities([4])[4], None):  # another identity in the same place, and none
        others = {c: one for c, one in known.items() if c != 4}
        clients = Clients(ROWS, identities={**others, **({4: stranger} if stranger else {})})
        server = MomentServer(SIZES, 5)
        server.take({c: clients.answer(c, told) for c, told in server.ask().items()})
        replies = {c: clients.answer(c, told) for c, told in server.ask().items()}
        for client in (0, 3, 9):
            assert {*replies[client]} == {COMPLAINT}
            assert int(replies[client][COMPLAINT]) == 4
        with pytest.raises(ExcludedClientsError) as error:
            server.take(replies)
        assert {*error.value.excluded} == {4}


def test_given_a_key_signed_for_another_run_then_it_is_refused() -> None:
    known = identities(SIZES)
    before, now = Clients(ROWS, identities=known), Clients(ROWS, identities=known, run=6)
    server = MomentServer(SIZES, 5)
    asked = server.ask()
    answers = {c: now.answer(c, told) for c, told in asked.items()}
    server.take({**answers, 4: before.answer(4, asked[4])})
    told = server.ask()
    assert int(now.answer(0, told[0])[COMPLAINT]) == 4


# Malformed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda a: {PART: a[PART][:-1]},
            r"uint32 \(9, 20\) as 'masked-moments'",
        ),
        (lambda a: {PART: a[PART].astype(np.uint64)}, r"uint64 \(10, 20\) as 'masked-moments'"),
        (lambda a: {}, "nothing as 'masked-moments'"),
        (lambda a: {**a, "more": a[PART]}, "something for which nobody asked"),
    ],
)
def test_a_malformed_part_is_refused_with_its_client(
    change: Callable[[Arrays], Arrays], words: str
) -> None:
    clients, server = with_shares()
    reply = clients.answer(4, server.ask()[4])
    with pytest.raises(BadMessageError, match=f"^Client 4 .*{words}"):
        server.check(4, change(reply))


def test_a_key_of_small_order_is_refused_with_its_client() -> None:
    answer = Clients(ROWS).answer(4, MomentServer(SIZES, 5).ask()[4])
    MomentServer(SIZES, 5).check(4, answer)
    key = answer[PUBLIC].copy()
    key[:32] = 0
    with refuses("key-unsafe", BadMessageError, match="Client 4 "):
        MomentServer(SIZES, 5).check(4, {**answer, PUBLIC: key})
    for wrong in ({PUBLIC: answer[PUBLIC]}, {**answer, SIGNATURES: answer[SIGNATURES][:9]}):
        with pytest.raises(BadMessageError, match=r"^Client 4 sent .* as 'signatures'"):
            MomentServer(SIZES, 5).check(4, wrong)


def test_a_malformed_key_is_refused_with_its_client() -> None:
    with refuses("message-form", BadMessageError, match="Client 4 .*'public-keys'"):
        MomentServer(SIZES, 5).check(4, {PUBLIC: np.zeros(31, np.uint8)})
