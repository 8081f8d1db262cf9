"""What the server knows each client to hold, on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from fedul_flwr.federated.client_state import ClientState
from fedul_flwr.federated.sync import HELD
from fedul_flwr.learning.decomposition import Parts, flatten, unflatten

ROUNDS = "held-rounds"
"""Name of the rounds of the last exchanges among the arrays that a run resumes from."""


class HeldParts:
    """Parts that every client holds since its last exchange.

    They lie in files that are mapped into memory where they are read: as many bytes on disk as the
    parts have for every client that was seen, ResNet-9's sigma and psi 52 MB.

    Parameters
    ----------
    directory : a folder for each client is made in it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.rounds: dict[int, int] = {}
        """Round of the last exchange by client; clients without one hold nothing."""

    def of(self, client: int) -> Parts:
        """What ``client`` holds; empty for one that holds nothing."""
        if client not in self.rounds:
            return {}
        return unflatten(self._state(client).recall(HELD, self.rounds[client] + 1))

    def keep(self, client: int, server_round: int, parts: Parts) -> None:
        """``client`` holds ``parts`` after its exchange in ``server_round``."""
        self._state(client).keep(HELD, server_round, flatten(parts))
        self.rounds[client] = server_round

    def forget(self, client: int) -> None:
        """Nobody knows what ``client`` holds."""
        self.rounds.pop(client, None)

    def memory(self) -> dict[str, NDArray[Any]]:
        """What a resumed run must know beside the files: ``(n, 2)``, clients and rounds."""
        return {ROUNDS: np.array(sorted(self.rounds.items()), dtype=np.int64).reshape(-1, 2)}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`memory` gave."""
        if ROUNDS in memory:
            self.rounds = {int(client): int(number) for client, number in memory[ROUNDS]}

    def _state(self, client: int) -> ClientState:
        return ClientState(RecordDict(), self._directory / str(client))
