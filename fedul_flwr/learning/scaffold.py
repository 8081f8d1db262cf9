"""SCAFFOLD (Karimireddy et al. 2020): local steps corrected by variates, and agreement on these.

A client updates c_i whenever it trains, and cannot know whether its reply arrives. So it stores
two: the c_i from the start of the round, and the proposed new one. The next message tells which of
them is part of the server's c, the mean of all c_i.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedul_flwr.data.types import below
from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import Batches
from fedul_flwr.learning.device import place
from fedul_flwr.learning.local import (
    LocalResult,
    Objective,
    local_normalizer,
    mean_gradient,
    train_local,
)
from fedul_flwr.learning.plan import LocalPlan

CONTROL = "control"
"""Name of a record: the server's variate in a message to a client, the change of c_i in the reply.
Also the name under which a client stores its own."""

USED_ROUND = "variate-round"
"""Value for a client: the round in which the server last used its update; 0 for none."""
KEPT_ROUNDS = "variate-rounds"
"""Value for the server: the rounds whose variates a client has; see :func:`kept_rounds`."""

CONFIRMED, PROPOSED = "confirmed", "proposed"
"""A client's two stored variates: from the start of its last round, and proposed in that round,
each with the number of its round."""

Variate = Mapping[str, NDArray[np.generic]]
"""An array for every trainable weight, by its name."""


def kept_rounds(kept: Variate) -> list[int]:
    """Rounds of the variates in ``kept``, which :func:`proposal` returned; [] if it is empty."""
    return [int(kept[_round(kind)]) for kind in (PROPOSED, CONFIRMED) if _round(kind) in kept]


def confirmed(kept: Variate, used_round: int) -> dict[str, NDArray[np.generic]]:
    """c_i as it is part of the server's c; empty where it is zero.

    Parameters
    ----------
    kept : the client's stored arrays, from :func:`proposal`; empty before its first round.
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
            return below(f"{kind}/", kept)
    raise UserError(f"A client has no SCAFFOLD variate of round {used_round} any more.")


def proposal(
    own: Variate, used_round: int, renewed: Variate, server_round: int
) -> dict[str, NDArray[np.generic]]:
    """Arrays to store after a round: ``renewed``, and ``own`` in case the server misses that.

    Parameters
    ----------
    own : c_i at the start of the round, confirmed by the server as that of ``used_round``; empty
        if it is zero.
    renewed : the new c_i, of round ``server_round``.
    """
    kept = _kept(PROPOSED, renewed, server_round)
    return kept | _kept(CONFIRMED, own, used_round) if own else kept


def _kept(kind: str, variate: Variate, number: int) -> dict[str, NDArray[np.generic]]:
    return {_round(kind): np.array(number), **{f"{kind}/{n}": a for n, a in variate.items()}}


def _round(kind: str) -> str:
    return f"{kind}-round"


def train_with_variates(
    model: nn.Module,
    batches: Batches,
    objective: Objective,
    plan: LocalPlan,
    rng: np.random.Generator,
    *,
    server: Variate,
    own: Variate,
    option: str,
) -> tuple[LocalResult, dict[str, NDArray[np.generic]], dict[str, NDArray[np.generic]]]:
    """Train ``model`` in place by y ← y − eta·(g − c_i + c) and update the client's variate.

    Option I sets it to the gradient at the global model x, option II to
    c_i − c + (x − y) / (a·eta) for the normalizer a of the steps (their number S for plain SGD).

    Parameters
    ----------
    server : c, an array for every trainable weight.
    own : c_i in the same form; empty before this client's first round (zeros).
    option : ``"I"`` or ``"II"``; II is valid for SGD only.

    Returns
    -------
    The result of the training, the new c_i and its change.
    """
    place(model, plan.device, plan.precision)
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    c = [_tensor(server[name], weight) for name, weight in named.items()]
    c_i = [
        _tensor(own[name], weight) if own else torch.zeros_like(weight)
        for name, weight in named.items()
    ]
    shift = [a - b for a, b in zip(c, c_i, strict=True)]
    if option == "I":
        renewed = mean_gradient(model, batches, objective, plan, rng)
        result = train_local(model, batches, objective, plan, rng, shift=shift)
    else:
        start = [weight.detach().clone() for weight in named.values()]
        result = train_local(model, batches, objective, plan, rng, shift=shift)
        scale = 1.0 / (local_normalizer(result.steps, plan) * plan.learning_rate)
        renewed = [
            (x - y.detach()) * scale - moved
            for x, y, moved in zip(start, named.values(), shift, strict=True)
        ]
    change = [new - old for new, old in zip(renewed, c_i, strict=True)]
    return result, _arrays(named, renewed), _arrays(named, change)


def _tensor(array: NDArray[np.generic], like: Tensor) -> Tensor:
    return torch.from_numpy(np.array(array)).to(like.device, like.dtype)


def _arrays(named: Mapping[str, Tensor], values: list[Tensor]) -> dict[str, NDArray[np.generic]]:
    return {
        name: value.detach().cpu().contiguous().numpy()
        for name, value in zip(named, values, strict=True)
    }
