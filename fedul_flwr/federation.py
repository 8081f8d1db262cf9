"""Who takes part: finding the nodes of a run and their partitions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from fedul_flwr.bridge import Content, from_records, payload_bytes, step_messages
from fedul_flwr.config import RunConfig
from fedul_flwr.errors import UserError


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
    num_labelled: int | None = None
    set_sizes: list[int] | None = None
    priors: list[list[float]] | None = None
    class_counts: list[int] | None = None
    labelled_counts: list[int] | None = None
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
    """Answers of one extra phase by node id, and reasons of the nodes that gave none."""

    answers: dict[int, Content] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
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


def run_phase(grid: Grid, contents: Mapping[int, Content], name: str, timeout: float) -> Phase:
    """Send phase ``name`` to nodes, to each its own content, and collect their answers."""
    phase = Phase()
    messages = step_messages(name, contents)
    phase.bytes_down = sum(payload_bytes(message.content) for message in messages)
    strays = []  # errors about nodes that are gone do not come from those nodes
    for reply in grid.send_and_receive(messages, timeout=timeout):
        node = reply.metadata.src_node_id
        if not reply.has_error():
            phase.bytes_up += payload_bytes(reply.content)
            phase.answers[node] = from_records(reply.content)
        elif node in contents:
            phase.failures[node] = failure_reason(reply)
        else:
            strays.append(failure_reason(reply))
    for node in contents:
        if node not in phase.answers and node not in phase.failures:
            phase.failures[node] = strays.pop(0) if strays else "no answer"
    return phase


def failure_reason(reply: Message) -> str:
    """The last sentence of a failing client's error, without Flower's wrapping."""
    lines = [line.strip() for line in str(reply.error.reason).splitlines() if line.strip()]
    text = lines[-1] if lines else "unknown error"
    return text.replace("Exception ClientAppException occurred. Message: ", "").removesuffix("'>")


def find_nodes(grid: Grid, timeout: float) -> tuple[list[int], bool]:
    """Wait for the nodes of the run; also tells whether they bring their own data.

    Nodes of a simulation are still being registered when a server app starts, so the first one is
    asked how many there will be. On a device that is ``num-partitions`` of the node config; without
    it the nodes that are connected take part.

    Raises
    ------
    UserError
        If no node, or fewer than announced, connect in time.
    """
    deadline = time.monotonic() + timeout
    first = _wait_for_nodes(grid, 1, deadline)[0]
    hello = run_phase(grid, {first: Content()}, "hello", timeout)
    if first not in hello.answers:
        raise UserError(f"The first client failed: {next(iter(hello.failures.values()))}")
    expected = number(hello.answers[first], "num-partitions")
    nodes = _wait_for_nodes(grid, max(expected, 1), deadline)
    return nodes, bool(hello.answers[first].values.get("own-data"))


def _wait_for_nodes(grid: Grid, count: int, deadline: float) -> list[int]:
    while len(nodes := sorted(grid.get_node_ids())) < count:
        if time.monotonic() > deadline:
            raise UserError(f"Only {len(nodes)} of {count} nodes connected in time.")
        time.sleep(0.1)
    return nodes


def number(content: Content, key: str) -> int:
    """A whole number that came with a message."""
    value = content.values.get(key)
    if not isinstance(value, int):
        raise UserError(f"A message came with no valid {key}.")
    return value
