"""Whether a model can have come from the run: an owner's check of a server that lies.

A server that chooses the model chooses what an owner's answer tells: features of single pixels, or
gradients of single points. With the limit ``check-models`` the first weights must be those that the
owner computes from the run's seed, or have a digest that it has approved, and no later model may be
further away than clipped updates can have moved it. Within that bound a server still chooses.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from fedul_flwr.arrays import Arrays, l2_norm
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import InputShape
from fedul_flwr.errors import UserError
from fedul_flwr.federated.asked import Asked
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.messages import ARRAYS
from fedul_flwr.federated.stage import stages_of

ACCEPTED, AT_ROUND = "accepted-model", "of round"
"""Name under which a client keeps the last model that it accepted, and the array of its round."""
SLACK = 1.001
"""Relative room for rounding in float32."""


def largest_move(settings: RunConfig, size: int) -> float:
    """Largest L2 norm by which one round moves a model of ``size`` values."""
    of_stages = (stage.largest_move(settings, size) for stage in stages_of(settings))
    return next(filter(None, of_stages), settings.max_update_norm)


def check_model(client: Any, arrays: Arrays, round_number: int) -> None:
    """Refuse a model from which round ``round_number`` cannot begin, if the owner checks it.

    Parameters
    ----------
    client : a :class:`fedul_flwr.federated.client.Client`.
    """
    if client.node.check_models:
        shape = client.data.model_shape, client.data.num_classes
        refuse_foreign_model(
            client.settings, client.node, client.state, shape, arrays, round_number
        )


def check_body(client: Any, arrays: Arrays, last: Collection[str]) -> None:
    """Refuse features that the server may have chosen, for sums of an owner who wants protection.

    A network made for it asks inside every sum which owner has a certain point. Where nothing is
    trained, an owner knows it: drawn from the run's seed, or approved by its digest. Filters from a
    sum it makes anew of the moments that come with them, which it bounds. The last layer is apart,
    as no feature depends on it.

    Parameters
    ----------
    client : a :class:`fedul_flwr.federated.client.Client`.
    last : names of the last layer's arrays.
    """
    from fedul_flwr.learning.filters import are_moments, names_in, with_moments

    node, settings = client.node, client.settings
    if not (node.check_models or node.require_secure_sum):
        return
    digest = Asked({ARRAYS: arrays}, {}).model.hex()
    if digest in node.approved_starts.split(","):
        return
    first = _first_weights(settings, client.data.model_shape, client.data.num_classes)
    if names := names_in(first):
        moments = arrays[names[1]]
        if not are_moments(moments):
            raise _refusal(settings, digest, "has filters of patches that no images have")
        first = with_moments(first, moments)
    body = first.keys() - {*last}
    # Processors differ in last digits; filters made for a picture are far away.
    if not all(np.allclose(first[name], arrays[name], rtol=1e-4, atol=1e-5) for name in body):
        raise _refusal(settings, digest, "is not the one that this client draws from the seed")


def refuse_foreign_model(
    settings: RunConfig,
    node: NodeConfig,
    state: ClientState,
    data_shape: tuple[InputShape, int],
    arrays: Arrays,
    round_number: int,
) -> None:
    """Refuse a model that cannot be that of a round; keep it for later rounds.

    A model of an earlier round, which a run asks about at its end, is not kept.
    """
    last = dict(state.ephemeral(ACCEPTED))
    reference = int(last.pop(AT_ROUND, np.array(1)))
    digest = Asked({ARRAYS: arrays}, {}).model.hex()
    if not last and round_number == 1 and digest in node.approved_starts.split(","):
        last = arrays
    last = last or _first_weights(settings, *data_shape)
    if last.keys() != arrays.keys() or not 1 <= round_number <= settings.num_rounds + 1:
        raise _refusal(settings, digest, "is no model of this run")
    changes = [
        arrays[name].astype(np.float64) - array
        for name, array in last.items()
        if np.issubdtype(array.dtype, np.floating)
    ]
    moved, size = l2_norm(changes), sum(change.size for change in changes)
    most = abs(round_number - reference) * largest_move(settings, size) * SLACK
    if not moved <= most + 1e-6 * math.sqrt(size):
        what = f"is {moved:.4g} away from that of round {reference}, where {most:.4g} is possible"
        raise _refusal(settings, digest, what)
    if round_number >= reference:
        state.set_ephemeral(ACCEPTED, {**arrays, AT_ROUND: np.array(round_number)})


def _first_weights(settings: RunConfig, input_shape: InputShape, num_classes: int) -> Arrays:
    from fedul_flwr.learning.local import dump_arrays
    from fedul_flwr.models.registry import fresh_model

    return dump_arrays(fresh_model(settings, input_shape, num_classes))


def _refusal(settings: RunConfig, digest: str, what: str) -> UserError:
    start = settings.start_from and f" (start-from = {settings.start_from!r})"
    return UserError(
        f"The server's model{start} {what}, and the node's owner allows no other "
        f"(check-models, require-secure-sum); the model's digest is {digest}.",
        "owner-does-not-allow",
        limit="check-models",
    )
