"""Nodes before they are clients: waiting for them, what most of them say, whose they are."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING
from pathlib import Path
from typing import cast

from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.columns import Columns
from fedul_flwr.data.types import Content, InputShape, count, number
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.grid import owner_names, run_phase
from fedul_flwr.federated.messages import DESCRIBE, SETTINGS, client_label, prefix_sender


@dataclass(frozen=True, order=True)
class ClientRef:
    """A client and the node it runs on, ordered by partition (node ids are random).

    ``name`` is its owner's at the SuperLink, empty without one.
    """

    partition_id: int
    node_id: int
    name: str = field(default="", compare=False)

    def __str__(self) -> str:
        """``Client 3``, or ``Client 3 (st-mary)``."""
        return client_label("Client", self.partition_id, self.name)


QUIET = 5.0
"""Seconds of waiting after which the log says what is waited for."""
MAX_QUERIED = 11
"""Most nodes that are asked, before the setup, how many there are: a majority of them is enough."""
NUM_PARTITIONS, OWN_DATA = "num-partitions", "own-data"
"""Values of a node's answer that must be the same for all."""


OWNERS_FILE = "FEDUL_OWNERS"
"""Environment variable: file with a line ``NUMBER NAME`` for each owner of a consortium. It decides
how many nodes a run waits for, and who is who."""


