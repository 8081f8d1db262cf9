"""Interface of secure protocols for the Hamming distances of two clients' codes.

XCLP, section 3.2 (SecureHamming). Every pair of clients has an *owner* and an *evaluator*. Their
messages go through the server, encrypted end to end. At the end each of them sends numbers to the
server, which are random on their own, and together give the distances.

A protocol is stateless: it has three steps, each a pure function, apart from randomness, of the
client's state and its peers' messages. A step handles all pairs of a client at once. A peer that
drops out is missing in the inbox, and is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import DTypeLike

from fedul_flwr.arrays import Bytes, Ints, check_num_bits
from fedul_flwr.errors import BadMessageError
from fedul_flwr.secure.session import Entropy
from fedul_flwr.secure.similarity import Arrays, Codes, Cost, SimilarityBackend, Task

Inbox = Mapping[int, Arrays]
"""Messages from each peer, those to this client only and those to several."""

Forms = Mapping[str, tuple[DTypeLike, tuple[int, ...]]]
"""Type and shape of arrays, by name."""


@dataclass(frozen=True)
class Party:
    """A client's view of the participants."""

    client: int
    evaluators: tuple[int, ...]
    owners: tuple[int, ...]
    sizes: Mapping[int, int]
    num_bits: int
    session: bytes
    entropy: Entropy = field(default=os.urandom, repr=False)


@dataclass(frozen=True)
class StepResult:
    """Result of one step at a client.

    Attributes
    ----------
    to_evaluators, to_owners : messages to all :attr:`Party.evaluators`, or all
        :attr:`Party.owners`; encrypted and sent once.
    to_server : unencrypted messages to the server, by the other peer of the pair.
    """

    state: Arrays = field(default_factory=dict, repr=False)
    to_peers: Mapping[int, Arrays] = field(default_factory=dict, repr=False)
    to_evaluators: Arrays = field(default_factory=dict, repr=False)
    to_owners: Arrays = field(default_factory=dict, repr=False)
    to_server: Mapping[int, Arrays] = field(default_factory=dict, repr=False)


class PairwiseHamming(Protocol):
    """A protocol. Steps raise :class:`~fedul_flwr.errors.UserError` on malformed messages.

    The text of such an error names the peer and the error in the form of its message, but none of
    its values.
    """

    name: str
    groups: ClassVar[Mapping[str, str]]
    """Role of the readers, ``"evaluators"`` or ``"owners"``, of the message to several that a step
    has, by step."""

    def payload_spec(self, step: str, client: int, peer: int) -> tuple[str, Forms]:
        """Messages to the server in a step, which it checks when they come."""

    def prepare(self, party: Party) -> StepResult:
        """Step before codes are known; its messages are sent along with earlier ones."""

    def offer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """Step 1, with this client's codes ``(n_own, L / 8)``; the inbox is from ``prepare``."""

    def answer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """Step 2; the inbox is from ``offer``."""

    def reveal(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        """Step 3; the inbox is from ``answer``. Sends messages to the server only."""

    def distances(
        self, sizes: tuple[int, int], num_bits: int, by_owner: Arrays, by_evaluator: Arrays
    ) -> Ints:
        """At the server: compute a pair's distances from the messages of both clients."""

    def cost(self, sizes: list[int], num_bits: int) -> Cost:
        """Estimated cost of comparing all pairs of clients with these numbers of points."""


# The paper's placeholder: clients send unencrypted codes to the server. For simulations only.

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
    """Gets all codes and compares them; it can reconstruct vectors up to their length."""

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
