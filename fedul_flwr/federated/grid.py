"""Wrappers around Flower's grid: faster polling, and packed messages for devices."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.blame import UnreadableReplyError
from fedul_flwr.federated.flower_internals import ErrorCode, is_http_grid, make_message
from fedul_flwr.federated.packing import pack, unpack

_SHORTEST, _LONGEST, _SHARE = 0.2, 3.0, 0.05
"""Polling interval in seconds: minimum, maximum, and share of the time waited so far."""


class GridProxy(Grid):
    """Forwards every call to ``grid``; subclasses override some methods."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def get_node_ids(self) -> Iterable[int]:
        """As the grid does."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """As the grid does; each has a ``node_id`` and a ``name``."""
        return self._grid.get_nodes()

    def set_run(self, run: Any) -> None:
        """As the grid does."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
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
    """Polls for replies often at first, then less and less often.

    Flower's own grid on devices polls every 3 s; the mean delay of 1.5 s is long in a short round.
    """

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send ``messages``; return the replies that arrive within ``timeout`` seconds."""
        waiting = set(self.push_messages(messages))
        del messages  # frees their models while waiting
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


def owner_names(grid: Grid) -> dict[int, str]:
    """Names of the connected nodes that were registered at the SuperLink by name.

    A SuperNode without a key gets a new id at each start, and has no name.
    """
    return {node.node_id: node.name for node in grid.get_nodes() if node.name}


class PackingGrid(PromptGrid):
    """A :class:`PromptGrid` that packs all arrays of a message into one.

    Its callers only see unpacked messages. A reply that cannot be unpacked becomes an error reply
    from the same node.
    """

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Push messages one content at a time, so only one packed copy is in memory."""
        ids: list[str] = []
        for _, group in groupby(messages, key=lambda message: id(message.content)):
            alike = list(group)
            packed = pack(alike[0].content)
            # Metadata are shared: the grid writes the message's id into them.
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
        unreadable = UnreadableReplyError(ErrorCode.REPLY_MESSAGE_UNAVAILABLE, str(error))
        return make_message(reply.metadata, error=unreadable)
    return reply


def for_devices(grid: Grid) -> Grid:
    """``grid`` wrapped in a :class:`PackingGrid` on devices; unchanged in a simulation."""
    return PackingGrid(grid) if is_http_grid(grid) else grid
