from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedul_flwr.engine.in_process import task_identity
from fedul_flwr.federated import grid as grids
from fedul_flwr.federated import messages
from fedul_flwr.federated.grid import GridProxy, PromptGrid, SampledGrid, owner_names
from fedul_flwr.federated.messages import StoredArray, num_bytes, to_record
from fedul_flwr.federated.nodes import ClientRef


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


def test_what_has_not_come_in_time_is_left_out(clock: Clock) -> None:
    grid = SlowGrid([100.5, 200.0], clock)
    assert asked(grid, 10.0) == ["0"]
    assert grid.looks[-1] == pytest.approx(110.0)


def test_replies_beyond_memory_wait_on_disk(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has 400 bytes and a header: with room for 300 the first stays, the second does not."""

    class Grid(SlowGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            for reply in super().pull_messages(message_ids):
                values = np.full(100, float(reply.metadata.reply_to_message_id), np.float32)
                reply.content = RecordDict({"arrays": to_record({"x": values})})
                yield reply

    monkeypatch.setattr(messages, "MOST_IN_MEMORY", 300)
    sent = [Message(RecordDict(), node, "train") for node in (7, 8)]
    replies = PromptGrid(Grid([100.0, 100.0], clock)).send_and_receive(sent)
    arrays = [reply.content["arrays"]["x"] for reply in replies]
    assert [isinstance(array, StoredArray) for array in arrays] == [False, True]
    assert [num_bytes(array) for array in arrays] == [len(arrays[0].data)] * 2
    for number, array in enumerate(arrays):
        np.testing.assert_array_equal(array.numpy(), np.full(100, number, np.float32))


def test_nodes_with_a_name_are_registered(clock: Clock) -> None:
    grid = PromptGrid(SlowGrid([], clock))
    assert owner_names(grid) == {1: "north"}
    members = [ClientRef(0, 2), ClientRef(1, 1)]
    assert owner_names(SampledGrid(grid, [member.node_id for member in members])) == {1: "north"}
    assert owner_names(SampledGrid(grid, [members[0].node_id])) == {}
