"""What happens in a round: traffic, metrics, and clients that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import WARNING

from flwr.common import log

from fedul_flwr.errors import UserError
from fedul_flwr.federated.phases import Phase


@dataclass
class RoundRecord:
    """What happened in one round, for ``metrics.jsonl``.

    Attributes
    ----------
    model_bytes, model_values : what one dense model is as a payload, and its number of values.
    clients : how many were chosen.
    failures : of them, and of clients in extra phases.
    joined : partitions of the clients that take part from this round on, or again.
    down, up : bytes to and from all clients together, by part: the name of the record of arrays
        (``model`` for the model's), ``phases``, ``evaluation``, ``other``.
    nonzero_down, nonzero_up : values that were sent because they differ from the receiver's, by
        part. Only methods that send sparse differences count them.
    metrics : the base's means over clients.
    heldout_loss : mean over clients, where it was asked for.
    spans : when each client began and ended training, seconds.
    """

    round: int
    model_bytes: int = 0
    model_values: int = 0
    clients: int = 0
    failures: int = 0
    joined: list[int] = field(default_factory=list)
    down: Counter[str] = field(default_factory=Counter)
    up: Counter[str] = field(default_factory=Counter)
    nonzero_down: Counter[str] = field(default_factory=Counter)
    nonzero_up: Counter[str] = field(default_factory=Counter)
    metrics: dict[str, float] = field(default_factory=dict)
    heldout_loss: float | None = None
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
        """The traffic's keys of a metrics line.

        Percents are of one dense model for each client of the round: FedAvg's are 100 and a little.
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
        return line

    def _percent(self, amount: int, dense: int) -> float:
        return 100 * amount / (self.clients * dense) if self.clients else 0.0

    def seconds_fit(self) -> float:
        """Seconds in which at least one client was training."""
        total, reached = 0.0, 0.0
        for start, end in sorted(self.spans):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return total


class RoundLog:
    """The record of the round in hand, and what happens when clients fail in it.

    Parameters
    ----------
    rounds_done : by the run that this one resumes.
    stop : whether a failed client ends the run (`on-client-failure`).
    """

    def __init__(self, rounds_done: int, *, stop: bool) -> None:
        self.record = RoundRecord(round=rounds_done)
        self._stop = stop

    def fail(self, reason: str, count: int = 1) -> None:
        """Count ``count`` clients that failed for ``reason``.

        Raises
        ------
        UserError
            If the run is to stop then.
        """
        self.record.failures += count
        text = f"{count} client(s) failed in round {self.record.round}: {reason.removesuffix('.')}"
        if self._stop:
            raise UserError(f"{text} (on-client-failure = 'continue' goes on without).")
        log(WARNING, text)

    def fail_phase(self, phase: Phase, clients: Mapping[int, int]) -> None:
        """Count the clients that failed in an extra phase; ``clients`` are known, by node."""
        if phase.failures:
            self.fail(next(iter(phase.failures.values())), len(phase.failures))
        for node, reason in phase.refusals.items():
            name = f"Client {clients[node]}" if node in clients else f"Node {node}"
            self.fail(reason if reason.startswith(name) else f"{name}: {reason}")
