"""Interface of backends that compare the points of several clients (XCLP, phase 1).

A backend has two halves, without sockets and without Flower. The client's half is a pure function
from state and message to state and reply; the state is named arrays, so that each message can be
answered by a new process. The server's half sends as many messages as the backend needs, and ends
with codes or distances of all points. Neither half depends on how messages are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes
from fedul_flwr.errors import UserError
from fedul_flwr.secure.identities import Identities

Arrays = Mapping[str, NDArray[Any]]
"""A message, or a client's state between two messages; may be empty."""

Encode = Callable[[bytes], Bytes]
"""Computes the codes of this client's points, ``(n_i, L / 8)``, from the clients' common seed."""


@dataclass(frozen=True)
class Task:
    """Input of a client's half from its own client.

    Attributes
    ----------
    seed_is_public : whether the server chooses the seed of the codes, so that runs are repeatable.
    run_seed : the secret seed with which this client has coded its points before in this run;
        empty if it has not.
    encode : computes the codes; called once, when the seed is known.
    """

    client: int
    server_round: int
    num_points: int
    num_bits: int
    min_labeled_clients: int
    seed_is_public: bool
    run_seed: bytes = field(repr=False)
    encode: Encode
    run: int = 0
    identities: Identities | None = None


Respond = Callable[[Arrays, Arrays, Task], tuple[Arrays, Arrays]]
"""``(remembered, message, task) -> (remembered, reply)``."""

MaskKeys = Callable[[Arrays, Task, Mapping[int, int], int], tuple[Arrays, Mapping[int, bytes]]]
"""``(remembered, task, unlabeled points by participant, attempt) -> (remembered, key shared with
each other participant)``: after the distances, for the sum of labels. No keys without masks."""


class TooFewClientsError(UserError):
    """Too many clients of a propagation have dropped out to continue."""

    code = "too-few-clients"

    def __init__(self, message: str, left: Iterable[int]) -> None:
        super().__init__(message)
        self.left = tuple(left)


class ExcludedClientsError(UserError):
    """Messages between clients do not go together, and some of them have to leave a propagation.

    Attributes
    ----------
    tied : those of them who may be honest: of two clients that contradict each other one lies.
    """

    code = "client-excluded"

    def __init__(
        self, excluded: Mapping[int, str], tied: Iterable[int], left: Iterable[int]
    ) -> None:
        super().__init__("; ".join(f"Client {client}: {why}" for client, why in excluded.items()))
        self.excluded = dict(excluded)
        self.tied = frozenset(tied)
        self.left = tuple(left)


class Cost(NamedTuple):
    """An estimate for one propagation: seconds on two cores, and bytes that clients send."""

    seconds: float
    traffic: float


class Codes(NamedTuple):
    """Codes of all points, uint8 ``(n, L / 8)``."""

    codes: Bytes


class HammingDistances(NamedTuple):
    """Hamming distances of all pairs of points, integers ``(n, n)``, and L."""

    distances: NDArray[np.integer[Any]]
    num_bits: int


class SimilarityServer(Protocol):
    """The server's half, for one group of clients.

    The caller sends the messages from :meth:`ask`, passes the answers to :meth:`take`, and repeats
    this until there are no more messages. A client without an answer has dropped out and does not
    influence the result (section 3.3 of the paper).
    """

    def ask(self) -> Mapping[int, Arrays]:
        """The next message to each client; empty once similarities are known."""

    def check(self, client: int, answer: Arrays) -> int:
        """Refuse a malformed answer to the last message; returns the client's number of points."""

    def take(self, answers: Mapping[int, Arrays]) -> None:
        """Process answers, by client."""

    def sizes(self) -> Mapping[int, int]:
        """Number of points of each remaining client, in the given order of clients."""

    def compared(self) -> Codes | HammingDistances:
        """What tells the similarity of points, ordered as in :meth:`sizes`."""


@dataclass(frozen=True)
class SimilarityBackend:
    """Both halves of one way to compare points.

    Attributes
    ----------
    server : creates the server's half from the clients, in order, the number of bits L, and 32
        bytes for the seed of the codes if that is public, else ``None``.
    cost : estimates the cost from the clients' numbers of points and L.
    sends : names of the arrays in a client's replies (``*`` for any characters), with a
        description and who can read them.
    """

    name: str
    respond: Respond
    mask_keys: MaskKeys
    server: Callable[[Sequence[int], int, bytes | None], SimilarityServer]
    cost: Callable[[list[int], int], Cost]
    fewest: int
    sends: Mapping[str, tuple[str, str]]
