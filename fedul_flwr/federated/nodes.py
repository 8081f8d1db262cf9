"""The clients of a run: waiting for them, their registration, who is sampled, who has failed."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING
from pathlib import Path
from typing import cast

from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.columns import Columns
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Content, InputShape, count, number
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.grid import NO_ANSWER, Phase, RoundLog, owner_names, run_phase
from fedul_flwr.federated.messages import (
    APPROVAL,
    BECAUSE,
    DESCRIBE,
    DIGEST,
    SETTINGS,
    SETUP,
    SETUP_BEFORE,
    WAITING,
    client_label,
    phase_messages,
    prefix_sender,
    printable,
)


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


@dataclass
class ClientReport:
    """A client's entry in ``federation.json``; ``None`` for values that it did not share.

    ``name`` is its owner's, empty without one.
    """

    id: int
    name: str = ""
    num_points: int | None = None
    num_labeled: int | None = None
    set_sizes: list[int] | None = None
    priors: list[list[float]] | None = None
    class_counts: list[int] | None = None
    labeled_counts: list[int] | None = None
    condition_number: float | None = None
    status: str = "accepted"
    reason: str = ""


CheckAnswer = Callable[[ClientRef, Content], None]
"""Raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse a client's answer."""
Accept = Callable[[ClientReport, Content], None]
"""See :meth:`fedul_flwr.federated.strategy.Strategy.accept_client`."""
Changed = Callable[[Mapping[int, Content]], None]
"""See :meth:`fedul_flwr.federated.strategy.Strategy.on_clients_changed`."""


