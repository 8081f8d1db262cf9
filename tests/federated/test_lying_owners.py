"""Owners that complain about honest ones while a secure sum begins, and a server that does not lie.

A complaint takes away the masks between two clients and nothing else. So liars who are fewer than a
third leave, or the round is refused; no honest owner leaves, and nobody reads a sum of fewer.
"""

from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp import Grid

from fedul_flwr.data.types import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID
from fedul_flwr.errors import NoUpdateError, UserError
from fedul_flwr.federated.grid import GridProxy
from fedul_flwr.federated.messages import KEYS, PEERS, SHARES, from_records, phase_of, to_records
from fedul_flwr.secure.messages import COMPLAINT
from fedul_flwr.secure.session import PARTICIPANTS
from tests.federated.test_secure_sum import CONTINUE, SUM, close
from tests.support.runs import metrics, train
from tests.support.settings import Settings


class Complaining(GridProxy):
    """Some clients complain, whenever they can, about the next honest client or about all."""

    def __init__(
        self, grid: Grid, liars: tuple[int, ...], phases: tuple[str, ...], all: bool
    ) -> None:
        super().__init__(grid)
        self._liars, self._phases, self._all = liars, phases, all
        self.said = 0
        self.sessions = 0

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        replies = []
        for message in [*messages]:
            client = message.metadata.dst_node_id - FIRST_NODE_ID
            self.sessions += (phase_of(message), client) == (KEYS, 0)
            if client in self._liars and phase_of(message) in self._phases:
                present = from_records(message.content).arrays[PARTICIPANTS].tolist()
                others = [one for one in present if one not in self._liars]
                about = others if self._all else others[self.said % len(others) :][:1]
                self.said += client == self._liars[-1]
                reply = Message(
                    to_records(Content(arrays={COMPLAINT: np.array(about, np.int64)})),
                    reply_to=message,
                )
                reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
                replies.append(reply)
            else:
                replies += super().send_and_receive([message], timeout=timeout)
        return replies


@pytest.mark.parametrize("about_all", [False, True])
@pytest.mark.parametrize("phase", [SHARES, PEERS])
@pytest.mark.parametrize(("count", "liars"), [(8, (6, 7)), (10, (7, 8, 9))])
def test_given_lying_owners_then_no_honest_owner_leaves(
    settings: Settings, count: int, liars: tuple[int, ...], phase: str, about_all: bool
) -> None:
    config = settings(**SUM, **CONTINUE)
    wrap = lambda grid: Complaining(grid, liars, (phase,), about_all)  # noqa: E731
    run = train(config, count, wrap_grid=wrap)
    for line in metrics(run):
        assert line["clients"] == count - len(liars)
        assert {*line["failed"]} <= {f"Client {liar}" for liar in liars}


@pytest.mark.parametrize(("phase", "sessions"), [(SHARES, 2), (PEERS, 3)])
def test_given_owners_that_complain_again_and_again_then_a_sum_is_tried_again_once(
    settings: Settings, phase: str, sessions: int
) -> None:
    """And once more without them where all must have sent something."""
    grids: list[Complaining] = []

    def wrap(grid: Grid) -> Grid:
        grids.append(Complaining(grid, (8, 9), (phase,), False))
        return grids[0]

    train(settings(**{**SUM, "num_rounds": 1}, **CONTINUE), 10, wrap_grid=wrap)
    assert grids[0].sessions == sessions


def test_given_one_complaint_then_everybody_stays_and_the_sum_is_right(settings: Settings) -> None:
    class Once(Complaining):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            self._liars = () if self.said else self._liars
            return super().send_and_receive(messages, timeout=timeout)

    config = settings(**SUM, **CONTINUE)
    honest = train(config, 6)
    run = train(settings(**SUM, **CONTINUE), 6, wrap_grid=lambda g: Once(g, (5,), (SHARES,), False))
    assert [(line["clients"], line["failures"]) for line in metrics(run)] == [(6, 0), (6, 0)]
    close(run, honest)


@pytest.mark.parametrize("count", [3, 4])
def test_given_so_few_owners_that_a_pair_is_too_many_then_the_round_is_refused(
    settings: Settings, count: int
) -> None:
    """Of three, nobody can spare a pair; of four, a liar that takes more than one leaves."""
    wrap = lambda grid: Complaining(grid, (count - 1,), (SHARES,), True)  # noqa: E731
    config = settings(**SUM, **CONTINUE)
    if count == 3:
        with pytest.raises(NoUpdateError, match="secure"):
            train(config, count, wrap_grid=wrap)
    else:
        assert [line["clients"] for line in metrics(train(config, count, wrap_grid=wrap))] == [3, 3]


def test_given_owners_that_stop_on_failures_when_one_complains_twice_then_both_sides_are_named(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError, match="Client 5"):
        train(settings(**SUM), 6, wrap_grid=lambda g: Complaining(g, (5,), (SHARES,), False))
    assert "Client 5 about Client 0" in caplog.text
