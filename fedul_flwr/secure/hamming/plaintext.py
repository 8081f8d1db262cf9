"""The paper's placeholder: clients send unencrypted codes to the server. For simulations only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedul_flwr.data.types import Bytes, check_num_bits
from fedul_flwr.errors import BadMessageError
from fedul_flwr.secure.similarity import Arrays, Codes, Cost, SimilarityBackend, Task

SEED, CODES = "seed", "codes"


def respond(remembered: Arrays, message: Arrays, task: Task) -> tuple[Arrays, Arrays]:
    """Send codes; there is no state."""
    return remembered, {CODES: task.encode(message[SEED].tobytes())}


def mask_keys(
    remembered: Arrays, task: Task, unlabeled: Mapping[int, int], attempt: int
) -> tuple[Arrays, Mapping[int, bytes]]:
    """No keys: sums are not masked either."""
    del task, unlabeled, attempt
    return remembered, {}


def cost(sizes: list[int], num_bits: int) -> Cost:
    """Almost no time, and the size of the codes."""
    return Cost(0.0, sum(sizes) * num_bits / 8)


class PlaintextServer:
    """Gets all codes and compares them; it can reconstruct vectors up to their length.

    Parameters
    ----------
    clients : in order.
    num_bits : L.
    seed : 32 bytes for the projections, which this server sends to the clients.
    """

    def __init__(self, clients: Sequence[int], num_bits: int, seed: bytes | None) -> None:
        check_num_bits(num_bits)
        assert seed is not None  # only secret codes have none
        self._clients = list(clients)
        self._bytes = num_bits // 8
        self._seed = np.frombuffer(seed, dtype=np.uint8)
        self._codes: dict[int, Bytes] = {}
        self._is_done = False

    def ask(self) -> Mapping[int, Arrays]:
        """The seed, once."""
        asked = [] if self._is_done else self._clients
        return {client: {SEED: self._seed} for client in asked}

    def take(self, answers: Mapping[int, Arrays]) -> None:
        """Store the codes of the remaining clients."""
        self._is_done = True
        for client in self._clients:
            if client in answers:
                self.check(client, answers[client])
                self._codes[client] = answers[client][CODES]

    def check(self, client: int, answer: Arrays) -> int:
        """Refuse invalid codes, or codes of another length; returns their number."""
        codes = answer.get(CODES)
        if codes is None or codes.dtype != np.uint8 or codes.shape[1:] != (self._bytes,):
            raise BadMessageError(
                f"Client {client} sent no codes of {8 * self._bytes} bits, uint8 (points, "
                f"{self._bytes}).",
                "message-form",
            )
        return len(codes)

    def sizes(self) -> Mapping[int, int]:
        """Number of points of each client that sent codes."""
        return {client: len(codes) for client, codes in self._codes.items()}

    def compared(self) -> Codes:
        """The points of all clients that sent codes."""
        codes = [np.empty((0, self._bytes), dtype=np.uint8), *self._codes.values()]
        return Codes(np.concatenate(codes))


PLAINTEXT = SimilarityBackend(
    name="plaintext",
    respond=respond,
    mask_keys=mask_keys,
    server=PlaintextServer,
    cost=cost,
    fewest=1,
    sends={CODES: ("codes of its points: signs of projections of their features", "the server")},
)
