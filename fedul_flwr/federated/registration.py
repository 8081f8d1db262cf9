"""How clients come into a run: from the start, from a later round on, or again."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from logging import INFO, WARNING

from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.errors import UserError
from fedul_flwr.federated.grid import registered
from fedul_flwr.federated.messages import PREPARED_BEFORE, Content
from fedul_flwr.federated.phases import NO_ANSWER, count, number, run_phase
from fedul_flwr.federated.registry import ClientRef, ClientRegistry
from fedul_flwr.federated.round_record import RoundLog


class Registration:
    """Asks nodes who they are, sets them up, and puts them into the registry.

    Parameters
    ----------
    settings : the run's settings.
    registry : where clients are kept.
    rounds : where failures are counted.
    nodes : node ids that take part in round 1; others may join later.
    setup : what clients are told in phase ``prepare``.

    Attributes
    ----------
    nodes : node ids that have taken part so far, without those that were replaced.
    """

    def __init__(
        self,
        settings: RunConfig,
        registry: ClientRegistry,
        rounds: RoundLog,
        nodes: Iterable[int],
        setup: Content,
    ) -> None:
        self.nodes = list(nodes)
        self._settings, self._registry, self._rounds = settings, registry, rounds
        self._setup = setup
        self._refused: set[int] = set()
        """Nodes that are connected, take no part, and are asked only when they have been away."""
        self._holders: dict[int, int] = {}
        """Nodes whose partition another one has, and which; asked again when that one is gone."""
        self._named: set[int] = set()
        """Nodes with a name at the SuperLink; those that are gone too."""

    def update(self, grid: Grid) -> None:
        """Settle who takes part: at first of all nodes, later of those that came or failed."""
        if self._registry.clients:
            self._refresh(grid)
        else:
            self.register_all(grid)

    def register_all(self, grid: Grid) -> None:
        """Tell all nodes what they need, hear from each, and settle who takes part."""
        self._named = registered(grid)
        everyone = dict.fromkeys(self.nodes, self._setup)
        phase = run_phase(grid, everyone, "prepare", self._settings.round_timeout, _check_answer)
        self._rounds.fail_phase(phase, {})
        nodes = self._by_partition(phase.answers)
        refused = self._registry.register_all(
            {ClientRef(partition, node): phase.answers[node] for partition, node in nodes.items()}
        )
        self._refused |= {client.node_id for client in refused}
        self._rounds.record.joined = sorted(self._registry.answers)

    def _by_partition(self, answers: Mapping[int, Content]) -> dict[int, int]:
        """Nodes by partition; of two nodes with one partition the second has to go."""
        nodes: dict[int, int] = {}
        for node in sorted(answers):
            partition = number(answers[node], "partition-id")
            if partition not in nodes:
                nodes[partition] = node
            elif self._settings.on_client_failure == "stop":
                raise UserError(f"Two nodes have partition-id {partition} in their node config.")
            else:
                self._turn_away(node, partition, nodes[partition])
                self.nodes.remove(node)
        return nodes

    def _refresh(self, grid: Grid) -> None:
        """Note who is gone and register who has come, or come back; ask nobody else anything."""
        connected, registry = set(grid.get_node_ids()), self._registry
        self._refused &= connected  # who has been away may have been put right
        self._holders = {
            node: holder
            for node, holder in self._holders.items()
            if node in connected and holder in connected
        }
        for client in registry.clients:
            if client.node_id not in connected and client not in registry.failed:
                registry.failed.add(client)
                text = f"Client {client.partition_id}: its node is not connected"
                if self._settings.on_client_failure == "stop":
                    self._rounds.fail(text)
                log(WARNING, text)
        known = {client.node_id for client in registry.clients}
        candidates = connected - self._refused - self._holders.keys()
        found = {
            client.node_id: client for client in registry.failed if client.node_id in candidates
        }
        if unknown := sorted(candidates - known):
            found |= self._newcomers(grid, unknown, connected)
        if found:
            self._register_later(grid, found)
        registry.leave_out_failed()

    def _newcomers(
        self, grid: Grid, nodes: Sequence[int], connected: Container[int]
    ) -> dict[int, ClientRef]:
        """Which clients new nodes are; one that another node is already is refused.

        A client may reconnect under a new node id. A registered node keeps its id, so it is never
        matched to another one.
        """
        self._named |= registered(grid)
        answers = self._query(grid, "hello", dict.fromkeys(nodes, Content()))
        node_of = {client.partition_id: client.node_id for client in self._registry.clients}
        taken = {partition: node for partition, node in node_of.items() if node in connected}
        found = {}
        for node in sorted(answers):
            partition = number(answers[node], "partition-id")
            if partition in taken:
                self._turn_away(node, partition, taken[partition])
            elif partition in node_of and self._named & {node, node_of[partition]}:
                text = "Node %s takes no part: partition-id %s is that of a node that is gone, and "
                log(WARNING, text + "registered nodes keep theirs.", node, partition)
                self._refused.add(node)
            else:
                if partition in node_of:
                    text = "Node %s says that it is client %s, which was node %s."
                    log(WARNING, text, node, partition, node_of[partition])
                taken[partition] = node
                found[node] = ClientRef(partition, node)
        return found

    def _turn_away(self, node: int, partition: int, holder: int) -> None:
        text = "Node %s takes no part: another one has its partition-id, %s."
        log(WARNING, text, node, partition)
        self._holders[node] = holder

    def _register_later(self, grid: Grid, found: Mapping[int, ClientRef]) -> None:
        """Set up clients by node, and let those take part that can."""
        contents = {}
        for node, client in found.items():
            before = {PREPARED_BEFORE: client.partition_id in self._registry.answers}
            contents[node] = Content(self._setup.arrays, {**self._setup.values, **before})
        answers = self._query(grid, "prepare", contents)
        joined = [
            client.partition_id
            for client in sorted(found.values())
            if client.node_id in answers and self._register(client, answers[client.node_id])
        ]
        self._rounds.record.joined = joined
        if joined:
            names = ", ".join(map(str, joined))
            log(INFO, "Round %s: clients that have joined: %s", self._rounds.record.round, names)

    def _query(self, grid: Grid, name: str, contents: Mapping[int, Content]) -> dict[int, Content]:
        """Answers to ``hello`` or ``prepare`` of nodes that are no clients yet, or not sure to be.

        A node that fails is asked again before the next round. One that says nothing within
        ``connect-timeout``, or nothing of use, is not before it has been away: a node that hangs
        holds up one round, and not every one.
        """
        phase = run_phase(grid, contents, name, self._settings.connect_timeout, _check_answer)
        for node, reason in {**phase.failures, **phase.refusals}.items():
            log(WARNING, "Node %s takes no part: %s", node, reason)
        self._refused |= {node for node, reason in phase.failures.items() if reason == NO_ANSWER}
        self._refused |= phase.refusals.keys()
        return phase.answers

    def _register(self, client: ClientRef, answer: Content) -> bool:
        """Let one more client take part, or the same one anew; whether that went well."""
        partition = client.partition_id
        before = {c.node_id for c in self._registry.clients if c.partition_id == partition}
        if number(answer, "partition-id") == partition:
            reason = self._registry.register(client, answer)
        else:
            reason = self._registry.refuse(client, "its partition-id has changed")
        if reason:
            log(WARNING, "Client %s takes no part: %s", partition, reason)
            self._refused.add(client.node_id)
            return False
        self.nodes = [node for node in self.nodes if node not in before | {client.node_id}]
        self.nodes.append(client.node_id)
        return True


def _check_answer(node: int, answer: Content) -> None:
    del node
    count(answer, "partition-id")
