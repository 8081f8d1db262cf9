from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.data.content import Content
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid, task_identity
from fedul_flwr.errors import UserError
from fedul_flwr.federated import grid as grids
from fedul_flwr.federated.base_strategies import SampledGrid
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.dispatch import make_client_app
from fedul_flwr.federated.grid import GridProxy, PackingGrid, PromptGrid, owner_names
from fedul_flwr.federated.messages import from_records, phase_messages
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.federated.wire import PACKED
from tests.support.wire_grid import WireGrid


class SlowGrid(GridProxy):
    """Two replies, of which each comes at the second given for it; the clock is a test's."""

    def __init__(self, due: list[float], clock: Clock) -> None:
        self._due, self._clock = due, clock
        self.looks: list[float] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self._sent = {str(number): message for number, message in enumerate(messages)}
        return list(self._sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.looks.append(self._clock.now)
        found = []
        for name in sorted(message_ids):
            if self._due[int(name)] <= self._clock.now:
                sent = self._sent[name]
                sent.metadata.__dict__["_message_id"] = name
                found.append(Message(RecordDict(), reply_to=sent))
        return found

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=1, name="north"),
            NodeInfo(node_id=2),
            NodeInfo(node_id=3, name=""),
        ]


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(grids, "time", clock)
    with task_identity():
        yield clock


def asked(grid: Grid, timeout: float | None) -> list[str]:
    messages = [Message(RecordDict(), node, "train") for node in (7, 8)]
    replies = PromptGrid(grid).send_and_receive(messages, timeout=timeout)
    return [reply.metadata.reply_to_message_id for reply in replies]


def test_replies_are_seen_soon(clock: Clock) -> None:
    grid = SlowGrid([100.5, 101.0], clock)
    assert asked(grid, None) == ["0", "1"]
    # Looks 0.2 s apart, as 5 % of what was waited is less; the last one sees what came at 101.0.
    assert grid.looks == pytest.approx([100.0, 100.2, 100.4, 100.6, 100.8, 101.0, 101.2][:-1])


def test_looks_become_rare_and_never_rarer_than_flowers_own(clock: Clock) -> None:
    grid = SlowGrid([100.0, 400.0], clock)
    asked(grid, None)
    pauses = [after - before for before, after in zip(grid.looks, grid.looks[1:], strict=False)]
    waited = [look - 100.0 for look in grid.looks[:-1]]
    # 0.2 s up to 4 s of waiting, then 5 %, and from 60 s on 3 s.
    assert pauses == pytest.approx([min(max(0.05 * w, 0.2), 3.0) for w in waited])
    assert pauses[-1] == pytest.approx(3.0)


def test_what_has_not_come_in_time_is_left_out(clock: Clock) -> None:
    grid = SlowGrid([100.5, 200.0], clock)
    assert asked(grid, 10.0) == ["0"]
    assert grid.looks[-1] == pytest.approx(110.0)


# Packing


@pytest.fixture
def wire() -> Iterator[WireGrid]:
    with task_identity():
        yield WireGrid(
            InProcessGrid(
                make_client_app(
                    lambda context: Doubling(NO_SETTINGS, NodeConfig(), ClientState(context.state))
                ),
                3,
                {},
            )
        )


NO_SETTINGS: Any = None


class Doubling(MethodClient):
    def on_phase(self, name: str, content: Content) -> Content:
        if name == "fail":
            raise UserError("no battery")
        return Content({key: 2 * array for key, array in content.arrays.items()})


def questions(*values: float, name: str = "double") -> list[Message]:
    """To nodes one after the other."""
    contents = [Content({"w": np.array(value)}) for value in values]
    return phase_messages(name, dict(enumerate(contents, FIRST_NODE_ID)))


def answered(replies: Iterable[Message]) -> dict[int, float]:
    return {
        reply.metadata.src_node_id: float(from_records(reply.content).arrays["w"])
        for reply in replies
    }


def test_messages_travel_packed_and_are_seen_as_they_were(wire: WireGrid) -> None:
    grid, sent = PackingGrid(wire), questions(1.0, 2.0)
    before = [RecordDict(dict(message.content)) for message in sent]
    replies = grid.send_and_receive(sent)
    assert answered(replies) == {FIRST_NODE_ID: 2.0, FIRST_NODE_ID + 1: 4.0}
    assert [message.content for message in sent] == before
    for message in (*wire.sent, *wire.received):
        assert list(message.content) == ["config", PACKED]
    # Who sent them knows them by the ids they travel with.
    ids = [message.metadata.message_id for message in sent]
    assert ids == [message.metadata.message_id for message in wire.sent]
    assert {reply.metadata.reply_to_message_id for reply in replies} == set(ids) - {""}


def test_messages_with_one_content_are_packed_once_and_pushed_together(wire: WireGrid) -> None:
    one, two = questions(1.0, 2.0)
    alike = [Message(one.content, FIRST_NODE_ID + node, "query.phase") for node in range(3)]
    PackingGrid(wire).push_messages(message for message in [*alike, two])
    assert wire.pushes == [3, 1]
    assert len({id(message.content) for message in wire.sent}) == 2


def test_an_error_of_a_client_comes_as_it_is(wire: WireGrid) -> None:
    (reply,) = PackingGrid(wire).send_and_receive(questions(1.0, name="fail"))
    assert reply.error.reason == "no battery"


def test_what_cannot_be_unpacked_is_an_error_of_the_same_node(wire: WireGrid) -> None:
    ids = list(wire.push_messages(questions(1.0)))
    for reply in wire.replies.values():
        reply.content[PACKED] = ArrayRecord({"x": Array(np.zeros(1))})
    (reply,) = PackingGrid(wire).pull_messages(ids)
    assert "packed" in reply.error.reason
    assert reply.metadata.src_node_id == FIRST_NODE_ID
    assert [reply.metadata.reply_to_message_id] == ids


def test_nodes_with_a_name_are_registered(clock: Clock) -> None:
    grid = PromptGrid(SlowGrid([], clock))
    assert owner_names(grid) == {1: "north"}
    members = [ClientRef(0, 2), ClientRef(1, 1)]
    assert owner_names(SampledGrid(grid, members)) == {1: "north"}
    assert owner_names(SampledGrid(grid, members[:1])) == {}
