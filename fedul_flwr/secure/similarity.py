"""Who is similar to whom among the points of several clients (XCLP, phase 1): the interface.

A backend has two halves without sockets and without Flower. The client's half is a pure function
from what the client remembers and a message to the same and a reply; everything it remembers is
named arrays, so that each message can be answered by a new process. The server's half asks as
often as the backend needs, and knows in the end which points are neighbours. Neither half is told
how messages travel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray
from scipy import sparse

from fedul_flwr.data.types import Bytes

Arrays = Mapping[str, NDArray[Any]]
"""A message, or what a client remembers between two messages; empty for nothing."""

Encode = Callable[[bytes], Bytes]
"""From the seed that clients share to the codes of this client's points, ``(n_i, L / 8)``."""

Respond = Callable[[Arrays, Arrays, Encode], tuple[Arrays, Arrays]]
"""``(remembered, message, encode) -> (remembered, reply)``."""


class SimilarityServer(Protocol):
    """The server's half, for one group of clients.

    The caller sends what :meth:`ask` gives, hands the answers to :meth:`take`, and goes on until
    there is nothing to ask. A client without an answer has dropped out: it is as if it had never
    been there (section 3.3 of the paper).
    """

    def ask(self) -> Mapping[int, Arrays]:
        """The next message to each client; empty once similarities are known."""

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
    server : makes the server's half from the clients, in order, the number of bits L, and 32 bytes
        that only backends without secrets make use of.
    """

    name: str
    respond: Respond
    server: Callable[[Sequence[int], int, bytes], SimilarityServer]
