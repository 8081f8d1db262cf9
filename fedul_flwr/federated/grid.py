"""Messages to clients: Flower's grid, polled faster and packed, and extra phases on it.

An extra phase sends a message to some clients, collects their answers and checks them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from logging import WARNING
from typing import Any

from flwr.app import Message, Metadata, RecordDict
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.data.content import Content
from fedul_flwr.errors import BadMessageError
from fedul_flwr.federated.flower_internals import ErrorCode, is_http_grid, make_message
from fedul_flwr.federated.messages import (
    END,
    UnreadableReplyError,
    failure_reason,
    from_records,
    pack,
    payload_bytes,
    phase_messages,
    printable,
    unpack,
)

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
            received = list(self.pull_messages(waiting))
            replies += received
            waiting -= {reply.metadata.reply_to_message_id for reply in received}
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


Check = Callable[[int, Content], None]
"""``(node, its answer)``: raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse it."""


_PATIENCE = 10.0
"""Seconds that nodes have to note the end of a run."""
NO_ANSWER = "no answer"
"""Reason of failure for a node that did not answer in time."""


@dataclass
class Phase:
    """Answers of an extra phase by node id, and reasons of failure for all other nodes.

    Reasons are printable text: ``failures`` of nodes that did not
    answer or reported an error, ``refusals`` of those whose answer is not what it must be. Of the
    failures, ``unavailable`` are nodes that the SuperLink has lost; they may come back.
    """

    answers: dict[int, Content] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    unavailable: set[int] = field(default_factory=set)
    bytes_down: int = 0
    bytes_up: int = 0


def replies_to(
    sent: Sequence[Metadata], replies: Iterable[Message]
) -> Iterator[tuple[int, Message]]:
    """Those of ``replies`` that answer one of the messages ``sent``, each with the node asked.

    A reply to an earlier message is left out, and one from another node than was asked: no node can
    answer for another. Errors about a node may come from the SuperLink.
    """
    node_of = {metadata.message_id: metadata.dst_node_id for metadata in sent}
    numbered = len(node_of) == len(sent)
    nodes = {metadata.dst_node_id for metadata in sent}
    for reply in replies:
        number, source = reply.metadata.reply_to_message_id, reply.metadata.src_node_id
        if number not in node_of:
            continue
        node = node_of[number] if numbered else source
        if node in nodes and (source == node or reply.has_error()):
            yield node, reply


def run_phase(
    grid: Grid,
    contents: Mapping[int, Content],
    name: str,
    timeout: float,
    check: Check | None = None,
) -> Phase:
    """Send phase ``name`` with each node's own content, and collect the answers.

    Parameters
    ----------
    check : raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse an answer.
    """
    phase = Phase()
    messages = phase_messages(name, contents)
    phase.bytes_down = sum(payload_bytes(message.content) for message in messages)
    received = grid.send_and_receive(messages, timeout=timeout)
    for node, reply in replies_to([message.metadata for message in messages], received):
        if node in phase.answers or node in phase.failures or node in phase.refusals:
            continue  # the first reply counts
        if reply.has_error():
            phase.failures[node] = failure_reason(reply, node)
            if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
                phase.unavailable.add(node)
            continue
        phase.bytes_up += payload_bytes(reply.content)
        try:
            answer = from_records(reply.content)
            if check is not None:
                check(node, answer)
            phase.answers[node] = answer
        except BadMessageError as error:
            phase.refusals[node] = printable(str(error))
    heard = phase.answers.keys() | phase.failures.keys() | phase.refusals.keys()
    phase.failures |= {node: NO_ANSWER for node in contents if node not in heard}
    return phase


def announce_end(grid: Grid, how: str) -> None:
    """Tell the owners' devices, for their logs, how a run has ended.

    Parameters
    ----------
    how : ``"finished"`` or ``"failed"``: what the reason says is not for everybody.
    """
    if not isinstance(grid, PackingGrid):  # a simulation has no owners
        return
    try:
        nodes = dict.fromkeys(grid.get_node_ids(), Content(values={END: how}))
        run_phase(grid, nodes, END, _PATIENCE)
    except Exception as error:  # the run itself is over
        log(WARNING, "Owners were not told that the run has %s: %s", how, error)
