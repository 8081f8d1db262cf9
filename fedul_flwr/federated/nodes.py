"""The nodes of a run: waiting for them, and what they are told before round 1."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING

from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import Content
from fedul_flwr.federated.phases import count, number, run_phase


@dataclass(frozen=True)
class DataShape:
    """Shape of the inputs and names of the K classes."""

    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]


def setup_content(
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
