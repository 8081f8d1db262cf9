"""A client of secure sums that is asked for steps in any order: each is refused, or right."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from numpy.typing import NDArray

from fedul_flwr.secure.sharing import SURVIVORS
from fedul_flwr.secure.sum_client import Joined, Keyed, Masked, Offered, Signed, SumStage
from fedul_flwr.secure.sum_server import SumServer
from tests.support.refusals import refuses
from tests.support.sum_party import Arrays, Party, total, vectors

ASKED, OTHERS = 0, range(1, 4)
"""The client that is asked for anything; the others are asked for what is in turn."""
LISTS = st.sampled_from([[0, 1, 2, 3], [0, 1, 2], [0, 2, 3]])
"""Lists of more than two thirds of four clients."""


class Steps(RuleBasedStateMachine):
    """What client 0 has to do, by the stage in which this machine knows it to be."""

    pinned = False

    @initialize()
    def begin(self) -> None:
        self.party = Party(range(4), self.pinned)
        self.at: type[SumStage] = Joined
        self.last = self.answered = 0
        self.shares: dict[int, Arrays] = {}
        self.sent: dict[int, NDArray[np.uint32]] = {}
        self.signed: list[int] = []

    @rule()
    def keys(self) -> None:
        self.last -= self.at is Offered
        self.party.exchange_keys()
        self.at = Keyed
        self.party.join(OTHERS)

    @rule()
    def peers(self) -> None:
        if self.at is not Keyed:
            with refuses("server-out-of-turn"):
                self.party.join([ASKED])
            return
        self.party.join([ASKED])
        self.at = Joined

    @rule(more=st.integers(-1, 2))
    def offer(self, more: int) -> None:
        number, question = max(1, self.last + more), bytes([max(1, self.last + more)]) * 32
        server = self.party.server(number)
        if self.at is Keyed or number <= self.last:
            with refuses("server-out-of-turn"):
                self.party.offer(server, [ASKED], question)
            return
        answers = self.party.offer(server, self.party.clients, question)
        server.take_shares(answers)
        self.server: SumServer = server
        self.at, self.last, self.question = Offered, number, question
        self.shares[number] = server.shares_for(ASKED)

    @rule(of=st.sampled_from(["this", "another question", "another sum"]))
    def vector(self, of: str) -> None:
        words = vectors(self.party.clients, seed=self.last)
        if self.at is not Offered:
            shares = self.shares.get(self.last, {})
            with refuses("server-out-of-turn"):
                self.party.mask(ASKED, shares, words[ASKED], bytes([self.last]) * 32)
            return
        if of == "another question":
            with refuses("model-mismatch"):
                self.party.mask(ASKED, self.shares[self.last], words[ASKED], b"x" * 32)
            return
        earlier = [number for number in self.shares if number != self.last]
        if of == "another sum" and earlier:
            with refuses("message-not-opened"):
                self.party.mask(ASKED, self.shares[earlier[-1]], words[ASKED], self.question)
            return
        self.sent = {
            client: self.party.mask(
                client, self.server.shares_for(client), words[client], self.question
            )
            for client in self.party.clients
        }
        self.at = Masked

    @rule(listed=LISTS)
    def confirm(self, listed: list[int]) -> None:
        if not self.pinned:
            return
        message = {SURVIVORS: np.array(listed)}
        if self.at is not Masked:
            with refuses("server-out-of-turn"):
                self.party.signatures(message, [ASKED])
            return
        self.signatures = self.party.signatures(message, listed)
        self.at, self.signed = Signed, listed

    @rule(listed=LISTS)
    def unmask(self, listed: list[int]) -> None:
        is_right = self.at is (Signed if self.pinned else Masked)
        if not is_right or (self.pinned and listed != self.signed):
            message: dict[str, Any] = {SURVIVORS: np.array(listed)}
            if self.pinned:
                message["signatures"] = np.zeros((len(listed), 132), np.uint8)
            with refuses("server-out-of-turn"):
                self.party.unmask(ASKED, message)
            return
        self.server.take_vectors({client: self.sent[client] for client in listed})
        message = self.server.list_message()
        if self.pinned:
            message = self.server.signed_list(self.signatures)
        answers = {client: self.party.unmask(client, message) for client in listed}
        opened, liars = self.server.open_sum(answers)
        words = vectors(self.party.clients, seed=self.last)
        assert (opened.words.tolist(), liars) == (total(words, listed), [])
        self.at, self.answered = Joined, self.answered + 1

    @rule(listed=LISTS, steps=st.integers(1, 5))
    def go_on(self, listed: list[int], steps: int) -> None:
        """Steps in turn, so that sums are opened, too."""
        for _ in range(steps):
            if self.at is Keyed:
                self.peers()
            elif self.at is Joined:
                self.offer(1)
            elif self.at is Offered:
                self.vector("this")
            elif self.at is Masked and self.pinned:
                self.confirm(listed)
            else:
                self.unmask(self.signed or listed)

    def teardown(self) -> None:
        if hasattr(self, "at"):
            assert type(self.party.stage(ASKED)) is self.at
            assert self.party.stage(ASKED).last == self.last
            type(self).opened += self.answered

    opened = 0


@pytest.mark.parametrize("pinned", [False, True])
def test_given_steps_in_any_order_then_a_client_refuses_them_or_the_sum_is_right(
    pinned: bool,
) -> None:
    machine = type("Machine", (Steps,), {"pinned": pinned})
    few = settings(
        max_examples=15,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(machine, settings=few)
    assert machine.opened  # type: ignore[attr-defined]


def test_a_stage_in_a_text_shows_no_secret() -> None:
    stage = Party(range(3)).stage(0)
    assert isinstance(stage, Joined)
    shown = repr(stage) + repr(stage.member.session)
    assert repr(stage.member.session.private)[2:10] not in shown
    assert "private" not in shown
