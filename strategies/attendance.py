"""Who takes part in a run and in a round, and what becomes of clients that fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from logging import WARNING

from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedul_flwr.bridge import Content, step_messages
from fedul_flwr.config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.errors import UserError
from fedul_flwr.federation import ClientReport, Member, Phase, number, run_phase
from strategies.round_record import RoundRecord


class Attendance(Strategy):
    """The part of every method's strategy that deals with clients one by one.

    Parameters
    ----------
    settings : the run's settings.
    base : the strategy that aggregates.
    nodes : node ids that take part.
    introduction : what clients are told in phase ``prepare``.
    round_offset : rounds already done, when a run resumes.
    """

    def __init__(
        self,
        settings: RunConfig,
        base: Strategy,
        nodes: Iterable[int],
        introduction: Content,
        round_offset: int,
    ) -> None:
        self.settings = settings
        self.base = base
        self.nodes = list(nodes)
        self.introduction = introduction
        self.round_offset = round_offset
        self.members: list[Member] = []
        self.reports: list[ClientReport] = []
        self.record = RoundRecord(round=round_offset)

    def admit(self, report: ClientReport, answer: Content) -> None:
        """Judge a client by its answer to ``prepare``; set ``report.reason`` to refuse it."""

    def admitted(self, answers: Mapping[int, Content]) -> None:
        """Look at the answers of all admitted clients, by partition, before round 1."""

    def prepare(self, grid: Grid) -> None:
        """Tell clients what they need, hear from each, and settle who takes part."""
        answers: dict[int, Content] = {}
        nodes: dict[int, int] = {}
        everyone = dict.fromkeys(self.nodes, self.introduction)
        for node, answer in self._ask_nodes(grid, "prepare", everyone).answers.items():
            partition = number(answer, "partition-id")
            if partition in answers:
                raise UserError(f"Two nodes have partition-id {partition} in their node config.")
            answers[partition], nodes[partition] = answer, node
        for partition in sorted(answers):
            report = ClientReport(id=partition, num_points=number(answers[partition], "num-points"))
            self.admit(report, answers[partition])
            report.status = "dropped" if report.reason else "accepted"
            self.reports.append(report)
            if not report.reason:
                self.members.append(Member(partition, nodes[partition]))
        if not self.members:
            raise UserError("No client can take part.")
        taking_part = [member.partition_id for member in self.members]
        if hasattr(self.base, "num_clients"):  # it sees only those of a round
            self.base.num_clients = len(self.members)
        self.admitted({partition: answers[partition] for partition in taking_part})

    def sample(self, round_number: int) -> list[Member]:
        """Members of a round, drawn from the run's seed by partition."""
        count = max(1, round(self.settings.fraction_train * len(self.members)))
        if count == len(self.members):
            return self.members
        rng = stream(self.settings.seed, "sample", round_number)
        chosen = rng.choice(len(self.members), count, replace=False)
        return [self.members[index] for index in sorted(chosen)]

    def ask(
        self, grid: Grid, name: str, contents: Mapping[Member, Content]
    ) -> dict[Member, Content]:
        """Send extra phase ``name`` to members, to each its own content; answers by partition.

        Members without an answer are counted as failures, or stop the run.
        """
        asked = {member.node_id: content for member, content in contents.items()}
        phase = self._ask_nodes(grid, name, asked)
        self.record.down["phases"] += phase.bytes_down
        self.record.up["phases"] += phase.bytes_up
        return {
            member: phase.answers[member.node_id]
            for member in sorted(contents)
            if member.node_id in phase.answers
        }

    def tell(self, grid: Grid, name: str, members: Iterable[Member]) -> None:
        """Send phase ``name`` to members that may be gone; nobody waits for their answers."""
        messages = step_messages(name, {member.node_id: Content() for member in members})
        if messages:
            grid.push_messages(messages)

    def _ask_nodes(self, grid: Grid, name: str, contents: Mapping[int, Content]) -> Phase:
        phase = run_phase(grid, contents, name, self.settings.round_timeout)
        if phase.failures:
            self._fail(next(iter(phase.failures.values())), len(phase.failures))
        return phase

    def _fail(self, reason: str, count: int) -> None:
        self.record.failures += count
        text = f"{count} client(s) failed in round {self.record.round}: {reason}"
        if self.settings.on_client_failure == "stop":
            raise UserError(f"{text} (on-client-failure = 'continue' goes on without).")
        log(WARNING, text)
