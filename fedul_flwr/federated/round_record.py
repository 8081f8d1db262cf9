"""Record of a round: traffic, metrics and failed clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging import WARNING

from flwr.common import log

from fedul_flwr.errors import UserError
from fedul_flwr.federated.grid import Phase
from fedul_flwr.federated.messages import prefix_sender

_MOST_NAMED = 20
"""Most clients that one line of the log names."""


@dataclass
class RoundRecord:
    """Record of one round, for ``metrics.jsonl``.

    Attributes
    ----------
    model_bytes, model_values : payload of one dense model in bytes, and its number of values.
    sampled : number of clients sampled for training.
    clients : number of clients that took part: their replies are valid.
    failures : number of failures among those asked, and in extra phases.
    failed : who has failed, each with the last reason.
    away : clients that were not connected when the round began.
    joined : partitions of the clients that joined or rejoined in this round.
    down, up : bytes to and from all clients together, by part: the name of the record of arrays
        (``model`` for the model's), ``phases``, ``evaluation``, ``other``.
    nonzero_down, nonzero_up : number of values sent because they differ from the receiver's, by
        part; counted only by methods that send sparse differences.
    released_down : the number to clients as the FedMatch authors' code counts it.
    metrics : means over clients, from the base.
    heldout_loss : median over clients, if measured.
    heldout_losses : number and held-out loss of each client that measured one.
    spans : start and end of each client's training, in seconds.
    """

    round: int
    model_bytes: int = 0
    model_values: int = 0
    sampled: int = 0
    clients: int = 0
    failures: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    away: list[str] = field(default_factory=list)
    joined: list[int] = field(default_factory=list)
    down: Counter[str] = field(default_factory=Counter)
    up: Counter[str] = field(default_factory=Counter)
    nonzero_down: Counter[str] = field(default_factory=Counter)
    nonzero_up: Counter[str] = field(default_factory=Counter)
    released_down: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    heldout_loss: float | None = None
    heldout_losses: list[tuple[int, float]] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)

    @property
    def bytes_down(self) -> int:
        """Bytes to clients, all parts together."""
        return self.down.total()

    @property
    def bytes_up(self) -> int:
        """Bytes from clients, all parts together."""
        return self.up.total()

    def traffic(self) -> dict[str, float]:
        """The keys of a metrics line that are about traffic.

        100 percent is one dense model per client of the round; FedAvg has slightly more.
        """
        line: dict[str, float] = {"model_bytes": self.model_bytes}
        ways = (("up", self.up, self.nonzero_up), ("down", self.down, self.nonzero_down))
        for way, parts, values in ways:
            line[f"bytes_{way}"] = parts.total()
            line |= {f"bytes_{way}_{part}": count for part, count in parts.items()}
            line[f"percent_{way}"] = self._percent(parts.total(), self.model_bytes)
            if values:
                total = self._percent(values.total(), self.model_values)
                line[f"nonzero_{way}_percent"] = total
            for part, count in values.items():
                percent = self._percent(count, self.model_values)
                line[f"nonzero_{way}_percent_{part}"] = percent
        if self.nonzero_down:
            line["released_down_percent"] = self._percent(self.released_down, self.model_values)
        return line

    def incidents(self) -> dict[str, list[str]]:
        """The keys of a metrics line about clients that failed or were away; none without any."""
        by_kind = {"failed": list(self.failed), "away": self.away}
        return {key: names for key, names in by_kind.items() if names}

    def _percent(self, amount: int, dense: int) -> float:
        return 100 * amount / (self.sampled * dense) if self.sampled else 0.0

    def seconds_fit(self) -> float:
        """Seconds in which at least one client was training."""
        total, reached = 0.0, 0.0
        for start, end in sorted(self.spans):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return total


class RoundLog:
    """The record of the current round, and the handling of failures in it.

    Parameters
    ----------
    rounds_done : rounds before a resumed run.
    stop : whether a failed client ends the run (`on-client-failure`).
    """

    def __init__(self, rounds_done: int, *, stop: bool) -> None:
        self.record = RoundRecord(round=rounds_done)
        self._rounds_done = rounds_done
        self._stop = stop

    def begin(self, record: RoundRecord) -> None:
        """Start a round's record; what clients did ahead of the first round counts for it."""
        before, self.record = self.record, record
        if before.round == self._rounds_done:
            record.joined, record.failed = before.joined, before.failed
            record.failures = before.failures
            record.down.update(before.down)
            record.up.update(before.up)

    def fail(self, failures: Mapping[str, str]) -> None:
        """Count clients as failed: a printable reason for each, by what the client is called.

        Raises
        ------
        UserError
            If failures stop the run.
        """
        self.record.failures += len(failures)
        self.record.failed |= failures
        alike: dict[str, list[str]] = {}
        for sender, reason in failures.items():
            alike.setdefault(reason.removesuffix("."), []).append(sender)
        for reason, those in alike.items():
            message = f"{len(those)} client(s) failed in round {self.record.round}: "
            text = message + prefix_sender(_enumerated(those), reason)
            if self._stop:
                raise UserError(
                    f"{text} (on-client-failure = 'continue' goes on without).", "client-failed"
                )
            log(WARNING, text)

    def fail_phase(self, phase: Phase, names: Mapping[int, str]) -> None:
        """Count the clients that failed in an extra phase; ``names`` has their names by node."""
        reasons = {**phase.failures, **phase.refusals}
        if failures := {names[node]: reasons[node] for node in names if node in reasons}:
            self.fail(failures)


def _enumerated(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"
