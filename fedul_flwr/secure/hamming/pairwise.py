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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from numpy.typing import DTypeLike

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.secure.session import Entropy
from fedul_flwr.secure.similarity import Arrays, Cost

Inbox = Mapping[int, Arrays]
"""Messages from each peer, those to this client only and those to several."""

Forms = Mapping[str, tuple[DTypeLike, tuple[int, ...]]]
"""Type and shape of arrays, by name."""


@dataclass(frozen=True)
class Party:
    """A client's view of the participants.

    Attributes
    ----------
    client : the client's number.
    evaluators : peers for which it is the owner.
    owners : peers for which it is the evaluator.
    sizes : number of points of all participants, this one included.
    num_bits : L.
    session : 32 bytes unique to the session, known to all; part of all hash inputs.
    entropy : source of randomness.
    """

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
    state : state until the next step, secrets included.
    to_peers : messages to single peers, encrypted by the caller.
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
        """Messages to the server in a step, which it checks when they come.

        Parameters
        ----------
        step : ``"answer"`` or ``"reveal"``.
        client, peer : numbers of points of the client and of the pair's other one.

        Returns
        -------
        The role of the peers that a client tells the server about, ``"evaluators"`` or
        ``"owners"``, and type and shape of every array about one of them.
        """

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
        """At the server: compute a pair's distances from the messages of both clients.

        Parameters
        ----------
        sizes : points of the owner and of the evaluator.
        num_bits : L.
        by_owner, by_evaluator : all messages of each of the two to the server about the pair.

        Returns
        -------
        int64 ``(n_owner, n_evaluator)``, each between 0 and L.
        """

    def cost(self, sizes: list[int], num_bits: int) -> Cost:
        """Estimated cost of comparing all pairs of clients with these numbers of points."""
