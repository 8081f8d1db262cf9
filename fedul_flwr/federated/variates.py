"""SCAFFOLD's variates between a client and the server: which of a client's is part of c.

A client renews c_i in every round that it trains in, and cannot know whether its reply arrives. So
it keeps two: the c_i that the round began from, and the one that it proposes. The next message says
which of them is part of the server's c, the mean of all c_i.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.errors import UserError

CONTROL = "control"
"""Name of the record with the server's variate on the way down, with a client's change of its own
on the way up; and the name under which a client keeps its own."""

USED_ROUND = "variate-round"
"""Value that tells a client in which round the server last used an update of it; 0 for none."""
KEPT_ROUNDS = "variate-rounds"
"""Value that tells the server the rounds whose variates a client has; see :func:`kept_rounds`."""

CONFIRMED, PROPOSED = "confirmed", "proposed"
"""What a client keeps: two variates, the one it began its last round from and the one it proposed
in that round, each with the number of its round."""

Variate = Mapping[str, NDArray[np.generic]]
"""An array for every trainable weight, by its name."""


def kept_rounds(kept: Variate) -> list[int]:
    """Rounds whose variates are in ``kept``, which :func:`proposal` made; none if it is empty."""
    return [int(kept[_round(kind)]) for kind in (PROPOSED, CONFIRMED) if _round(kind) in kept]


def confirmed(kept: Variate, used_round: int) -> dict[str, NDArray[np.generic]]:
    """c_i as it is part of the server's c; empty where it is zero.

    Parameters
    ----------
    kept : what the client keeps, from :func:`proposal`; empty before its first round.
    used_round : the round in which the server last used an update of this client; 0 for none.

    Raises
    ------
    UserError
        If the client has no variate of that round.
    """
    if used_round == 0:
        return {}
    for kind in (PROPOSED, CONFIRMED):
        if _round(kind) in kept and int(kept[_round(kind)]) == used_round:
            prefix = f"{kind}/"
            return {n.removeprefix(prefix): a for n, a in kept.items() if n.startswith(prefix)}
    raise UserError(f"A client has no SCAFFOLD variate of round {used_round} any more.")


def proposal(
    own: Variate, used_round: int, renewed: Variate, server_round: int
) -> dict[str, NDArray[np.generic]]:
    """Arrays to keep after a round: ``renewed``, and ``own`` in case that is not used.

    Parameters
    ----------
    own : c_i that the round began from, confirmed by the server as that of ``used_round``; empty
        where it is zero.
    renewed : the new c_i, of round ``server_round``.
    """
    kept = _kept(PROPOSED, renewed, server_round)
    return kept | _kept(CONFIRMED, own, used_round) if own else kept


def _kept(kind: str, variate: Variate, number: int) -> dict[str, NDArray[np.generic]]:
    return {_round(kind): np.array(number), **{f"{kind}/{n}": a for n, a in variate.items()}}


def _round(kind: str) -> str:
    return f"{kind}-round"
