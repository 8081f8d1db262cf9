"""The nodes of a run: waiting for them, and the setup sent to them before round 1."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from pathlib import Path
from typing import cast

from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.columns import Columns
from fedul_flwr.data.content import Content, count, number
from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.blame import about, called
from fedul_flwr.federated.grid import owner_names
from fedul_flwr.federated.messages import DESCRIBE, SETTINGS
from fedul_flwr.federated.phases import run_phase

QUIET = 5.0
"""Seconds of waiting after which the log says what is waited for."""
MOST_ASKED = 11
"""Most nodes that are asked, before the setup, how many there are: a majority of them is enough."""
NUM_PARTITIONS, OWN_DATA = "num-partitions", "own-data"
"""Values of a node's answer that must be the same for all."""


OWNERS_FILE = "FEDUL_OWNERS"
"""Environment variable: file with a line ``NUMBER NAME`` for each owner of a consortium."""


@dataclass(frozen=True)
class DataShape:
    """Shape of the points and names of the K classes.

    Attributes
    ----------
    input_shape : of a point as it is stored, before an extractor.
    class_names : K names.
    columns : columns of tables, if they are known.
    num_features : d, if an extractor replaces points by features; else 0.
    bits : of the values in 16-bit images; 0 if there are none, or that is not known.
    """

    input_shape: InputShape
    class_names: tuple[str, ...]
    columns: Columns | None = None
    num_features: int = 0
    bits: int = 0

    @property
    def model_shape(self) -> InputShape:
        """Shape of what the model takes."""
        return (self.num_features,) if self.num_features else self.input_shape

    @property
    def in_words(self) -> str:
        """How 16-bit images are read; empty if there are none."""
        if not self.bits:
            return ""
        return (
            f"Images in 16-bit files: values of {self.bits} bits, 0 to {2**self.bits - 1}, of "
            "which the upper 8 bits are taken (image-bits)."
        )

    @property
    def model_columns(self) -> Columns | None:
        """Columns of what the model takes; features of an extractor have none."""
        return None if self.num_features else self.columns


def setup_content(
    settings: RunConfig, data: DataShape, files: Mapping[str, str] | None = None
) -> Content:
    """Setup that clients get before round 1.

    It holds the settings as the server resolved them, the shape of points and of what the model
    takes, the classes, and in a simulation ``files``, the paths of its points and sets.
    """
    content = Content(
        values={
            SETTINGS: json.dumps(settings.to_flat(), sort_keys=True),
            "input-shape": list(data.input_shape),
            "model-shape": list(data.model_shape),
            "class-names": list(data.class_names),
        }
    )
    if data.columns is not None:
        content.values["columns"] = data.columns.to_json()
    content.values |= files or {}
    return content


def find_nodes(grid: Grid, settings: RunConfig) -> tuple[dict[int, int | None], bool]:
    """Wait for the nodes of the run; returns them, and whether they bring their own data.

    Each node comes with the number of its client, ``None`` if it was not asked or another node says
    that it runs the same client.

    A simulation is still registering nodes when the server app starts, so the nodes that are there
    are asked for their number. On a device it comes from ``num-partitions`` of the node config;
    without that all connected nodes take part. No single node decides: most of up to
    :data:`MOST_ASKED` do, and :func:`refuse_odd` finds those who say something else.

    Raises
    ------
    UserError
        If no node connects within ``connect-timeout``, or none answers; with
        ``on-client-failure = "stop"`` also if there are fewer than announced, or one of those that
        were asked fails.
    """
    deadline = time.monotonic() + settings.connect_timeout
    nodes = _wait_for_nodes(grid, 1, deadline)
    if not nodes:
        raise UserError(_too_few(0, 1, settings))
    asked = nodes[:MOST_ASKED]
    claims = _claims(grid, asked, settings)
    nodes = _wait_for_nodes(grid, _expected(claims), deadline)
    if others := [node for node in nodes if node not in asked][: MOST_ASKED - len(claims)]:
        claims |= _claims(grid, others, settings)
        nodes = _wait_for_nodes(grid, _expected(claims), deadline)
    if not claims:  # nodes of a busy machine may need longer than the first half of the time
        claims = _claims(grid, nodes[:MOST_ASKED], settings)
        nodes = _wait_for_nodes(grid, _expected(claims), deadline)
    if not claims:
        raise UserError(
            f"No client has said who it is within connect-timeout = {settings.connect_timeout:g} s."
        )
    expected = _expected(claims)
    if len(nodes) < expected:
        text = _too_few(len(nodes), expected, settings)
        if settings.on_client_failure == "stop" or not nodes:
            raise UserError(text)
        log(WARNING, "%s The run starts with them; others may join later.", text)
    told = {node: number(answer, "partition-id") for node, answer in claims.items()}
    times = Counter(told.values())
    clear = {node: client for node, client in told.items() if times[client] == 1}
    return {node: clear.get(node) for node in nodes}, bool(_common(OWN_DATA, claims))


