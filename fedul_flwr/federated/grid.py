"""Messages to clients: Flower's grid, polled faster and packed, phases on it, and a round's record.

An extra phase sends a message to some clients, collects their answers and checks them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from logging import WARNING
from typing import Any

from flwr.app import Message, Metadata
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.data.run_files.records import AWAY, FAILED, OWNERS, REASONS, Figures
from fedul_flwr.data.types import Content
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.flower_internals import ErrorCode, is_http_grid, make_message
from fedul_flwr.federated.messages import (
    END,
    Spool,
    UnreadableReplyError,
    failure_reason,
    from_records,
    pack,
    payload_bytes,
    phase_messages,
    prefix_sender,
    printable,
    unpack,
)

_SHORTEST, _LONGEST, _SHARE = 0.2, 3.0, 0.05
"""Polling interval in seconds: minimum, maximum, and share of the time waited so far."""
_AT_ONCE = 16
"""Messages whose replies are asked for in one request: so many are in memory at a time."""


def forwarded(behind: str, name: str) -> Any:
    """A method that calls the method ``name`` of the object's attribute ``behind``."""

    def call(self: object, *arguments: Any, **named: Any) -> Any:
        return getattr(getattr(self, behind), name)(*arguments, **named)

    return call


class GridProxy(Grid):
    """Forwards every call to ``grid``; subclasses override some methods."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    run = property(lambda self: self._grid.run)
    set_run = forwarded("_grid", "set_run")
    get_nodes = forwarded("_grid", "get_nodes")
    get_node_ids = forwarded("_grid", "get_node_ids")
    create_message = forwarded("_grid", "create_message")
    push_messages = forwarded("_grid", "push_messages")
    pull_messages = forwarded("_grid", "pull_messages")
    send_and_receive = forwarded("_grid", "send_and_receive")


class SampledGrid(GridProxy):
    """``grid`` with a list of nodes restricted to ``nodes``."""

    def __init__(self, grid: Grid, nodes: Iterable[int]) -> None:
        super().__init__(grid)
        self._nodes = [*nodes]

    def get_node_ids(self) -> Iterable[int]:
        """Node ids, in the order of the clients."""
        return list(self._nodes)

    def get_nodes(self) -> Iterable[Any]:
        """Information about the nodes of the clients."""
        return [node for node in super().get_nodes() if node.node_id in self._nodes]


class PromptGrid(GridProxy):
    """Polls for replies often at first, then less and less often, and spools them.

    Flower's own grid on devices polls every 3 s; the mean delay of 1.5 s is long in a short round.

    Parameters
    ----------
    longest : seconds between two requests, at most.
    """

    def __init__(self, grid: Grid, longest: float = _LONGEST) -> None:
        super().__init__(grid)
        self.longest = longest

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send ``messages``; return the replies that arrive within ``timeout`` seconds."""
        waiting = set(self.push_messages(messages))
        del messages  # frees their models while waiting
        start = time.monotonic()
        replies: list[Message] = []
        spool = Spool()
        while waiting:
            asked = sorted(waiting)
            for first in range(0, len(asked), _AT_ONCE):
                for reply in self.pull_messages(asked[first : first + _AT_ONCE]):
                    replies.append(spool.add(reply))
                    waiting.discard(reply.metadata.reply_to_message_id)
            waited = time.monotonic() - start
            if timeout is not None and waited >= timeout:
                break
            if waiting:
                pause = min(max(_SHARE * waited, _SHORTEST), self.longest)
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


def polled(grid: Grid) -> Grid:
    """``grid`` as one of ours, if it is Flower's on devices or in a simulation."""
    if is_http_grid(grid):
        return PackingGrid(grid)
    # Flower's simulations poll as often.
    return PromptGrid(grid, longest=0.1) if hasattr(grid, "pull_interval") else grid


Check = Callable[[int, Content], None]
"""``(node, its answer)``: raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse it."""


_PATIENCE = 10.0
"""Seconds that nodes have to note the end of a run."""
NO_ANSWER = "no answer"
"""Reason of failure for a node that did not answer in time."""


@dataclass
class Phase:
    """Answers of an extra phase by node id, and reasons of failure for all other nodes.

    Reasons are printable text. Of the failures, ``invalid`` are nodes whose answer is not what it
    must be, and ``unavailable`` those that the SuperLink has lost; they may come back.
    """

    answers: dict[int, Content] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    invalid: set[int] = field(default_factory=set)
    unavailable: set[int] = field(default_factory=set)
    bytes_down: int = 0
    bytes_up: int = 0

    def add(self, later: Phase) -> None:
        """Take over what nodes have answered when they were asked again."""
        self.answers |= later.answers
        self.failures |= later.failures
        self.invalid |= later.invalid
        self.unavailable |= later.unavailable
        self.bytes_down += later.bytes_down
        self.bytes_up += later.bytes_up


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
        if node in phase.answers or node in phase.failures:
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
            phase.failures[node] = printable(str(error))
            phase.invalid.add(node)
    heard = phase.answers.keys() | phase.failures.keys()
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


_MOST_NAMED = 20
"""Most clients that one line of the log names."""


