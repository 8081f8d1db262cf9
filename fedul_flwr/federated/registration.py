"""Registration of clients: at the start, in a later round, or again after a restart."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from logging import INFO, WARNING

from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content, number
from fedul_flwr.errors import UserError
from fedul_flwr.federated.blame import called
from fedul_flwr.federated.grid import owner_names
from fedul_flwr.federated.messages import DESCRIBE, SETUP, SETUP_BEFORE
from fedul_flwr.federated.nodes import OWN_DATA, check_claim, read_owners, refuse_odd
from fedul_flwr.federated.phases import NO_ANSWER, run_phase
from fedul_flwr.federated.registry import ClientRef, ClientRegistry
from fedul_flwr.federated.round_record import RoundLog


class Registration:
    """Asks nodes which client they run, sends them the setup, and adds them to the registry.

    Parameters
    ----------
    settings : the run's settings.
    registry : where clients are kept.
    rounds : where failures are counted.
    nodes : nodes that take part in round 1, with the clients that they say they run, as
        :func:`fedul_flwr.federated.nodes.find_nodes` returns them; others may join later.
    setup : content of phase ``setup``.

    Attributes
    ----------
    nodes : node ids that have taken part so far, without replaced ones.
    """

    def __init__(
        self,
        settings: RunConfig,
        registry: ClientRegistry,
        rounds: RoundLog,
        nodes: Mapping[int, int | None],
        setup: Content,
    ) -> None:
        self.nodes = list(nodes)
        self._claimed = nodes
        self._settings, self._registry, self._rounds = settings, registry, rounds
        self._setup = setup
        self._refused: set[int] = set()
        """Connected nodes that were refused; they are asked again only after a reconnect."""
        self._holders: dict[int, int] = {}
        """Refused nodes, each with the node that has its partition; retried once that leaves."""
        self._named: dict[int, str] = {}
        """Names at the SuperLink, of all nodes so far that have one."""
        self._owners = read_owners()

    def update(self, grid: Grid) -> None:
        """Register clients: all nodes in the first round, later those that joined or failed."""
        if self._registry.clients:
            self._refresh(grid)
        else:
            self.register_all(grid)

    def register_all(self, grid: Grid) -> None:
        """Send the setup to all nodes, and register those whose answers are accepted."""
        self._named = owner_names(grid)
        everyone = dict.fromkeys(self.nodes, self._setup)
        phase = run_phase(grid, everyone, SETUP, self._settings.round_timeout, _check_answer)
        self._rounds.fail_phase(phase, {node: self._first_called(node) for node in self.nodes})
        answers = self._agreeing(phase.answers)
        nodes = self._by_partition(answers)
        refused = self._registry.register_all(
            {self._client(partition, node): answers[node] for partition, node in nodes.items()}
        )
        self._refused |= {client.node_id for client in refused}
        self._rounds.record.joined = sorted(self._registry.answers)

    def _agreeing(self, answers: Mapping[int, Content]) -> dict[int, Content]:
        """Answers without those that contradict most others about the run (``num-partitions``)."""
        odd = refuse_odd(answers, len(self.nodes)) if answers else {}
        if odd:
            self._rounds.fail({self._first_called(node): odd[node] for node in sorted(odd)})
            self._refused |= odd.keys()
            self.nodes = [node for node in self.nodes if node not in odd]
        return {node: answer for node, answer in answers.items() if node not in odd}

    def _by_partition(self, answers: Mapping[int, Content]) -> dict[int, int]:
        """Nodes by partition; of two nodes with the same partition the second is refused."""
        nodes: dict[int, int] = {}
        for node in sorted(answers):
            partition = number(answers[node], "partition-id")
            if reason := self._false_claim(node, partition):
                self._rounds.fail({self._called(node): reason})
                self._refused.add(node)
                self.nodes.remove(node)
            elif partition not in nodes:
                nodes[partition] = node
            elif self._settings.on_client_failure == "stop":
                both = f"{self._called(nodes[partition])} and {self._called(node)}"
                raise UserError(f"{both} have partition-id {partition} in their node config.")
            else:
                self._turn_away(node, partition, nodes[partition])
                self.nodes.remove(node)
        return nodes

    def _refresh(self, grid: Grid) -> None:
        """Update which nodes are connected, and register only those that joined or came back."""
        connected, registry = set(grid.get_node_ids()), self._registry
        self._refused &= connected  # a node that reconnects may have been repaired
        self._holders = {
            node: holder
            for node, holder in self._holders.items()
            if node in connected and holder in connected
        }
        for client in registry.clients:
            if client.node_id not in connected and client not in registry.failed:
                registry.failed.add(client)
                text = "its node is not connected"
                if self._settings.on_client_failure == "stop":
                    self._rounds.fail({str(client): text})
                log(WARNING, "%s: %s", client, text)
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
        """Clients of new nodes; refuses a node whose client another node already runs.

        A client may reconnect under a new node id. A registered node keeps its id, so it is never
        matched to another one.
        """
        self._named |= owner_names(grid)
        answers = self._query(grid, DESCRIBE, dict.fromkeys(nodes, Content()))
        registered = {
            client.node_id: self._registry.answers[client.partition_id]
            for client in self._registry.clients
        }
        is_simulated = not any(answer.values[OWN_DATA] for answer in registered.values())
        # Owners may be more than were announced.
        odd = refuse_odd({**registered, **answers}, len(self.nodes)) if is_simulated else {}
        node_of = {client.partition_id: client.node_id for client in self._registry.clients}
        taken = {partition: node for partition, node in node_of.items() if node in connected}
        found = {}
        for node in sorted(answers):
            partition = number(answers[node], "partition-id")
            if reason := odd.get(node) or self._false_claim(node, partition):
                log(WARNING, "%s takes no part: %s", self._called(node), reason)
                self._refused.add(node)
            elif partition in taken:
                self._turn_away(node, partition, taken[partition])
            elif partition in node_of and self._named.keys() & {node, node_of[partition]}:
                text = "%s takes no part: partition-id %s is that of a node that is gone, and "
                log(WARNING, text + "registered nodes keep theirs.", self._called(node), partition)
                self._refused.add(node)
            else:
                if partition in node_of:
                    text = "%s says that it is client %s, which was node %s."
                    log(WARNING, text, self._called(node), partition, node_of[partition])
                taken[partition] = node
                found[node] = self._client(partition, node)
        return found

    def _false_claim(self, node: int, partition: int) -> str:
        """Why a node cannot be client ``partition`` by the list of owners; empty if it can."""
        name = self._named.get(node, "")
        owner = next((owner for owner, own in self._owners.items() if own == partition), name)
        if name == owner and self._owners.get(name, partition) == partition:
            return ""
        reason = f"its node config has partition-id {partition}"
        if owner != name:
            reason += f", which is that of {owner}"
        return f"{reason}; {name} has {self._owners[name]}" if name in self._owners else reason

    def _turn_away(self, node: int, partition: int, holder: int) -> None:
        text = "%s takes no part: %s has its partition-id, %s."
        log(WARNING, text, self._called(node), self._called(holder), partition)
        self._holders[node] = holder

    def _register_later(self, grid: Grid, found: Mapping[int, ClientRef]) -> None:
        """Send the setup to new clients, and register those that are accepted."""
        contents = {}
        for node, client in found.items():
            before = {SETUP_BEFORE: client.partition_id in self._registry.answers}
            contents[node] = Content(self._setup.arrays, {**self._setup.values, **before})
        answers = self._query(grid, SETUP, contents)
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
        """Answers to ``describe`` or ``setup`` from nodes that are not registered, or to be again.

        A node that reports an error is asked again before the next round. One that does not answer
        within ``connect-timeout``, or not validly, is asked again only after a reconnect: a node
        that hangs delays one round, not every round.
        """
        phase = run_phase(grid, contents, name, self._settings.connect_timeout, _check_answer)
        for node, reason in {**phase.failures, **phase.refusals}.items():
            log(WARNING, "%s takes no part: %s", self._called(node), reason)
        self._refused |= {node for node, reason in phase.failures.items() if reason == NO_ANSWER}
        self._refused |= phase.refusals.keys()
        return phase.answers

    def _register(self, client: ClientRef, answer: Content) -> bool:
        """Add a client to the registry, or update it; returns whether it was accepted."""
        partition = client.partition_id
        before = {c.node_id for c in self._registry.clients if c.partition_id == partition}
        if reason := self._registry.register(client, answer):
            log(WARNING, "%s takes no part: %s", client, reason)
            self._refused.add(client.node_id)
            return False
        self.nodes = [node for node in self.nodes if node not in before | {client.node_id}]
        self.nodes.append(client.node_id)
        return True

    def _client(self, partition: int, node: int) -> ClientRef:
        return ClientRef(partition, node, self._named.get(node, ""))

    def _called(self, node: int) -> str:
        return called("Node", node, self._named.get(node, ""))

    def _first_called(self, node: int) -> str:
        """A node's name before it is registered: that of its client, if no other one claims it."""
        client = self._claimed.get(node)
        if client is None:
            return self._called(node)
        return called("Client", client, self._named.get(node, ""))


def _check_answer(node: int, answer: Content) -> None:
    del node
    check_claim(answer)
