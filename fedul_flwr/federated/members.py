"""The clients of a run: their registration, which of them take part in a round, who has failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from logging import INFO, WARNING
from typing import Any, cast

from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import Content, InputShape, count, number
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.declared import declared
from fedul_flwr.federated.grid import NO_ANSWER, Phase, RoundLog, run_phase
from fedul_flwr.federated.messages import (
    APPROVAL,
    BECAUSE,
    DESCRIBE,
    DIGEST,
    NUM_POINTS,
    SETTINGS,
    SETUP,
    SETUP_BEFORE,
    WAITING,
    client_label,
    phase_messages,
    prefix_sender,
    printable,
)
from fedul_flwr.federated.nodes import (
    OWN_DATA,
    QUIET,
    ClientRef,
    Owners,
    check_description,
    find_nodes,
    refuse_odd,
    settings_text,
)
from fedul_flwr.federated.payload import Declared, Sizes, check_answer


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
Changed = Callable[[Mapping[int, Content]], None]
"""As :meth:`ClientPolicy.accept` and :meth:`ClientPolicy.changed`."""


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
    fewest_nodes : nodes to wait for before round 1, where they are not known when it is built.
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
        self.fewest_nodes = self.fewest_sampled = 1
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

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes in which clients' parts are declared."""
        return Sizes(classes=self.num_classes, features=self._num_features)

    def fresh_model(self) -> Any:
        """The run's model, of torch, with weights drawn from the seed."""
        from fedul_flwr.models.registry import fresh_model

        return fresh_model(self.settings, self.model_shape, self.num_classes)

    def _num_features(self) -> int:
        from fedul_flwr.models.parts import feature_layer

        return int(feature_layer(self.fresh_model()).in_features)

    @cached_property
    def _declared(self) -> Declared:
        return declared(self.settings)

    def check_declared(self, phase: str, answer: Content) -> None:
        """Refuse an answer to a phase that is not as it is declared."""
        check_answer(answer, self._declared.get(phase, {}), self.sizes)

    @property
    def reports(self) -> list[ClientReport]:
        """Reports of all clients, refused ones included, by partition."""
        return [self._reports[partition] for partition in sorted(self._reports)]

    # Who takes part in the run

    def begin(self, num_rounds: int, timeout: float) -> None:
        """Begin a run of so many rounds, for which all clients have to be registered anew.

        Parameters
        ----------
        timeout : of a round, in seconds.
        """
        changed = {"num_rounds": num_rounds, "round_timeout": timeout}
        self.settings = self.settings.model_copy(update=changed)
        self.setup.values[SETTINGS] = settings_text(self.settings)
        self.clients, self.answers, self.failed = [], {}, set()

    def register_all(self, contents: Mapping[ClientRef, Content]) -> list[ClientRef]:
        """Register those of ``contents`` that the method accepts; returns the others."""
        refused = []
        for client, answer in sorted(contents.items()):
            report = ClientReport(client.partition_id, printable(client.name, 64))
            try:
                self._admit(report, answer)
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
            self._admit(report, answer)
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

    def _admit(self, report: ClientReport, answer: Content) -> None:
        self.check_declared(SETUP, answer)
        self._accept(report, answer)

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

    def points(self, client: int) -> int:
        """Number of points that a client has announced, by its number."""
        return count(self.answers[client], NUM_POINTS)

    def present(self, clients: Iterable[ClientRef]) -> list[ClientRef]:
        """Those of ``clients`` that are connected; the others are counted as failed."""
        chosen = list(clients)
        here = [client for client in chosen if client not in self._absent]
        if len(here) < len(chosen):
            gone = [str(client) for client in chosen if client in self._absent]
            why = "it has not come back since it failed"
            self.rounds.fail({name: self.rounds.record.why.get(name, why) for name in gone})
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

        def check_both(node: int, answer: Content) -> None:
            self.check_declared(name, answer)
            if check is not None:
                check(by_node[node], answer)

        asked = {node: contents[client] for node, client in by_node.items()}
        phase = run_phase(grid, asked, name, self.settings.round_timeout, check_both)
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


def unapproved(answer: Content) -> str:
    """Why an owner's client does not take part, by its answer to the setup; empty if it does."""
    if (state := answer.values.get(APPROVAL)) is None:
        return ""
    digest, because = (printable(str(answer.values.get(key, ""))) for key in (DIGEST, BECAUSE))
    why = f": {because}" if because else ""
    return f"its owner has not approved run {digest[:12]} ({printable(str(state), 20)}){why}"


class Registration:
    """Asks nodes which client they run, sends them the setup, and adds them to the registry.

    Parameters
    ----------
    registry : where they are added.
    nodes : nodes that take part in round 1, with the clients that they say they run, as
        :func:`fedul_flwr.federated.nodes.find_nodes` returns them; others may join later. By
        default they are looked for before round 1.

    Attributes
    ----------
    nodes : node ids that have taken part so far, without replaced ones.
    """

    def __init__(
        self, registry: ClientRegistry, nodes: Mapping[int, int | None] | None = None
    ) -> None:
        self.registry = registry
        self._looks, self._claimed = nodes is None, nodes or {}
        self.nodes = list(self._claimed)
        self._rounds, self._setup = registry.rounds, registry.setup
        self._owners = Owners()
        self._refused: dict[int, int | None] = {}
        """Connected nodes that were refused, with the node that has their partition, if that is the
        reason. They are asked again when they reconnect, or that node leaves."""

    @property
    def _settings(self) -> RunConfig:
        return self.registry.settings

    def update(self, grid: Grid) -> None:
        """Register clients: all nodes in the first round, later those that joined or failed."""
        registry, record = self.registry, self._rounds.record
        if registry.clients:
            self._refresh(grid)
        else:
            self.register_all(grid)
        listed = self._owners.listed.items()
        never = {name: n for name, n in listed if n not in registry.answers}
        absent = [client_label("Client", n, name) for name, n in never.items()]
        record.away += absent
        record.why.update({label: record.why.get(label, "it has not come") for label in absent})
        record.members = len(registry.clients) + len(never)

    def register_all(self, grid: Grid) -> None:
        """Send the setup to all nodes, and register those whose answers are accepted."""
        if self._looks:
            self._claimed, _ = find_nodes(grid, self._settings, self.registry.fewest_nodes)
            self.nodes = list(self._claimed)
        self._refused = {}
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
                self._rounds.record.why[str(client)] = text
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
        label = str(client or self._owners.label(node))
        log(WARNING, "%s takes no part: %s", label, reason)
        self._rounds.record.why[label] = reason.removesuffix(".")
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
            self._rounds.record.why.pop(str(client), None)
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
