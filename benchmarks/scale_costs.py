"""Formulas for the communication of a federation: messages and bytes of rounds by method.

A message and its reply count as one exchange. Bytes are those of a message's content as
:func:`fedul_flwr.federated.messages.payload_bytes` counts them: no names, no headers of Flower or
HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedul_flwr.federated.nodes import MAX_QUERIED
from fedul_flwr.propagation.phases import COMPARE, ROWS, SUM
from fedul_flwr.strategies.fedmatch_parts import HEADER

WORD, INFLUENCE = 8, 4
"""Bytes of an entry of a sum of labels, and of an influence."""
COMPARE_REST, SUM_REST = HEADER + 32 + 28, HEADER + 32
"""Bytes of a message to a client without model, columns and 16 bytes per participant: seed, round,
flag of the first message and phase name; round, attempt, withheld and phase name."""


@dataclass(frozen=True)
class Plan:
    """Numbers of clients and rounds.

    Attributes
    ----------
    clients : C, all clients of the run.
    sampled : S, clients that train in a round.
    rounds : R.
    evaluating : E, clients that report their loss on held-out data after every round; 0 if other
        data select the best round.
    """

    clients: int
    sampled: int
    rounds: int
    evaluating: int = 0


def exchanges(plan: Plan) -> dict[str, int]:
    """Exchanges of a run by phase: min(C, 11) + C + R (S + E)."""
    asked = min(plan.clients, MAX_QUERIED)
    found = {"describe": asked, "setup": plan.clients, "train": plan.rounds * plan.sampled}
    return found | ({"evaluate": plan.rounds * plan.evaluating} if plan.evaluating else {})


def run_bytes(plan: Plan, each: dict[str, int]) -> dict[str, int]:
    """Bytes of a run in one direction by phase, from the bytes of one message of each phase."""
    return {phase: count * each[phase] for phase, count in exchanges(plan).items()}


@dataclass(frozen=True)
class Group:
    """The P clients of one propagation (XCLP) whose codes the server compares.

    Attributes
    ----------
    labeled, unlabeled : l_i and u_i, points of each client.
    num_bits : L.
    num_classes : K.
    """

    labeled: Sequence[int]
    unlabeled: Sequence[int]
    num_bits: int = 4096
    num_classes: int = 10

    @property
    def points(self) -> int:
        """n, number of points of all clients."""
        return sum(self.labeled) + sum(self.unlabeled)

    def down(self, model: int) -> dict[str, int]:
        """Bytes to clients in addition to training: requests for codes, columns of S, rows.

        P (model + 188); 4 (Σ u)(Σ l) + P (16 P + 160); 8 K (Σ u + P) + 128 P, with the training
        message. (Every array is sent with a header of 128 bytes.)
        """
        members = len(self.labeled)
        columns = INFLUENCE * sum(self.unlabeled) * sum(self.labeled)
        return {
            COMPARE: members * (model + COMPARE_REST),
            SUM: columns + members * (16 * members + SUM_REST),
            ROWS: WORD * self.num_classes * (sum(self.unlabeled) + members) + HEADER * members,
        }

    def up(self) -> dict[str, int]:
        """Bytes from clients: codes, flags of labeled points, and shares of the sum.

        n (L / 8 + 1) + 256 P; 8 K ((P - 1)(Σ u + P) + P) + 128 P: each sends a check row and all
        rows but its own.
        """
        members = len(self.labeled)
        shares = (members - 1) * (sum(self.unlabeled) + members) + members  # and check rows
        return {
            COMPARE: self.points * (self.num_bits // 8 + 1) + 2 * HEADER * members,
            SUM: WORD * self.num_classes * shares + HEADER * members,
        }


def sparse_bytes(parts: int, model: int) -> int:
    """Upper bound for sparse differences: all values of ``parts`` models, and masks of 1/32."""
    return parts * (model + model // 32)
