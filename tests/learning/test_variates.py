"""SCAFFOLD's variates: which one a client goes on from."""

from __future__ import annotations

import numpy as np

from fedul_flwr.learning.variates import confirmed, proposal, variate_rounds
from tests.support.refusals import refuses


def variate(value: float) -> dict[str, np.ndarray]:
    return {"layer/weight": np.full(2, value), "round": np.array([value])}


def test_a_proposal_that_was_never_used_is_dropped() -> None:
    first = proposal({}, 0, variate(3.0), 2)
    assert confirmed(first, 0) == {}
    second = proposal(confirmed(first, 2), 2, variate(4.0), 5)
    assert variate_rounds(second) == [5, 2]
    # Rounds 5 and 7 are lost: what round 2 left is still there.
    third = proposal(confirmed(second, 2), 2, variate(5.0), 7)
    assert variate_rounds(third) == [7, 2]
    assert (confirmed(third, 2)["layer/weight"] == 3.0).all()
    assert (confirmed(third, 7)["layer/weight"] == 5.0).all()


def test_a_variate_that_is_gone_is_an_error() -> None:
    with refuses("not-sent-yet", match="SCAFFOLD .*round 2 "):
        confirmed(proposal({}, 0, variate(3.0), 4), 2)
