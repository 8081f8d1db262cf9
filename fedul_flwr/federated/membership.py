"""Who takes part in a run: from the start, from a later round on, or again."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from logging import INFO, WARNING
from typing import Any

from flwr.common import log
from flwr.serverapp import Grid

from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.attendance import Attendance
from fedul_flwr.federated.grid import registered
from fedul_flwr.federated.messages import PREPARED_BEFORE, Content
from fedul_flwr.federated.phases import (
    NO_ANSWER,
    ClientReport,
    Member,
    count,
    number,
    numbers,
    run_phase,
)
from fedul_flwr.federated.variates import KEPT_ROUNDS
from strategies.scaffold import Scaffold


class Membership(Attendance):
    """The part of every method's strategy that hears clients before they take part."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._introductions: dict[int, Content] = {}
        """What each member answered to ``prepare``, by partition."""
        self._refused: set[int] = set()
        """Nodes that are connected, take no part, and are asked only when they have been away."""
        self._holders: dict[int, int] = {}
        """Nodes whose partition another one has, and which; asked again when that one is gone."""
        self._registered: set[int] = set()
        """Nodes with a name at the SuperLink; those that are gone too."""

    def admit(self, report: ClientReport, answer: Content) -> None:
        """Judge a client by its answer to ``prepare``; set ``report.reason`` to refuse it.

        It may be asked again: a client that was restarted is.

        Raises
        ------
        BadMessageError
            An answer that is malformed: the client has failed.
        UserError
            The run must not begin with such a client. In a run that has begun, the client is
            refused.
        """

    def admitted(self, answers: Mapping[int, Content]) -> None:
        """Look at the answers of all admitted clients, by partition, whenever one was added."""

    def assemble(self, grid: Grid) -> None:
        """Settle who takes part: at first of all nodes, later of those that came or failed."""
        if self.members:
            self.renew(grid)
        else:
            self.prepare(grid)

    def prepare(self, grid: Grid) -> None:
        """Tell clients what they need, hear from each, and settle who takes part."""
        self._registered = registered(grid)
        everyone = dict.fromkeys(self.nodes, self.introduction)
        phase = run_phase(grid, everyone, "prepare", self.settings.round_timeout, _check_answer)
        self._count_failures(phase, {})
        for partition, node in sorted(self._partitions(phase.answers).items()):
            report = ClientReport(id=partition)
            try:
                self._judge(report, phase.answers[node])
            except BadMessageError as error:
                report.reason = f"Client {partition}: {error}"
                self._fail(report.reason, 1)
            self._note(report)
            if report.reason:
                self._refused.add(node)
            else:
                self.members.append(Member(partition, node))
                self._introductions[partition] = phase.answers[node]
        if not self.members:
            raise UserError("No client can take part.")
        self._settle()
        self.record.joined = sorted(self._introductions)

    def _partitions(self, answers: Mapping[int, Content]) -> dict[int, int]:
        """Nodes by partition; of two nodes with one partition the second has to go."""
        nodes: dict[int, int] = {}
        for node in sorted(answers):
            partition = number(answers[node], "partition-id")
            if partition not in nodes:
                nodes[partition] = node
            elif self.settings.on_client_failure == "stop":
                raise UserError(f"Two nodes have partition-id {partition} in their node config.")
            else:
                self._turn_away(node, partition, nodes[partition])
                self.nodes.remove(node)
        return nodes

    def renew(self, grid: Grid) -> None:
        """Note who is gone and admit who has come, or come back; ask nobody else anything."""
        connected = set(grid.get_node_ids())
        self._refused &= connected  # who has been away may have been put right
        self._holders = {
            node: holder
            for node, holder in self._holders.items()
            if node in connected and holder in connected
        }
        for member in self.members:
            if member.node_id not in connected and member not in self._failed:
                self._failed.add(member)
                text = f"Client {member.partition_id}: its node is not connected"
                if self.settings.on_client_failure == "stop":
                    self._fail(text, 1)
                log(WARNING, text)
        known = {member.node_id for member in self.members}
        open_to = connected - self._refused - self._holders.keys()
        found = {member.node_id: member for member in self._failed if member.node_id in open_to}
        if unknown := sorted(open_to - known):
            found |= self._newcomers(grid, unknown, connected)
        if found:
            self._admit_later(grid, found)
        self._absent = frozenset(self._failed)

    def _newcomers(
        self, grid: Grid, nodes: Sequence[int], connected: Container[int]
    ) -> dict[int, Member]:
        """Which clients new nodes are; one that another node is already is refused.

        A client whose node is gone may be another node now, unless one of them is registered: a
        registered node would have come back as the same one.
        """
        self._registered |= registered(grid)
        answers = self._hear(grid, "hello", dict.fromkeys(nodes, Content()))
        seats = {member.partition_id: member.node_id for member in self.members}
        taken = {partition: node for partition, node in seats.items() if node in connected}
        found = {}
        for node in sorted(answers):
            partition = number(answers[node], "partition-id")
            if partition in taken:
                self._turn_away(node, partition, taken[partition])
            elif partition in seats and self._registered & {node, seats[partition]}:
                text = "Node %s takes no part: partition-id %s is that of a node that is gone, and "
                log(WARNING, text + "registered nodes keep theirs.", node, partition)
                self._refused.add(node)
            else:
                if partition in seats:
                    text = "Node %s says that it is client %s, which was node %s."
                    log(WARNING, text, node, partition, seats[partition])
                taken[partition] = node
                found[node] = Member(partition, node)
        return found

    def _turn_away(self, node: int, partition: int, holder: int) -> None:
        text = "Node %s takes no part: another one has its partition-id, %s."
        log(WARNING, text, node, partition)
        self._holders[node] = holder

    def _admit_later(self, grid: Grid, found: Mapping[int, Member]) -> None:
        """Prepare clients by node, and let those take part that can."""
        told, contents = self.introduction, {}
        for node, member in found.items():
            before = {PREPARED_BEFORE: member.partition_id in self._introductions}
            contents[node] = Content(told.arrays, {**told.values, **before})
        answers = self._hear(grid, "prepare", contents)
        joined = [
            member.partition_id
            for member in sorted(found.values())
            if member.node_id in answers and self._seat(member, answers[member.node_id])
        ]
        self.record.joined = joined
        if joined:
            names = ", ".join(map(str, joined))
            log(INFO, "Round %s: clients that have joined: %s", self.record.round, names)

    def _hear(self, grid: Grid, name: str, contents: Mapping[int, Content]) -> dict[int, Content]:
        """Answers to ``hello`` or ``prepare`` of nodes that are no members yet, or not sure to be.

        A node that fails is asked again before the next round. One that says nothing within
        ``connect-timeout``, or nothing of use, is not before it has been away: a node that hangs
        holds up one round, and not every one.
        """
        phase = run_phase(grid, contents, name, self.settings.connect_timeout, _check_answer)
        for node, reason in {**phase.failures, **phase.refusals}.items():
            log(WARNING, "Node %s takes no part: %s", node, reason)
        self._refused |= {node for node, reason in phase.failures.items() if reason == NO_ANSWER}
        self._refused |= phase.refusals.keys()
        return phase.answers

    def _seat(self, member: Member, answer: Content) -> bool:
        """Let one more client take part, or the same one anew; whether that went well."""
        members, introductions = self.members, dict(self._introductions)
        partition = member.partition_id
        others = [other for other in members if other.partition_id != partition]
        report = ClientReport(id=partition)
        try:
            if number(answer, "partition-id") != partition:
                raise BadMessageError("its partition-id has changed")
            self._judge(report, answer)
            if not report.reason:
                self.members = sorted([*others, member])
                self._introductions[partition] = answer
                self._settle()
        except UserError as error:  # what would have ended a run before round 1
            report.reason = str(error)
            self.members, self._introductions = members, introductions
            self._settle()
        self._note(report)
        if report.reason:
            log(WARNING, "Client %s takes no part: %s", partition, report.reason)
            self._refused.add(member.node_id)
            return False
        replaced = {known.node_id for known in members if known not in others}
        self.nodes = [node for node in self.nodes if node not in replaced | {member.node_id}]
        self.nodes.append(member.node_id)
        self._failed -= {known for known in members if known not in others}
        return True

    def _judge(self, report: ClientReport, answer: Content) -> None:
        report.num_points = count(answer, "num-points")
        self.admit(report, answer)
        if isinstance(self.base, Scaffold) and not report.reason:
            self.base.check_kept(report.id, numbers(answer, KEPT_ROUNDS))

    def _note(self, report: ClientReport) -> None:
        report.status = "dropped" if report.reason else "accepted"
        self._reports[report.id] = report

    def _settle(self) -> None:
        # A base sees only those of a round.
        if isinstance(self.base, Scaffold):
            self.base.clients = {member.node_id: member.partition_id for member in self.members}
        elif hasattr(self.base, "num_clients"):
            self.base.num_clients = len(self.members)
        self.admitted({m.partition_id: self._introductions[m.partition_id] for m in self.members})


def _check_answer(node: int, answer: Content) -> None:
    del node
    count(answer, "partition-id")
