"""The nodes of a run: waiting for them, and the setup sent to them before round 1."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING

from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content, count, number
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import DESCRIBE, SETTINGS
from fedul_flwr.federated.phases import run_phase


@dataclass(frozen=True)
class DataShape:
    """Shape of the inputs and names of the K classes."""

    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]


def setup_content(
    settings: RunConfig, data: DataShape, files: Mapping[str, str] | None = None
) -> Content:
    """Setup that clients get before round 1.

    It holds the settings as the server resolved them, the model's input and output, and in a
    simulation ``files``, the paths of its images and sets.
    """
    height, width, channels = data.image_shape
    content = Content(
        values={
            SETTINGS: json.dumps(settings.to_flat(), sort_keys=True),
            "height": height,
            "width": width,
            "channels": channels,
            "class-names": list(data.class_names),
        }
    )
    content.values |= files or {}
    return content


def find_nodes(grid: Grid, settings: RunConfig) -> tuple[list[int], bool]:
    """Wait for the nodes of the run; returns them, and whether they bring their own data.

    A simulation is still registering nodes when the server app starts, so the first node is asked
    for their number. On a device it comes from ``num-partitions`` of the node config; without that
    all connected nodes take part.

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
    answer = _first_answer(grid, nodes, settings)
    expected = number(answer, "num-partitions")
    nodes = _wait_for_nodes(grid, max(expected, 1), deadline)
    if len(nodes) < max(expected, 1):
        text = _too_few(len(nodes), expected, settings)
        if settings.on_client_failure == "stop" or not nodes:
            raise UserError(text)
        log(WARNING, "%s The run starts with them; others may join later.", text)
    return nodes, bool(answer.values.get("own-data"))


def _first_answer(grid: Grid, nodes: Sequence[int], settings: RunConfig) -> Content:
    """The first node's answer; if it is unusable, that of another node, all asked at once.

    Each of the two attempts waits for at most ``connect-timeout / 2``.
    """
    for asked in (nodes[:1], nodes[1:]):
        contents = dict.fromkeys(asked, Content())
        phase = run_phase(grid, contents, DESCRIBE, settings.connect_timeout / 2, _check_answer)
        for node, reason in {**phase.failures, **phase.refusals}.items():
            if settings.on_client_failure == "stop":
                raise UserError(f"The first client failed: {reason}")
            log(WARNING, "Node %s does not say who it is: %s", node, reason)
        if phase.answers:
            return phase.answers[min(phase.answers)]
    raise UserError("No client has said who it is.")


def _check_answer(node: int, answer: Content) -> None:
    del node
    count(answer, "num-partitions")


def _wait_for_nodes(grid: Grid, count: int, deadline: float) -> list[int]:
    """The nodes, once ``count`` are connected, or those connected at the deadline."""
    while len(nodes := sorted(grid.get_node_ids())) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    return nodes


def _too_few(nodes: int, expected: int, settings: RunConfig) -> str:
    return (
        f"Only {nodes} of {expected} nodes connected within connect-timeout = "
        f"{settings.connect_timeout:g} s."
    )
