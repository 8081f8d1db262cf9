"""Who takes part in a round, and what becomes of clients that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import WARNING

from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import Content, step_messages
from fedul_flwr.federated.phases import ClientReport, Member, Phase, run_phase
from fedul_flwr.federated.round_record import RoundRecord

CheckAnswer = Callable[[Member, Content], None]
"""Raises a :class:`~fedul_flwr.errors.BadMessageError` to refuse what a member answered."""


class Attendance(Strategy):
    """The part of every method's strategy that deals with clients one by one.

    Parameters
    ----------
    settings : the run's settings.
    base : the strategy that aggregates.
    nodes : node ids that take part in round 1; others may join later.
    introduction : what clients are told in phase ``prepare``.
    round_offset : rounds already done, when a run resumes.

    Attributes
    ----------
    members : clients that take part, by partition; some of them may be gone.
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
        self._reports: dict[int, ClientReport] = {}
        self.record = RoundRecord(round=round_offset)
        self._failed: set[Member] = set()
        """Members that gave no answer since they were last prepared: they may know nothing."""
        self._absent: frozenset[Member] = frozenset()
        """Members that are not asked in this round."""

    @property
    def reports(self) -> list[ClientReport]:
        """What is known of every client, those that were refused too, by partition."""
        return [self._reports[partition] for partition in sorted(self._reports)]

    def sample(self, round_number: int) -> list[Member]:
        """All members, or as many as `fraction-train` says, drawn from the run's seed."""
        count = max(1, round(self.settings.fraction_train * len(self.members)))
        if count == len(self.members):
            return self.members
        return sorted(self._draw(self.members, count, "sample", round_number))

    def evaluating(self) -> list[Member]:
        """As many members as `fraction-evaluate` says, of those here: if all are, the same ones in
        every round."""
        count = max(1, round(self.settings.fraction_evaluate * len(self.members)))
        order = stream(self.settings.seed, "evaluating").permutation(len(self.members))
        members = [self.members[index] for index in order]
        return sorted([member for member in members if member not in self._absent][:count])

    def present(self, members: Iterable[Member]) -> list[Member]:
        """Those of ``members`` that can be asked in this round; the others have failed."""
        chosen = list(members)
        here = [member for member in chosen if member not in self._absent]
        if len(here) < len(chosen):
            gone = next(member for member in chosen if member in self._absent)
            text = f"Client {gone.partition_id}: it has not come back since it failed"
            self._fail(text, len(chosen) - len(here))
        return here

    def ask(
        self,
        grid: Grid,
        name: str,
        contents: Mapping[Member, Content],
        check: CheckAnswer | None = None,
    ) -> dict[Member, Content]:
        """Send extra phase ``name`` to members, to each its own content; answers by partition.

        Members without an answer, or with one that ``check`` refuses, are counted as failures, or
        stop the run.
        """
        asked = {member.node_id: member for member in self.present(contents)}
        phase = run_phase(
            grid,
            {node: contents[member] for node, member in asked.items()},
            name,
            self.settings.round_timeout,
            check and (lambda node, answer: check(asked[node], answer)),
        )
        self.record.down["phases"] += phase.bytes_down
        self.record.up["phases"] += phase.bytes_up
        self._failed.update(asked[node] for node in phase.failures)
        self._count_failures(phase, asked)
        return {
            member: phase.answers[member.node_id]
            for member in sorted(contents)
            if member.node_id in phase.answers
        }

    def tell(self, grid: Grid, name: str, members: Iterable[Member]) -> None:
        """Send phase ``name`` to members that may be gone; nobody waits for their answers."""
        nodes = [member.node_id for member in members if member not in self._absent]
        messages = step_messages(name, dict.fromkeys(nodes, Content()))
        if messages:
            grid.push_messages(messages)

    def _draw(
        self, members: Sequence[Member], count: int, purpose: str, round_number: int
    ) -> list[Member]:
        """``count`` of ``members``, by the run's seed: of those here where there are enough."""
        here = [member for member in members if member not in self._absent]
        pool = here if len(here) >= count else members
        rng = stream(self.settings.seed, purpose, round_number)
        return [pool[index] for index in rng.choice(len(pool), count, replace=False)]

    def _count_failures(self, phase: Phase, asked: Mapping[int, Member]) -> None:
        if phase.failures:
            self._fail(next(iter(phase.failures.values())), len(phase.failures))
        for node, reason in phase.refusals.items():
            name = f"Client {asked[node].partition_id}" if node in asked else f"Node {node}"
            self._fail(reason if reason.startswith(name) else f"{name}: {reason}", 1)

    def _fail(self, reason: str, count: int) -> None:
        self.record.failures += count
        text = f"{count} client(s) failed in round {self.record.round}: {reason.removesuffix('.')}"
        if self.settings.on_client_failure == "stop":
            raise UserError(f"{text} (on-client-failure = 'continue' goes on without).")
        log(WARNING, text)
