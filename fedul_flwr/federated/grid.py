"""What may lie between a strategy and Flower's grid."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import groupby

from flwr.app import Error, Message, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid

from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.packing import pack, unpack

_SHORTEST, _LONGEST, _SHARE = 0.2, 3.0, 0.05
"""Seconds between two looks for replies: a share of the time waited so far, within bounds."""


class GridProxy(Grid):
    """Does as ``grid`` does; subclasses change a part of it."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def get_node_ids(self) -> Iterable[int]:
        """As the grid does."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """As the grid does."""
        return self._grid.get_nodes()

    def set_run(self, run: Run) -> None:
        """As the grid does."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """As the grid's."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """As the grid does."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the grid does."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As the grid does."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """As the grid does."""
        return self._grid.send_and_receive(messages, timeout=timeout)


class PromptGrid(GridProxy):
    """Looks for replies often at first, and ever less often the longer they take.

    Flower's own grid on devices looks every 3 s, whose mean of 1.5 s is much of a short round.
    """

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Replies to ``messages`` that come within ``timeout`` seconds, as the grid's own does."""
        waiting = set(self.push_messages(messages))
        del messages  # whole models, perhaps
        start = time.monotonic()
        replies: list[Message] = []
        while waiting:
            found = list(self.pull_messages(waiting))
            replies += found
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            waited = time.monotonic() - start
            if timeout is not None and waited >= timeout:
                break
            if waiting:
                pause = min(max(_SHARE * waited, _SHORTEST), _LONGEST)
                left = pause if timeout is None else timeout - waited
                time.sleep(min(pause, left))
        return replies


def registered(grid: Grid) -> set[int]:
    """Nodes that are connected and were registered at the SuperLink by name.

    A SuperNode without a key registers itself anew at each start, and has no name.
    """
    return {node.node_id for node in grid.get_nodes() if node.name}


class PackingGrid(PromptGrid):
    """A prompt grid on which all arrays of a message travel as one.

    Whoever uses it sees messages as they are unpacked. A reply that cannot be unpacked becomes one
    with an error, from the same node.
    """

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the grid does, content by content: only one is in memory twice at a time."""
        ids: list[str] = []
        for _, group in groupby(messages, key=lambda message: id(message.content)):
            alike = list(group)
            packed = pack(alike[0].content)
            # The metadata are shared, as the grid writes a message's id into them.
            ids += self._grid.push_messages(
                [make_message(message.metadata, packed) for message in alike]
            )
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As the grid does."""
        return [_unpacked(reply) for reply in self._grid.pull_messages(message_ids)]


def _unpacked(reply: Message) -> Message:
    if reply.has_error():
        return reply
    try:
        reply.content = unpack(reply.content)
    except BadMessageError as error:
        reason = f"Node {reply.metadata.src_node_id}: {error}"
        return make_message(
            reply.metadata, error=Error(ErrorCode.REPLY_MESSAGE_UNAVAILABLE, reason)
        )
    return reply


def for_devices(grid: Grid) -> Grid:
    """``grid``, made prompt and packing where it is one of devices."""
    return PackingGrid(grid) if isinstance(grid, HttpGrid) else grid
