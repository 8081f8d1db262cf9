"""Who takes part: finding the nodes of a run and their partitions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from logging import WARNING

import numpy as np
from flwr.app import Message, Metadata
from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Floats
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.messages import Content, from_records, payload_bytes, step_messages

Check = Callable[[int, Content], None]
"""``(node, its answer)``: raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse it."""


NO_ANSWER = "no answer"
"""Why a node failed that said nothing in time."""


@dataclass(frozen=True, order=True)
class Member:
    """A node of the run, ordered by its partition (node ids are random)."""

    partition_id: int
    node_id: int


@dataclass
class ClientReport:
    """What is known of a client, for ``federation.json``; ``None`` where it was not shared."""

    id: int
    num_points: int | None = None
    num_labeled: int | None = None
    set_sizes: list[int] | None = None
    priors: list[list[float]] | None = None
    class_counts: list[int] | None = None
    labeled_counts: list[int] | None = None
    condition_number: float | None = None
    status: str = "accepted"
    reason: str = ""


@dataclass(frozen=True)
class DataShape:
    """Shape of the inputs and names of the K classes."""

    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]


@dataclass
class Phase:
    """Answers of one extra phase by node id; nodes that gave none, or one of no use, and why."""

    answers: dict[int, Content] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0


def introduction(
    settings: RunConfig, data: DataShape, files: Mapping[str, str] | None = None
) -> Content:
    """What clients are told before round 1.

    The settings as the server resolved them, the model's input and output, and in a simulation
    ``files``, where its images and sets lie.
    """
    height, width, channels = data.image_shape
    content = Content(
        values={
            "settings": json.dumps(settings.to_flat(), sort_keys=True),
            "height": height,
            "width": width,
            "channels": channels,
            "class-names": list(data.class_names),
        }
    )
    content.values |= files or {}
    return content


def replies_to(sent: Iterable[Metadata], replies: Iterable[Message]) -> Iterator[Message]:
    """Those of ``replies`` that answer one of the messages in hand, and not an earlier one."""
    numbers = {metadata.message_id for metadata in sent}
    return (reply for reply in replies if reply.metadata.reply_to_message_id in numbers)


def run_phase(
    grid: Grid,
    contents: Mapping[int, Content],
    name: str,
    timeout: float,
    check: Check | None = None,
) -> Phase:
    """Send phase ``name`` to nodes, to each its own content, and collect their answers.

    Parameters
    ----------
    check : refuses what a node answered, by a :class:`~fedul_flwr.errors.BadMessageError`.
    """
    phase = Phase()
    messages = step_messages(name, contents)
    phase.bytes_down = sum(payload_bytes(message.content) for message in messages)
    strays = []  # errors about nodes that are gone do not come from those nodes
    received = grid.send_and_receive(messages, timeout=timeout)
    for reply in replies_to([message.metadata for message in messages], received):
        node = reply.metadata.src_node_id
        if reply.has_error() and node not in contents:
            strays.append(failure_reason(reply))
        elif reply.has_error():
            phase.failures[node] = failure_reason(reply)
        elif node in contents:
            phase.bytes_up += payload_bytes(reply.content)
            try:
                answer = from_records(reply.content)
                if check is not None:
                    check(node, answer)
                phase.answers[node] = answer
            except BadMessageError as error:
                phase.refusals[node] = str(error)
    heard = phase.answers.keys() | phase.failures.keys() | phase.refusals.keys()
    for node in contents:
        if node not in heard:
            phase.failures[node] = strays.pop(0) if strays else NO_ANSWER
    return phase


def failure_reason(reply: Message) -> str:
    """The last sentence of a failing client's error, without Flower's wrapping."""
    lines = [line.strip() for line in str(reply.error.reason).splitlines() if line.strip()]
    text = lines[-1] if lines else "unknown error"
    return text.replace("Exception ClientAppException occurred. Message: ", "").removesuffix("'>")


def find_nodes(grid: Grid, settings: RunConfig) -> tuple[list[int], bool]:
    """Wait for the nodes of the run; also tells whether they bring their own data.

    Nodes of a simulation are still being registered when a server app starts, so the first one is
    asked how many there will be. On a device that is ``num-partitions`` of the node config; without
    it the nodes that are connected take part.

    Raises
    ------
    UserError
        If no node connects within ``connect-timeout``, or none answers; with
        ``on-client-failure = "stop"`` also if there are fewer than announced, or the first one
        fails.
    """
    deadline = time.monotonic() + settings.connect_timeout
    nodes = _wait_for_nodes(grid, 1, deadline)
    if not nodes:
        raise UserError(_too_few(0, 1, settings))
    hello = _first_answer(grid, nodes, settings)
    expected = number(hello, "num-partitions")
    nodes = _wait_for_nodes(grid, max(expected, 1), deadline)
    if len(nodes) < max(expected, 1):
        text = _too_few(len(nodes), expected, settings)
        if settings.on_client_failure == "stop" or not nodes:
            raise UserError(text)
        log(WARNING, "%s The run starts with them; others may join later.", text)
    return nodes, bool(hello.values.get("own-data"))


def _first_answer(grid: Grid, nodes: Sequence[int], settings: RunConfig) -> Content:
    """What the first node says or, where that is of no use, one of the others, asked together.

    Both times ``connect-timeout / 2`` are waited at most.
    """
    for asked in (nodes[:1], nodes[1:]):
        contents = dict.fromkeys(asked, Content())
        phase = run_phase(grid, contents, "hello", settings.connect_timeout / 2, _check_hello)
        for node, reason in {**phase.failures, **phase.refusals}.items():
            if settings.on_client_failure == "stop":
                raise UserError(f"The first client failed: {reason}")
            log(WARNING, "Node %s does not say who it is: %s", node, reason)
        if phase.answers:
            return phase.answers[min(phase.answers)]
    raise UserError("No client has said who it is.")


def _check_hello(node: int, answer: Content) -> None:
    del node
    count(answer, "num-partitions")


def _wait_for_nodes(grid: Grid, count: int, deadline: float) -> list[int]:
    """The nodes, as soon as there are ``count``; those that there are at the deadline."""
    while len(nodes := sorted(grid.get_node_ids())) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    return nodes


def _too_few(nodes: int, expected: int, settings: RunConfig) -> str:
    return (
        f"Only {nodes} of {expected} nodes connected within connect-timeout = "
        f"{settings.connect_timeout:g} s."
    )


def number(content: Content, key: str) -> int:
    """A whole number that came with a message.

    Raises
    ------
    BadMessageError
        If there is none.
    """
    value = content.values.get(key)
    if not isinstance(value, int):
        raise BadMessageError(f"A message came with no valid {key}.")
    return value


def count(content: Content, key: str) -> int:
    """A whole number that is not negative; see :func:`number`."""
    value = number(content, key)
    if value < 0:
        raise BadMessageError(f"A message came with {key} below 0.")
    return value


def numbers(content: Content, key: str) -> Floats:
    """``(n,)``, finite numbers that came with a message; see :func:`number`."""
    value = content.values.get(key)
    of_numbers = isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)
    if not of_numbers or not np.isfinite(found := np.array(value, dtype=np.float64)).all():
        raise BadMessageError(f"A message came with no valid {key}.")
    return found
