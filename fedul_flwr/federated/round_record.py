"""Record of a round: traffic, metrics and failed clients."""

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
    """Record of one round, for ``metrics.jsonl``.

    Attributes
    ----------
    model_bytes, model_values : payload of one dense model in bytes, and its number of values.
    clients : number of clients sampled for training.
    failures : number of failures among them, and in extra phases.
    joined : partitions of the clients that joined or rejoined in this round.
    down, up : bytes to and from all clients together, by part: the name of the record of arrays
        (``model`` for the model's), ``phases``, ``evaluation``, ``other``.
    nonzero_down, nonzero_up : number of values sent because they differ from the receiver's, by
        part; counted only by methods that send sparse differences.
    metrics : means over clients, from the base.
    heldout_loss : mean over clients, if measured.
    spans : start and end of each client's training, in seconds.
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
    """The record of the current round, and the handling of failures in it.

    Parameters
    ----------
    rounds_done : rounds before a resumed run.
    stop : whether a failed client ends the run (`on-client-failure`).
    """

    def __init__(self, rounds_done: int, *, stop: bool) -> None:
        self.record = RoundRecord(round=rounds_done)
        self._stop = stop

    def fail(self, reason: str, count: int = 1) -> None:
        """Count ``count`` clients as failed because of ``reason``.

        Raises
        ------
        UserError
            If failures stop the run.
        """
        self.record.failures += count
        text = f"{count} client(s) failed in round {self.record.round}: {reason.removesuffix('.')}"
        if self._stop:
            raise UserError(f"{text} (on-client-failure = 'continue' goes on without).")
        log(WARNING, text)

    def fail_phase(self, phase: Phase, clients: Mapping[int, int]) -> None:
        """Count the clients that failed in an extra phase; ``clients`` has partitions by node."""
        if phase.failures:
            self.fail(next(iter(phase.failures.values())), len(phase.failures))
        for node, reason in phase.refusals.items():
            name = f"Client {clients[node]}" if node in clients else f"Node {node}"
            self.fail(reason if reason.startswith(name) else f"{name}: {reason}")