def _claims(grid: Grid, nodes: Sequence[int], settings: RunConfig) -> dict[int, Content]:
    """What ``nodes`` say of themselves and of the run; waits for ``connect-timeout / 2``."""
    contents = dict.fromkeys(nodes, Content())
    phase = run_phase(grid, contents, DESCRIBE, settings.connect_timeout / 2, _check_answer)
    names = owner_names(grid)
    for node, reason in {**phase.failures, **phase.refusals}.items():
        who = called("Node", node, names.get(node, ""))
        if settings.on_client_failure == "stop":
            raise UserError(about(who, reason))
        log(WARNING, "%s does not say who it is: %s", who, reason)
    return phase.answers


def _expected(claims: Mapping[int, Content]) -> int:
    """Number of nodes to wait for, at least 1."""
    return max(1, int(_common(NUM_PARTITIONS, claims))) if claims else 1


def _common(key: str, answers: Mapping[int, Content]) -> int | bool:
    """The value of ``key`` that most of ``answers`` have; of equally frequent ones the smallest.

    A ``num-partitions`` of 0 leaves the number open and does not count where others name one.
    """
    found = [answer.values[key] for answer in answers.values()]
    known = [value for value in found if value] if key == NUM_PARTITIONS else found
    votes = Counter(cast(list[int], known or found))
    return min(votes, key=lambda value: (-votes[value], value))


def read_owners() -> dict[str, int]:
    """Number of the client of each owner, by the name under which its node is registered.

    They are in the file that :data:`OWNERS_FILE` names; without it there are none, and nodes have
    the numbers that they claim.

    Raises
    ------
    UserError
        If the file cannot be read, or a line of it is not ``NUMBER NAME``.
    """
    file = os.environ.get(OWNERS_FILE)
    if not file:
        return {}
    owners: dict[str, int] = {}
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The list of owners, {file}, cannot be read: {error}.") from None
    for line in filter(str.strip, lines):
        partition, _, name = line.strip().partition(" ")
        if not partition.isdecimal() or not name:
            raise UserError(f"The list of owners, {file}, has a line {line!r}, not NUMBER NAME.")
        owners[name.strip()] = int(partition)
    return owners


def refuse_odd(answers: Mapping[int, Content], num_nodes: int) -> dict[int, str]:
    """Nodes whose ``num-partitions`` or ``own-data`` differs from that of most, and how.

    In a simulation a client's number is that of its points, so it must be below the number of
    clients, too.

    Parameters
    ----------
    answers : to phase ``setup`` or ``describe``, by node, at least one.
    num_nodes : number of nodes of the run, where most leave the number of clients open.
    """
    odd: dict[int, str] = {}
    num_clients = int(_common(NUM_PARTITIONS, answers)) or num_nodes
    if not _common(OWN_DATA, answers):
        for node, answer in answers.items():
            if (claimed := number(answer, "partition-id")) >= num_clients:
                odd[node] = f"it says partition-id = {claimed}, and there are {num_clients} clients"
    for key in (NUM_PARTITIONS, OWN_DATA):
        common = _common(key, answers)
        for node, answer in answers.items():
            value = answer.values[key]
            if value != common and (key == OWN_DATA or value):
                odd[node] = (
                    f"it says {key} = {json.dumps(value)}, and most say {json.dumps(common)}"
                )
    return odd


def _check_answer(node: int, answer: Content) -> None:
    del node
    check_claim(answer)


def check_claim(answer: Content) -> None:
    """Check what a node says of itself and of the run.

    Raises
    ------
    BadMessageError
        If its number, the number of clients, or whether it has own data is missing.
    """
    if 0 < count(answer, NUM_PARTITIONS) <= count(answer, "partition-id"):
        raise BadMessageError("its partition-id is not below its num-partitions")
    if not isinstance(answer.values.get(OWN_DATA), bool):
        raise BadMessageError(f"A message came with no valid {OWN_DATA}.")


def _wait_for_nodes(grid: Grid, count: int, deadline: float) -> list[int]:
    """The nodes, once ``count`` are connected, or those connected at the deadline."""
    say = time.monotonic() + QUIET
    while len(nodes := sorted(grid.get_node_ids())) < count and time.monotonic() < deadline:
        if time.monotonic() > say:
            say, left = deadline, deadline - time.monotonic()
            text = "Waiting for %s of %s nodes to connect, for another %.0f s."
            log(INFO, text, count - len(nodes), count, left)
        time.sleep(0.1)
    return nodes


def _too_few(nodes: int, expected: int, settings: RunConfig) -> str:
    return (
        f"Only {nodes} of {expected} nodes connected within connect-timeout = "
        f"{settings.connect_timeout:g} s."
    )