@dataclass(frozen=True)
class DataShape:
    """Shape of the points and names of the K classes.

    Attributes
    ----------
    input_shape : of a point as it is stored, before an extractor.
    class_names : K names.
    columns : columns of tables, if they are known.
    num_features : d, if an extractor replaces points by features; else 0.
    bits : of the values of images (`image-bits`); 0 if they are those of 8-bit images, or not
        known.
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
        """How images of other bits than 8 are read; empty if there are none."""
        if not self.bits:
            return ""
        values = f"values of {self.bits} bits, 0 to {2**self.bits - 1}"
        if self.bits < 8:
            return f"Images: {values}, which are spread over 0 to 255 (image-bits)."
        return (
            f"Images in 16-bit files: {values}, of which the upper 8 bits are taken (image-bits)."
        )

    @property
    def model_columns(self) -> Columns | None:
        """Columns of what the model takes; features of an extractor have none."""
        return None if self.num_features else self.columns


def settings_text(settings: RunConfig) -> str:
    """Settings as clients get them: flat, as JSON."""
    return json.dumps(settings.to_flat(), sort_keys=True)


def setup_content(
    settings: RunConfig, data: DataShape, files: Mapping[str, str] | None = None
) -> Content:
    """Setup that clients get before round 1.

    It holds the settings as the server resolved them, the shape of points and of what the model
    takes, the classes, and in a simulation ``files``, the paths of its points and sets.
    """
    content = Content(
        values={
            SETTINGS: settings_text(settings),
            "input-shape": list(data.input_shape),
            "model-shape": list(data.model_shape),
            "class-names": list(data.class_names),
        }
    )
    if data.columns is not None:
        content.values["columns"] = data.columns.to_json()
    content.values |= files or {}
    return content


def find_nodes(
    grid: Grid, settings: RunConfig, fewest: int = 1
) -> tuple[dict[int, int | None], bool]:
    """Wait for ``fewest`` nodes or more; returns them, and whether they bring their own data.

    Each node comes with the number of its client, ``None`` if it was not asked or another node says
    that it runs the same client. How many nodes there will be says the list of owners, or
    ``num-partitions`` of most of up to :data:`MAX_QUERIED` nodes; without both, all that are
    connected take part. :func:`refuse_odd` finds nodes that say something else.
    """
    deadline = time.monotonic() + settings.connect_timeout
    nodes = _wait_for_nodes(grid, fewest, deadline)
    claims: dict[int, Content] = {}
    queried: set[int] = set()
    while others := [node for node in nodes if node not in queried][: MAX_QUERIED - len(claims)]:
        answers, lost = _descriptions(grid, others, settings, deadline)
        claims |= answers
        queried |= {*others} - lost
        nodes = _wait_for_nodes(grid, _expected(claims), deadline)
        if time.monotonic() > deadline and not lost:
            break
    if nodes and not claims:  # on a busy machine they may need longer than half of the time
        claims, _ = _descriptions(grid, nodes[:MAX_QUERIED], settings, deadline)
        nodes = _wait_for_nodes(grid, _expected(claims), deadline)
    time_out = f"within connect-timeout = {settings.connect_timeout:g} s."
    if nodes and not claims:
        raise UserError(f"No client has said who it is {time_out}", "client-silent")
    expected = max(fewest, _expected(claims))
    if len(nodes) < expected:
        text = f"Only {len(nodes)} of {expected} nodes connected {time_out}"
        if settings.on_client_failure == "stop" or not nodes:
            raise UserError(text, "too-few-clients")
        log(WARNING, "%s The run starts with them; others may join later.", text)
    partitions = {node: number(answer, "partition-id") for node, answer in claims.items()}
    times = Counter(partitions.values())
    clear = {node: client for node, client in partitions.items() if times[client] == 1}
    return {node: clear.get(node) for node in nodes}, bool(_common(OWN_DATA, claims))


def _descriptions(
    grid: Grid, nodes: Sequence[int], settings: RunConfig, deadline: float
) -> tuple[dict[int, Content], set[int]]:
    """What ``nodes`` say of themselves and of the run, within ``connect-timeout / 2``.

    Also returns the nodes to ask again. With ``on-client-failure = "stop"`` these are the ones that
    the SuperLink has lost, until the deadline: after its restart SuperNodes take a while to return.
    """
    contents = dict.fromkeys(nodes, Content())
    phase = run_phase(grid, contents, DESCRIBE, settings.connect_timeout / 2, check_description)
    names = owner_names(grid)
    stop = settings.on_client_failure == "stop"
    waits = stop and time.monotonic() < deadline
    for node, reason in phase.failures.items():
        if waits and node in phase.unavailable:
            continue
        sender = client_label("Node", node, names.get(node, ""))
        if stop:
            raise UserError(prefix_sender(sender, reason), "client-failed")
        log(WARNING, "%s does not say who it is: %s", sender, reason)
    lost = phase.unavailable if waits else set()
    if lost:
        log(INFO, "Waiting for %s nodes that the SuperLink has lost.", len(lost))
        time.sleep(1)
    return phase.answers, lost


def _expected(claims: Mapping[int, Content]) -> int:
    """Number of nodes to wait for, at least 1."""
    if owners := listed_owners():
        return len(owners)
    return max(1, int(_common(NUM_PARTITIONS, claims))) if claims else 1


def _common(key: str, answers: Mapping[int, Content]) -> int | bool:
    """The value of ``key`` that most of ``answers`` have; of equally frequent ones the smallest.

    A ``num-partitions`` of 0 leaves the number open and does not count where others name one.
    """
    values = [answer.values[key] for answer in answers.values()]
    nonzero = [value for value in values if value] if key == NUM_PARTITIONS else values
    votes = Counter(cast(list[int], nonzero or values))
    return min(votes, key=lambda value: (-votes[value], value))


def listed_owners() -> dict[str, int]:
    """Owners of this server's consortium, as :func:`read_owners`; empty where there is no list."""
    file = os.environ.get(OWNERS_FILE)
    return read_owners(file) if file else {}


def read_owners(file: str | Path) -> dict[str, int]:
    """Number of the client of each owner, by the name under which its node is registered.

    Lines that begin with ``#`` are of owners who have left.
    """
    owners: dict[str, int] = {}
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"The list of owners, {file}, cannot be read: {error}.", "owners-list-wrong"
        ) from None
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        partition, _, name = line.strip().partition(" ")
        if not partition.isdecimal() or not name:
            raise UserError(
                f"The list of owners, {file}, has a line {line!r}, not NUMBER NAME.",
                "owners-list-wrong",
            )
        owners[name.strip()] = int(partition)
    return owners


