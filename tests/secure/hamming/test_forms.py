"""Forms of what clients tell the server in each step, by which it refuses anything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedul_flwr.secure.hamming.ot import ObliviousTransfer
from fedul_flwr.secure.hamming.paillier import Paillier
from fedul_flwr.secure.hamming.rlwe import RingLWE

OWN, PEER = 3, 5
"""Points of the client that answers, and of the other one of the pair."""


@pytest.mark.parametrize(
    ("protocol", "step", "role", "forms"),
    [
        # The owner's sums for each of its points, then the evaluator's for the same pairs.
        (ObliviousTransfer(), "answer", "evaluators", {"sums": (np.uint16, (3, 5))}),
        (ObliviousTransfer(), "reveal", "owners", {"sums": (np.uint16, (5, 3))}),
        # The evaluator answers with a mask for each pair, then the owner with what it decrypts.
        (RingLWE(), "answer", "owners", {"mask-key": (np.uint8, (32,))}),
        (RingLWE(), "reveal", "evaluators", {"revealed": (np.uint32, (5, 3))}),
        # 31 bits hold two distances of 13 bits: 5 points of an owner are 3 chunks, 3 are 2, each of
        # them a number of 4 bytes.
        (Paillier(32), "answer", "owners", {"masks": (np.uint8, (3, 3, 4))}),
        (
            Paillier(32),
            "reveal",
            "evaluators",
            {"modulus": (np.uint8, (4,)), "sums": (np.uint8, (2, 5, 4))},
        ),
    ],
)
def test_what_the_server_is_told_has_a_number_for_each_pair(
    protocol: Any, step: str, role: str, forms: dict[str, Any]
) -> None:
    assert protocol.payload_spec(step, OWN, PEER) == (role, forms)
