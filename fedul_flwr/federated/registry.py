"""The clients of a run: who they are, who is sampled, and who has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.serverapp import Grid

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Content, number
from fedul_flwr.data.seeds import stream
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.blame import about, called, printable
from fedul_flwr.federated.messages import phase_messages
from fedul_flwr.federated.phases import run_phase
from fedul_flwr.federated.round_record import RoundLog


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
        return called("Client", self.partition_id, self.name)


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
"""See :meth:`fedul_flwr.federated.strategy.MethodStrategy.accept_client`."""
Changed = Callable[[Mapping[int, Content]], None]
"""See :meth:`fedul_flwr.federated.strategy.MethodStrategy.on_clients_changed`."""


class ClientRegistry:
    """Clients of a run, by partition; some of them may be disconnected.

    Parameters
    ----------
    settings : the run's settings.
    rounds : where failures are counted.
    accept : checks a client's answer, and fills in its report.
    changed : called with the answers of all clients whenever one was added.

    Attributes
    ----------
    clients : in the order of their partitions.
    answers : their answers to phase ``setup``, by partition.
    failed : clients that have not answered since their last setup and may have lost their state.
    """

    def __init__(
        self, settings: RunConfig, rounds: RoundLog, accept: Accept, changed: Changed
    ) -> None:
        self._settings, self._rounds = settings, rounds
        self._accept, self._changed = accept, changed
        self.clients: list[ClientRef] = []
        self.answers: dict[int, Content] = {}
        self.failed: set[ClientRef] = set()
        self._absent: frozenset[ClientRef] = frozenset()
        self._reports: dict[int, ClientReport] = {}

    @property
    def reports(self) -> list[ClientReport]:
        """Reports of all clients, refused ones included, by partition."""
        return [self._reports[partition] for partition in sorted(self._reports)]

    # Who takes part in the run

    def register_all(self, found: Mapping[ClientRef, Content]) -> list[ClientRef]:
        """Register those of ``found`` that the method accepts; returns the others.

        Raises
        ------
        UserError
            If no client is left, or the method cannot begin with one of them.
        """
        refused = []
        for client, answer in sorted(found.items()):
            report = ClientReport(client.partition_id, printable(client.name, 64))
            try:
                self._accept(report, answer)
            except BadMessageError as error:
                reason = printable(str(error))
                report.reason = about(str(client), reason)
                self._rounds.fail({str(client): reason})
            self._note(report)
            if report.reason:
                refused.append(client)
            else:
                self.clients.append(client)
                self.answers[client.partition_id] = answer
        if not self.clients:
            raise UserError("No client can take part.")
        self._tell()
        return refused

    def register(self, client: ClientRef, answer: Content) -> str:
        """Add or update one client; returns the reason if it is refused, else an empty string."""
        clients, answers = self.clients, dict(self.answers)
        partition = client.partition_id
        others = [other for other in clients if other.partition_id != partition]
        report = ClientReport(partition, printable(client.name, 64))
        try:
            if number(answer, "partition-id") != partition:
                raise BadMessageError("its partition-id has changed")
            self._accept(report, answer)
            if not report.reason:
                self.clients = sorted([*others, client])
                self.answers[partition] = answer
                self._tell()
        except UserError as error:  # before round 1 this error ends the run
            report.reason = printable(str(error))
            self.clients, self.answers = clients, answers
            self._tell()
        self._note(report)
        if not report.reason:
            self.failed -= {known for known in clients if known not in others}
        return report.reason

    def leave_out_failed(self) -> None:
        """Exclude failed clients that have not come back from this round."""
        self._absent = frozenset(self.failed)
        self._rounds.record.away = [str(client) for client in sorted(self.failed)]

    def _note(self, report: ClientReport) -> None:
        report.status = "dropped" if report.reason else "accepted"
        self._reports[report.id] = report

    def _tell(self) -> None:
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
        """Number of clients of a round by `fraction-train`, at least one."""
        return max(1, round(self._settings.fraction_train * len(self.clients)))

    def draw(
        self, clients: Sequence[ClientRef], size: int, purpose: str, round_number: int
    ) -> list[ClientRef]:
        """A random sample of ``size`` clients by the run's seed; prefers connected ones."""
        present = [client for client in clients if client not in self._absent]
        pool = present if len(present) >= size else clients
        rng = stream(self._settings.seed, purpose, round_number)
        return [pool[index] for index in rng.choice(len(pool), size, replace=False)]

    def evaluating(self) -> list[ClientRef]:
        """A sample of `fraction-evaluate` of the clients, preferring connected ones; the same in
        every round while all are connected."""
        size = max(1, round(self._settings.fraction_evaluate * len(self.clients)))
        order = stream(self._settings.seed, "evaluating").permutation(len(self.clients))
        clients = [self.clients[index] for index in order]
        return sorted([client for client in clients if client not in self._absent][:size])

    def present(self, clients: Iterable[ClientRef]) -> list[ClientRef]:
        """Those of ``clients`` that are connected; the others are counted as failed."""
        chosen = list(clients)
        here = [client for client in chosen if client not in self._absent]
        if len(here) < len(chosen):
            gone = [str(client) for client in chosen if client in self._absent]
            self._rounds.fail(dict.fromkeys(gone, "it has not come back since it failed"))
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
        asked = {client.node_id: client for client in self.present(contents)}
        phase = run_phase(
            grid,
            {node: contents[client] for node, client in asked.items()},
            name,
            self._settings.round_timeout,
            check and (lambda node, answer: check(asked[node], answer)),
        )
        record = self._rounds.record
        record.down["phases"] += phase.bytes_down
        record.up["phases"] += phase.bytes_up
        self.failed.update(asked[node] for node in phase.failures)
        self._rounds.fail_phase(phase, {node: str(client) for node, client in asked.items()})
        return {
            client: phase.answers[client.node_id]
            for client in sorted(contents)
            if client.node_id in phase.answers
        }

    def fail(self, reasons: Mapping[ClientRef, str]) -> None:
        """Count clients as failed, each for a reason that the server has found itself."""
        self._rounds.fail({str(client): reason for client, reason in sorted(reasons.items())})

    def broadcast(self, grid: Grid, name: str, clients: Iterable[ClientRef]) -> None:
        """Send phase ``name`` to clients without waiting for answers; some may be disconnected."""
        nodes = [client.node_id for client in clients if client not in self._absent]
        messages = phase_messages(name, dict.fromkeys(nodes, Content()))
        if messages:
            grid.push_messages(messages)
