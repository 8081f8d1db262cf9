"""What happened in one round."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class RoundRecord:
    """What happened in one round, for ``metrics.jsonl``."""

    round: int
    clients: int = 0
    failures: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    heldout_loss: float | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)

    def seconds_fit(self) -> float:
        """Seconds in which at least one client was training."""
        total, reached = 0.0, 0.0
        for start, end in sorted(self.spans):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return total