@dataclass
class RoundRecord:
    """Record of one round, for ``metrics.jsonl``.

    Attributes
    ----------
    model_bytes, model_values : payload of one dense model in bytes, and its number of values.
    sampled : number of clients sampled for training.
    clients : number of clients that took part: their replies are valid.
    failures : number of failures among those asked, and in extra phases.
    failed : who has failed, each with the last reason.
    away : clients that were not connected when the round began.
    why : the last reason for which each client that is missing is so, over all rounds.
    joined : partitions of the clients that joined or rejoined in this round.
    members : number of clients, those that are away included.
    owners : names at the SuperLink of those whose update is in the model, by node.
    down, up : bytes to and from all clients together, by part: the name of the record of arrays
        (``model`` for the model's), ``phases``, ``evaluation``, ``other``.
    nonzero_down, nonzero_up : number of values sent because they differ from the receiver's, by
        part; counted only by methods that send sparse differences.
    released_down : the number to clients as the FedMatch authors' code counts it.
    reported : numbers that clients have reported, combined as declared, and those of stages.
    metrics : further figures of the method.
    heldout_loss : median over clients, if measured.
    heldout_losses : number and held-out loss of each client that measured one.
    spans : start and end of each client's training, in seconds.
    """

    round: int
    model_bytes: int = 0
    model_values: int = 0
    sampled: int = 0
    clients: int = 0
    failures: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    away: list[str] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)
    joined: list[int] = field(default_factory=list)
    members: int = 0
    owners: dict[int, str] = field(default_factory=dict)
    down: Counter[str] = field(default_factory=Counter)
    up: Counter[str] = field(default_factory=Counter)
    nonzero_down: Counter[str] = field(default_factory=Counter)
    nonzero_up: Counter[str] = field(default_factory=Counter)
    released_down: int = 0
    reported: dict[str, Any] = field(default_factory=dict)
    metrics: Figures = field(default_factory=Figures)
    heldout_loss: float | None = None
    heldout_losses: list[tuple[int, float]] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)

    def traffic(self) -> dict[str, float]:
        """The keys of a metrics line that are about traffic.

        100 percent is one dense model per client of the round; FedAvg has slightly more.
        """
        line: dict[str, float] = {"model_bytes": self.model_bytes}
        ways = (("up", self.up, self.nonzero_up), ("down", self.down, self.nonzero_down))
        for way, parts, values in ways:
            line[f"bytes_{way}"] = parts.total()
            line |= {f"bytes_{way}_{part}": count for part, count in parts.items()}
            line[f"percent_{way}"] = self._percent(parts.total(), self.model_bytes)
            if values:
                total = self._percent(values.total(), self.model_values)
                line[f"nonzero_{way}_percent"] = total
            for part, count in values.items():
                percent = self._percent(count, self.model_values)
                line[f"nonzero_{way}_percent_{part}"] = percent
        if self.nonzero_down:
            line["released_down_percent"] = self._percent(self.released_down, self.model_values)
        return line

    def incidents(self) -> dict[str, Any]:
        """The keys of a metrics line about clients that failed or were away; none without any."""
        reasons = {name: self.why[name] for name in (*self.failed, *self.away) if name in self.why}
        by_kind = {FAILED: list(self.failed), AWAY: self.away, REASONS: reasons}
        return {key: names for key, names in by_kind.items() if names}

    def who(self) -> dict[str, Any]:
        """The keys of a metrics line about owners that the model has learned from, if named."""
        return {OWNERS: [*self.owners.values()], "members": self.members} if self.owners else {}

    def _percent(self, amount: int, dense: int) -> float:
        return 100 * amount / (self.sampled * dense) if self.sampled else 0.0

    def seconds_fit(self) -> float:
        """Seconds in which at least one client was training."""
        total, reached = 0.0, 0.0
        for start, end in sorted(self.spans):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return total


class RoundLog:
    """The record of the current round, and the handling of failures in it.

    Parameters
    ----------
    stop : whether a failed client ends the run (`on-client-failure`).

    Attributes
    ----------
    record : of the current round; before the first one of the round before.
    """

    def __init__(self, *, stop: bool) -> None:
        self.record = RoundRecord(round=0)
        self._has_begun = False
        self._stop = stop

    def begin(self, record: RoundRecord) -> None:
        """Start a round's record; what clients did ahead of the first round counts for it."""
        before, self.record = self.record, record
        record.why = before.why
        if not self._has_begun:
            self._has_begun = True
            record.joined, record.failed = before.joined, before.failed
            record.failures = before.failures
            record.down.update(before.down)
            record.up.update(before.up)

    def fail(self, failures: Mapping[str, str]) -> None:
        """Count clients as failed: a printable reason for each, by what the client is called."""
        self.record.failures += len(failures)
        self.record.failed |= failures
        self.record.why |= {sender: why.removesuffix(".") for sender, why in failures.items()}
        alike: dict[str, list[str]] = {}
        for sender, reason in failures.items():
            alike.setdefault(reason.removesuffix("."), []).append(sender)
        for reason, those in alike.items():
            message = f"{len(those)} client(s) failed in round {self.record.round}: "
            shown = ", ".join(those[:_MOST_NAMED])
            more = f" and {len(those) - _MOST_NAMED} more" if len(those) > _MOST_NAMED else ""
            text = message + prefix_sender(shown + more, reason)
            if self._stop:
                raise UserError(
                    f"{text} (on-client-failure = 'continue' goes on without).", "client-failed"
                )
            log(WARNING, text)

    def fail_phase(self, phase: Phase, names: Mapping[int, str]) -> None:
        """Count the clients that failed in an extra phase; ``names`` has their names by node."""
        reasons = phase.failures
        if failures := {names[node]: reasons[node] for node in names if node in reasons}:
            self.fail(failures)
