"""Who is similar to whom among the points of several clients (XCLP, phase 1): the interface.

A backend has two halves without sockets and without Flower. The client's half is a pure function
from what the client remembers and a message to the same and a reply; everything it remembers is
named arrays, so that each message can be answered by a new process. The server's half asks as
often as the backend needs, and knows in the end which points are neighbors. Neither half is told
how messages travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray
from scipy import sparse

from fedul_flwr.data.types import Bytes
from fedul_flwr.errors import UserError

Arrays = Mapping[str, NDArray[Any]]
"""A message, or what a client remembers between two messages; empty for nothing."""

Encode = Callable[[bytes], Bytes]
"""From the seed that clients share to the codes of this client's points, ``(n_i, L / 8)``."""


@dataclass(frozen=True)
class Task:
    """What a client's half is told by its own side.

    Attributes
    ----------
    own : its number.
    server_round : round of the run.
    num_points : n_i, the points that it compares.
    num_bits : L.
    fewest_labeled : clients with labels that a sum under masks needs.
    seed_is_public : whether the server picks the seed of the codes, so that a run can be repeated.
    encode : makes the codes; called once, when the seed is known.
    """

    own: int
    server_round: int
    num_points: int
    num_bits: int
    fewest_labeled: int
    seed_is_public: bool
    encode: Encode


Respond = Callable[[Arrays, Arrays, Task], tuple[Arrays, Arrays]]
"""``(remembered, message, task) -> (remembered, reply)``."""

MaskKeys = Callable[[Arrays, Task, Mapping[int, int], int], tuple[Arrays, Mapping[int, bytes]]]
"""``(remembered, task, unlabeled points by participant, attempt) -> (remembered, key in common with
each other one)``: after the comparison, for the sum of labels. No keys where nothing is masked."""


class TooFewClientsError(UserError):
    """So many clients of a propagation have dropped out that it cannot go on.

    Attributes
    ----------
    left : numbers of the clients that have not.
    """

    def __init__(self, message: str, left: Iterable[int]) -> None:
        super().__init__(message)
        self.left = tuple(left)


class Cost(NamedTuple):
    """An estimate for one propagation: seconds on two cores, and bytes that clients send."""

    seconds: float
    traffic: float


class SimilarityServer(Protocol):
    """The server's half, for one group of clients.

    The caller sends what :meth:`ask` gives, hands the answers to :meth:`take`, and goes on until
    there is nothing to ask. A client without an answer has dropped out: it is as if it had never
    been there (section 3.3 of the paper).
    """

    def ask(self) -> Mapping[int, Arrays]:
        """The next message to each client; empty once similarities are known."""

    def check(self, client: int, answer: Arrays) -> int:
        """Refuse a malformed answer to what was asked last; the client's number of points.

        Raises
        ------
        BadMessageError
            Naming the client. A caller may leave it out, and hand the others' to :meth:`take`.
        """

    def take(self, answers: Mapping[int, Arrays]) -> None:
        """Answers by client, of those that gave one."""

    def sizes(self) -> Mapping[int, int]:
        """Number of points of each client that stayed, in the order the clients were named."""

    def neighbours(self, k: int) -> sparse.csr_array:
        """The k most similar points of each, ``(n, n)``: client after client, as in :meth:`sizes`.

        See :func:`fedul_flwr.propagation.neighbours.neighbours_by_code`.
        """


@dataclass(frozen=True)
class SimilarityBackend:
    """Both halves of one way to compare points.

    Attributes
    ----------
    name : value of the setting ``xclp.secure``.
    respond : the client's half.
    mask_keys : the client's keys for a sum that follows.
    server : makes the server's half from the clients, in order, the number of bits L, and 32 bytes
        for the seed of the codes where that is no secret, else ``None``.
    cost : from the clients' numbers of points and L to an estimate.
    fewest : participants that a propagation needs.
    sends : names of the arrays in a client's replies (``*`` for any characters), with what they
        are and who can read them.
    """

    name: str
    respond: Respond
    mask_keys: MaskKeys
    server: Callable[[Sequence[int], int, bytes | None], SimilarityServer]
    cost: Callable[[list[int], int], Cost]
    fewest: int
    sends: Mapping[str, tuple[str, str]]
