"""What a secure protocol for the Hamming distances of two clients' codes has to offer.

XCLP, section 3.2 (SecureHamming). Every pair of clients has an *owner* and an *evaluator*. What
passes between them goes through the server, sealed for the two. At the end each of them has told
the server numbers that alone are random and together are the distances.

A protocol is stateless: three steps, each a pure function, but for fresh randomness, of what the
client remembers and what its peers sent. Several pairs run side by side, so a step deals with all
of a client's pairs at once. A peer that drops out is missing in the inbox, and is left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fedul_flwr.data.types import Bytes, Ints
from fedul_flwr.secure.randomness import Entropy
from fedul_flwr.secure.similarity import Arrays, Cost

Inbox = Mapping[int, Arrays]
"""What came from each peer: what it sent to this client alone, and what it sent to several."""


@dataclass(frozen=True)
class Seat:
    """A client's place among those that compare their points.

    Attributes
    ----------
    own : its number.
    evaluators : peers with whom it is the owner.
    owners : peers with whom it is the evaluator.
    sizes : number of points of all clients that compare, this one included.
    num_bits : L.
    session : 32 bytes that no other session has, known to all; what is hashed is bound to it.
    entropy : where randomness comes from.
    """

    own: int
    evaluators: tuple[int, ...]
    owners: tuple[int, ...]
    sizes: Mapping[int, int]
    num_bits: int
    session: bytes
    entropy: Entropy = field(default=os.urandom, repr=False)


@dataclass(frozen=True)
class Turn:
    """What a client does in one step.

    Attributes
    ----------
    state : what it remembers until the next step, secrets included.
    to_peers : what each peer alone gets, sealed by the caller.
    to_evaluators, to_owners : what all :attr:`Seat.evaluators`, or all :attr:`Seat.owners`, get
        alike; sealed and sent once.
    to_server : what the server gets in the clear, by the peer of the pair it is about.
    """

    state: Arrays = field(default_factory=dict, repr=False)
    to_peers: Mapping[int, Arrays] = field(default_factory=dict, repr=False)
    to_evaluators: Arrays = field(default_factory=dict, repr=False)
    to_owners: Arrays = field(default_factory=dict, repr=False)
    to_server: Mapping[int, Arrays] = field(default_factory=dict, repr=False)


class PairwiseHamming(Protocol):
    """One protocol. Steps raise :class:`~fedul_flwr.errors.UserError` on malformed messages.

    The message of such an error names the peer and what is wrong with the form of what it sent, but
    no value of it.
    """

    name: str

    def prepare(self, seat: Seat) -> Turn:
        """Before codes are known: what can be sent along with earlier messages."""

    def offer(self, seat: Seat, state: Arrays, codes: Bytes, inbox: Inbox) -> Turn:
        """Step 1, with this client's codes ``(n_own, L / 8)``; the inbox is from ``prepare``."""

    def answer(self, seat: Seat, state: Arrays, codes: Bytes, inbox: Inbox) -> Turn:
        """Step 2; the inbox is from ``offer``."""

    def reveal(self, seat: Seat, state: Arrays, codes: Bytes, inbox: Inbox) -> Turn:
        """Step 3; the inbox is from ``answer``. Sends to the server alone."""

    def distances(
        self, sizes: tuple[int, int], num_bits: int, by_owner: Arrays, by_evaluator: Arrays
    ) -> Ints:
        """At the server: what both said about a pair becomes its distances.

        Parameters
        ----------
        sizes : points of the owner and of the evaluator.
        num_bits : L.
        by_owner, by_evaluator : all that each of the two has sent it about the pair.

        Returns
        -------
        int64 ``(n_owner, n_evaluator)``, each between 0 and L.

        Raises
        ------
        UserError
            What was sent has another form, or a distance is above L. It says "the owner" or "the
            evaluator" (the caller adds which clients these are), and no value.
        """

    def cost(self, sizes: list[int], num_bits: int) -> Cost:
        """What comparing clients of these sizes will about take, each with each."""