def refuse_odd(answers: Mapping[int, Content], num_nodes: int) -> dict[int, str]:
    """Nodes whose ``num-partitions`` or ``own-data`` differs from that of most, and how.

    With a list of owners ``num-partitions`` says nothing. In a simulation a client's number is
    that of its points, so it must be below the number of clients, too: that of most answers (at
    least one), or ``num_nodes`` where most leave it open.
    """
    odd: dict[int, str] = {}
    num_clients = int(_common(NUM_PARTITIONS, answers)) or num_nodes
    if not _common(OWN_DATA, answers):
        for node, answer in answers.items():
            if (claimed := number(answer, "partition-id")) >= num_clients:
                odd[node] = f"it says partition-id = {claimed}, and there are {num_clients} clients"
    for key in (OWN_DATA,) if listed_owners() else (NUM_PARTITIONS, OWN_DATA):
        common = _common(key, answers)
        for node, answer in answers.items():
            value = answer.values[key]
            if value != common and (key == OWN_DATA or value):
                odd[node] = (
                    f"it says {key} = {json.dumps(value)}, and most say {json.dumps(common)}"
                )
    return odd


def check_description(_node: int, answer: Content) -> None:
    """Check what a node says of itself and of the run."""
    if 0 < count(answer, NUM_PARTITIONS) <= count(answer, "partition-id"):
        raise BadMessageError(
            "its partition-id is not below its num-partitions", "message-contradicts"
        )
    if not isinstance(answer.values.get(OWN_DATA), bool):
        raise BadMessageError(f"A message came with no valid {OWN_DATA}.")


def _wait_for_nodes(grid: Grid, count: int, deadline: float) -> list[int]:
    """The nodes, once ``count`` are connected, or those connected at the deadline."""
    next_notice = time.monotonic() + QUIET
    while len(nodes := sorted(grid.get_node_ids())) < count and time.monotonic() < deadline:
        if time.monotonic() > next_notice:
            next_notice, left = deadline, deadline - time.monotonic()
            text = "Waiting for %s of %s nodes to connect, for another %.0f s."
            log(INFO, text, count - len(nodes), count, left)
        time.sleep(0.1)
    return nodes


class Owners:
    """Who nodes are: their names at the SuperLink, and the list of owners with their numbers.

    Attributes
    ----------
    listed : number of the client of each owner; empty where there is no list, and nodes have the
        numbers that they claim.
    """

    def __init__(self) -> None:
        self.listed = listed_owners()
        self._names: dict[int, str] = {}

    def look(self, grid: Grid) -> None:
        """Look for new names, and for owners who were added since."""
        self._names |= owner_names(grid)
        self.listed = listed_owners()

    def client(self, partition: int, node: int) -> ClientRef:
        """Client ``partition`` on a node."""
        return ClientRef(partition, node, self._names.get(node, ""))

    def label(self, node: int, client: int | None = None) -> str:
        """What a node is called; by the number of its client where that is not None."""
        name = self._names.get(node, "")
        return (
            client_label("Node", node, name)
            if client is None
            else client_label("Client", client, name)
        )

    def stay(self, nodes: set[int]) -> bool:
        """Whether one of ``nodes`` is registered by name, and so never replaced by another."""
        return not nodes.isdisjoint(self._names)

    def contradiction(self, node: int, partition: int) -> str:
        """Why a node cannot be client ``partition`` by the list; empty if it can.

        Without keys no node has a name, and only the number is checked.
        """
        name = self._names.get(node, "")
        owner = next((owner for owner, number in self.listed.items() if number == partition), "")
        if not self.listed or (owner and (owner == name or not self._names)):
            return ""
        reason = f"its node config has partition-id {partition}, which is that of "
        reason += owner or "nobody in the list of owners"
        return f"{reason}; {name} has {self.listed[name]}" if name in self.listed else reason