class ClientRegistry:
    """Clients of a run, by partition; some of them may be disconnected.

    Parameters
    ----------
    settings : the run's settings.
    setup : what clients are told in phase ``setup``.
    rounds : where failures are counted.
    accept : checks a client's answer, and fills in its report.
    changed : called with the answers of all clients whenever one was added.

    Attributes
    ----------
    clients : in the order of their partitions.
    answers : their answers to phase ``setup``, by partition.
    failed : clients that have not answered since their last setup and may have lost their state.
    fewest_sampled : fewest clients of a round, whatever `fraction-train` says.
    """

    def __init__(
        self,
        settings: RunConfig,
        setup: Content,
        rounds: RoundLog,
        accept: Accept = lambda *_: None,
        changed: Changed = lambda _: None,
    ) -> None:
        self.settings, self.setup, self.rounds = settings, setup, rounds
        self._accept, self._changed = accept, changed
        self.clients: list[ClientRef] = []
        self.answers: dict[int, Content] = {}
        self.failed: set[ClientRef] = set()
        self.fewest_sampled = 1
        self._absent: frozenset[ClientRef] = frozenset()
        self._reports: dict[int, ClientReport] = {}

    @property
    def model_shape(self) -> InputShape:
        """Shape of a point as the model takes it."""
        return tuple(cast(Sequence[int], self.setup.values["model-shape"]))

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(cast(Sequence[str], self.setup.values.get("class-names", ())))

    @property
    def reports(self) -> list[ClientReport]:
        """Reports of all clients, refused ones included, by partition."""
        return [self._reports[partition] for partition in sorted(self._reports)]

    # Who takes part in the run

    def register_all(self, contents: Mapping[ClientRef, Content]) -> list[ClientRef]:
        """Register those of ``contents`` that the method accepts; returns the others."""
        refused = []
        for client, answer in sorted(contents.items()):
            report = ClientReport(client.partition_id, printable(client.name, 64))
            try:
                self._accept(report, answer)
            except BadMessageError as error:
                reason = printable(str(error))
                report.reason = prefix_sender(str(client), reason)
                self.rounds.fail({str(client): reason})
            self._keep_report(report)
            if report.reason:
                refused.append(client)
            else:
                self.clients.append(client)
                self.answers[client.partition_id] = answer
        if not self.clients:
            raise UserError("No client can take part.", "too-few-clients")
        self._clients_changed()
        return refused

    def register(self, client: ClientRef, answer: Content) -> str:
        """Add or update one client; returns the reason if it is refused, else an empty string."""
        clients, answers = self.clients, dict(self.answers)
        partition = client.partition_id
        others = [other for other in clients if other.partition_id != partition]
        report = ClientReport(partition, printable(client.name, 64))
        try:
            if number(answer, "partition-id") != partition:
                raise BadMessageError("its partition-id has changed", "message-contradicts")
            self._accept(report, answer)
            if not report.reason:
                self.clients = sorted([*others, client])
                self.answers[partition] = answer
                self._clients_changed()
        except UserError as error:  # before round 1 this error ends the run
            report.reason = printable(str(error))
            self.clients, self.answers = clients, answers
            self._clients_changed()
        self._keep_report(report)
        if not report.reason:
            self.failed -= {previous for previous in clients if previous not in others}
        return report.reason

    def leave_out_failed(self) -> None:
        """Exclude failed clients that have not come back from this round."""
        self._absent = frozenset(self.failed)
        self.rounds.record.away = [str(client) for client in sorted(self.failed)]

    def _keep_report(self, report: ClientReport) -> None:
        report.status = "dropped" if report.reason else "accepted"
        self._reports[report.id] = report

    def _clients_changed(self) -> None:
        self._changed({c.partition_id: self.answers[c.partition_id] for c in self.clients})

    # Who takes part in a round

    def sample(self, round_number: int) -> list[ClientRef]:
        """All clients, or as many as `fraction-train` says, drawn from the run's seed."""
        size = self.sample_size
        if size == len(self.clients):
            return self.clients
        return sorted(self.draw(self.clients, size, "sample", round_number))

    @property
    def sample_size(self) -> int:
        """Number of clients of a round by `fraction-train`, at least :attr:`fewest_sampled`."""
        size = max(self.fewest_sampled, round(self.settings.fraction_train * len(self.clients)))
        return min(size, len(self.clients)) or 1

    def draw(
        self, clients: Sequence[ClientRef], size: int, purpose: str, round_number: int
    ) -> list[ClientRef]:
        """A random sample of ``size`` clients by the run's seed; prefers connected ones."""
        present = [client for client in clients if client not in self._absent]
        pool = present if len(present) >= size else clients
        rng = stream(self.settings.seed, purpose, round_number)
        return [pool[index] for index in rng.choice(len(pool), size, replace=False)]

    def evaluating(self) -> list[ClientRef]:
        """A sample of `fraction-evaluate` of the clients, preferring connected ones; the same in
        every round while all are connected."""
        size = max(1, round(self.settings.fraction_evaluate * len(self.clients)))
        order = stream(self.settings.seed, "evaluating").permutation(len(self.clients))
        clients = [self.clients[index] for index in order]
        return sorted([client for client in clients if client not in self._absent][:size])

    def present(self, clients: Iterable[ClientRef]) -> list[ClientRef]:
        """Those of ``clients`` that are connected; the others are counted as failed."""
        chosen = list(clients)
        here = [client for client in chosen if client not in self._absent]
        if len(here) < len(chosen):
            gone = [str(client) for client in chosen if client in self._absent]
            self.rounds.fail(dict.fromkeys(gone, "it has not come back since it failed"))
        return here

    # Extra phases

    def query(
        self,
        grid: Grid,
        name: str,
        contents: Mapping[ClientRef, Content],
        check: CheckAnswer | None = None,
    ) -> dict[ClientRef, Content]:
        """Send extra phase ``name`` with each client's own content; answers in partition order.

        Clients without an answer, or with one that ``check`` refuses, are counted as failures, or
        stop the run.
        """
        by_node = {client.node_id: client for client in self.present(contents)}
        phase = run_phase(
            grid,
            {node: contents[client] for node, client in by_node.items()},
            name,
            self.settings.round_timeout,
            check and (lambda node, answer: check(by_node[node], answer)),
        )
        record = self.rounds.record
        record.down["phases"] += phase.bytes_down
        record.up["phases"] += phase.bytes_up
        self.failed.update(by_node[node] for node in phase.failures)
        self.rounds.fail_phase(phase, {node: str(client) for node, client in by_node.items()})
        return {
            client: phase.answers[client.node_id]
            for client in sorted(contents)
            if client.node_id in phase.answers
        }

    def fail(self, reasons: Mapping[ClientRef, str]) -> None:
        """Count clients as failed, each for a reason that the server has found itself."""
        self.rounds.fail({str(client): reason for client, reason in sorted(reasons.items())})

    def broadcast(self, grid: Grid, name: str, clients: Iterable[ClientRef]) -> None:
        """Send phase ``name`` to clients without waiting for answers; some may be disconnected."""
        nodes = [client.node_id for client in clients if client not in self._absent]
        messages = phase_messages(name, dict.fromkeys(nodes, Content()))
        if messages:
            grid.push_messages(messages)


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


def unapproved(answer: Content) -> str:
    """Why an owner's client does not take part, by its answer to the setup; empty if it does."""
    if (state := answer.values.get(APPROVAL)) is None:
        return ""
    digest, because = (printable(str(answer.values.get(key, ""))) for key in (DIGEST, BECAUSE))
    why = f": {because}" if because else ""
    return f"its owner has not approved run {digest[:12]} ({printable(str(state), 20)}){why}"


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


