"""SCAFFOLD's variates: agreement between client and server on which c_i is part of c.

A client updates c_i whenever it trains, and cannot know whether its reply arrives. So it stores
two: the c_i from the start of the round, and the proposed new one. The next message tells which of
them is part of the server's c, the mean of all c_i.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import below
from fedul_flwr.errors import UserError

CONTROL = "control"
"""Name of a record: the server's variate in a message to a client, the change of c_i in the reply.
Also the name under which a client stores its own."""

USED_ROUND = "variate-round"
"""Value for a client: the round in which the server last used its update; 0 for none."""
VARIATE_ROUNDS = "variate-rounds"
"""Value for the server: the rounds whose variates a client has; see :func:`variate_rounds`."""

CONFIRMED, PROPOSED = "confirmed", "proposed"
"""A client's two stored variates: from the start of its last round, and proposed in that round,
each with the number of its round."""

Variate = Mapping[str, NDArray[np.generic]]
"""An array for every trainable weight, by its name."""


def variate_rounds(stored: Variate) -> list[int]:
    """Rounds of the variates in ``stored``, which :func:`proposal` returned; [] if it is empty."""
    return [int(stored[_round(kind)]) for kind in (PROPOSED, CONFIRMED) if _round(kind) in stored]


def confirmed(stored: Variate, used_round: int) -> dict[str, NDArray[np.generic]]:
    """c_i as it is part of the server's c; empty where it is zero.

    Parameters
    ----------
    stored : the client's stored arrays, from :func:`proposal`; empty before its first round.
    used_round : the round in which the server last used an update of this client; 0 for none.
    """
    if used_round == 0:
        return {}
    for kind in (PROPOSED, CONFIRMED):
        if _round(kind) in stored and int(stored[_round(kind)]) == used_round:
            return below(f"{kind}/", stored)
    raise UserError(
        f"A client has no SCAFFOLD variate of round {used_round} any more.", "not-sent-yet"
    )


def proposal(
    variate: Variate, used_round: int, renewed: Variate, server_round: int
) -> dict[str, NDArray[np.generic]]:
    """Arrays to store after a round: ``renewed``, and ``variate`` in case the server misses that.

    Parameters
    ----------
    variate : c_i at the start of the round, confirmed by the server as that of ``used_round``;
        empty if it is zero.
    renewed : the new c_i, of round ``server_round``.
    """
    arrays = _stored_arrays(PROPOSED, renewed, server_round)
    return arrays | _stored_arrays(CONFIRMED, variate, used_round) if variate else arrays


def _stored_arrays(kind: str, variate: Variate, number: int) -> dict[str, NDArray[np.generic]]:
    return {_round(kind): np.array(number), **{f"{kind}/{n}": a for n, a in variate.items()}}


def _round(kind: str) -> str:
    return f"{kind}-round"
