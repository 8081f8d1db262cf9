"""A grid that counts what passes it, and the server's processor time between two exchanges."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from flwr.app import Message
from flwr.serverapp import Grid

from fedul_flwr.federated.grid import GridProxy
from fedul_flwr.federated.messages import payload_bytes, phase_of


class MeteredGrid(GridProxy):
    """Counts messages by phase.

    Attributes
    ----------
    messages, down, up : numbers of messages, bytes to clients and from them, by phase.
    seconds : processor time of the server's thread before each exchange of a phase, in order; the
        time of an exchange itself, in which clients of a simulation work, is left out.
    """

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self.messages: Counter[str] = Counter()
        self.down: Counter[str] = Counter()
        self.up: Counter[str] = Counter()
        self.seconds: list[tuple[str, float]] = []
        self._since = time.thread_time()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """As the grid does."""
        sent = list(messages)
        phases = [phase_of(message) or message.metadata.message_type for message in sent]
        if sent:
            self.seconds.append((phases[0], time.thread_time() - self._since))
        self.messages.update(phases)
        for phase, message in zip(phases, sent, strict=True):
            self.down[phase] += payload_bytes(message.content)
        replies = list(super().send_and_receive(sent, timeout=timeout))
        for reply in replies:  # of one phase
            self.up[phases[0]] += payload_bytes(reply.content)
        if sent:
            self._since = time.thread_time()
        return replies