class Registration:
    """Asks nodes which client they run, sends them the setup, and adds them to the registry.

    Parameters
    ----------
    registry : where they are added.
    nodes : nodes that take part in round 1, with the clients that they say they run, as
        :func:`find_nodes` returns them; others may join later.

    Attributes
    ----------
    nodes : node ids that have taken part so far, without replaced ones.
    """

    def __init__(self, registry: ClientRegistry, nodes: Mapping[int, int | None]) -> None:
        self.registry = registry
        self.nodes = list(nodes)
        self._claimed = nodes
        self._settings, self._rounds, self._setup = (
            registry.settings,
            registry.rounds,
            registry.setup,
        )
        self._owners = Owners()
        self._refused: dict[int, int | None] = {}
        """Connected nodes that were refused, with the node that has their partition, if that is the
        reason. They are asked again when they reconnect, or that node leaves."""

    def update(self, grid: Grid) -> None:
        """Register clients: all nodes in the first round, later those that joined or failed."""
        registry, record = self.registry, self._rounds.record
        if registry.clients:
            self._refresh(grid)
        else:
            self.register_all(grid)
        listed = self._owners.listed.items()
        never = {name: n for name, n in listed if n not in registry.answers}
        record.away += [client_label("Client", n, name) for name, n in never.items()]
        record.members = len(registry.clients) + len(never)

    def register_all(self, grid: Grid) -> None:
        """Send the setup to all nodes, and register those whose answers are accepted."""
        self._owners.look(grid)
        everyone = dict.fromkeys(self.nodes, self._setup)
        phase = run_phase(grid, everyone, SETUP, self._settings.round_timeout, check_description)
        self._wait_for_owners(grid, phase)
        # A node that is not registered yet is called by its client, if no other one claims that.
        labels = {node: self._owners.label(node, self._claimed.get(node)) for node in self.nodes}
        self._rounds.fail_phase(phase, labels)
        # Without those that contradict most others about the run (``num-partitions``).
        odd = refuse_odd(phase.answers, len(self.nodes)) if phase.answers else {}
        if odd:
            self._rounds.fail({labels[node]: odd[node] for node in sorted(odd)})
            self._refused |= dict.fromkeys(odd)
        answers = {node: answer for node, answer in phase.answers.items() if node not in odd}
        clients = self._clients_of(answers, {}, {})
        self.nodes = [node for node in self.nodes if node not in self._refused]
        contents = {client: answers[node] for node, client in clients.items()}
        refused = self.registry.register_all(contents)
        self._refused |= dict.fromkeys(client.node_id for client in refused)
        self._rounds.record.joined = sorted(self.registry.answers)

    def _wait_for_owners(self, grid: Grid, phase: Phase) -> None:
        """Ask clients again whose owners have not decided on this run, for `connect-timeout`.

        Afterwards they count as failed, as do those whose owners have refused.
        """
        said: set[str] = set()
        deadline = time.monotonic() + self._settings.connect_timeout
        while waiting := [
            node
            for node, answer in sorted(phase.answers.items())
            if answer.values.get(APPROVAL) == WAITING
        ]:
            for node in waiting:
                label = self._owners.label(node, self._claimed.get(node))
                text = f"{label}: {unapproved(phase.answers[node])}"
                if text not in said:
                    log(INFO, "Waiting for %s", text)
                    said.add(text)
            if time.monotonic() > deadline:
                break
            time.sleep(QUIET)
            again = {node: self._setup for node in waiting if phase.answers.pop(node)}
            timeout = self._settings.round_timeout
            phase.add(run_phase(grid, again, SETUP, timeout, check_description))
        for node, answer in [*phase.answers.items()]:
            if reason := unapproved(answer):
                phase.failures[node] = reason
                del phase.answers[node]

    def _refresh(self, grid: Grid) -> None:
        """Update which nodes are connected, and register only those that joined or came back."""
        connected, registry = set(grid.get_node_ids()), self.registry
        self._refused = {
            node: holder
            for node, holder in self._refused.items()
            if node in connected and (holder is None or holder in connected)
        }
        for client in registry.clients:
            if client.node_id not in connected and client not in registry.failed:
                registry.failed.add(client)
                text = "its node is not connected"
                if self._settings.on_client_failure == "stop":
                    self._rounds.fail({str(client): text})
                log(WARNING, "%s: %s", client, text)
        candidates = connected - self._refused.keys()
        clients = {
            client.node_id: client for client in registry.failed if client.node_id in candidates
        }
        if new := sorted(candidates - {client.node_id for client in registry.clients}):
            clients |= self._newcomers(grid, new, connected)
        if clients:
            self._register_later(grid, clients)
        registry.leave_out_failed()

    def _newcomers(
        self, grid: Grid, nodes: Sequence[int], connected: Container[int]
    ) -> dict[int, ClientRef]:
        """Clients of new nodes, as far as no other node has them."""
        self._owners.look(grid)
        answers = self._query(grid, DESCRIBE, dict.fromkeys(nodes, Content()))
        node_of = {client.partition_id: client.node_id for client in self.registry.clients}
        registered = {node: self.registry.answers[number] for number, node in node_of.items()}
        # Owners may be more than were announced.
        is_simulated = not any(answer.values[OWN_DATA] for answer in registered.values())
        odd = refuse_odd({**registered, **answers}, len(self.nodes)) if is_simulated else {}
        for node in sorted(odd.keys() & answers.keys()):
            self._refuse(node, odd[node])
            del answers[node]
        taken = {number: node for number, node in node_of.items() if node in connected}
        gone = {number: node for number, node in node_of.items() if node not in connected}
        return self._clients_of(answers, taken, gone)

    def _clients_of(
        self, answers: Mapping[int, Content], taken: Mapping[int, int], gone: Mapping[int, int]
    ) -> dict[int, ClientRef]:
        """The clients of nodes; of two nodes with one client the second is refused.

        A client may reconnect under a new node id, but a registered node keeps its id: its client
        is never another node's.
        """
        nodes, is_first = dict(taken), not self.registry.clients
        clients = {}
        for node in sorted(answers):
            partition, label = number(answers[node], "partition-id"), self._owners.label(node)
            if reason := self._owners.contradiction(node, partition):
                if is_first:
                    self._rounds.fail({label: reason})
                    self._refused[node] = None
                else:
                    self._refuse(node, reason)
            elif partition in nodes:
                holder = self._owners.label(nodes[partition])
                if is_first and self._settings.on_client_failure == "stop":
                    raise UserError(
                        f"{holder} and {label} have partition-id {partition} in their node config.",
                        "name-twice",
                    )
                text = f"{holder} has its partition-id, {partition}."
                self._refuse(node, text, holder=nodes[partition])
            elif partition in gone and self._owners.stay({node, gone[partition]}):
                text = f"partition-id {partition} is that of a node that is gone, and registered "
                self._refuse(node, text + "nodes keep theirs.")
            else:
                if partition in gone:
                    text = "%s says that it is client %s, which was node %s."
                    log(WARNING, text, label, partition, gone[partition])
                nodes[partition] = node
                clients[node] = self._owners.client(partition, node)
        return clients

    def _refuse(
        self, node: int, reason: str, client: ClientRef | None = None, holder: int | None = None
    ) -> None:
        log(WARNING, "%s takes no part: %s", client or self._owners.label(node), reason)
        self._refused[node] = holder

    def _register_later(self, grid: Grid, clients: Mapping[int, ClientRef]) -> None:
        """Send the setup to new clients, and register those that are accepted."""
        contents = {}
        for node, client in clients.items():
            before = {SETUP_BEFORE: client.partition_id in self.registry.answers}
            contents[node] = Content(self._setup.arrays, {**self._setup.values, **before})
        answers = self._query(grid, SETUP, contents)
        joined = []
        for client in sorted(clients.values()):
            node, partition = client.node_id, client.partition_id
            if node not in answers:
                continue
            replaced = {c.node_id for c in self.registry.clients if c.partition_id == partition}
            reason = unapproved(answers[node]) or self.registry.register(client, answers[node])
            if reason:
                self._refuse(node, reason, client)
                if answers[node].values.get(APPROVAL) == WAITING:
                    del self._refused[node]
                continue
            self.nodes = [other for other in self.nodes if other not in replaced | {node}] + [node]
            joined.append(partition)
        self._rounds.record.joined = joined
        if joined:
            names = ", ".join(map(str, joined))
            log(INFO, "Round %s: clients that have joined: %s", self._rounds.record.round, names)

    def _query(self, grid: Grid, name: str, contents: Mapping[int, Content]) -> dict[int, Content]:
        """Answers to ``describe`` or ``setup`` from nodes that are not registered, or to be again.

        A node that reports an error is asked again before the next round. One that does not answer
        within ``connect-timeout``, or not validly, is asked again only after a reconnect: a node
        that hangs delays one round, not every round.
        """
        phase = run_phase(grid, contents, name, self._settings.connect_timeout, check_description)
        for node, reason in phase.failures.items():
            self._refuse(node, reason)
            if reason != NO_ANSWER and node not in phase.invalid:
                del self._refused[node]
        return phase.answers
