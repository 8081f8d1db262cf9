"""What comes beside a model where owners' points look different, and each owner's offset of it.

The stage (:mod:`fedul_flwr.federated.stages.owners_differ`) makes the reference; those that sum
features take the offset out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Arrays, Floats, Ints
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import HeadSettings
from fedul_flwr.errors import UserError
from fedul_flwr.learning.owner_effects import RATIOS, REFERENCE, Reference, Seen


def are_taken_out(settings: RunConfig) -> bool:
    """Whether owners' offsets are taken out."""
    return settings.makes_heads and settings[HeadSettings].owners_differ != "off"


def arrays_of(settings: RunConfig) -> frozenset[str]:
    """Names of the arrays that the server sends beside a model."""
    return frozenset(REFERENCE) if are_taken_out(settings) else frozenset()


def beside(strategy: Any) -> Arrays:
    """What owners' offsets follow from, where they differ."""
    for stage in strategy.stages:
        if stage.state.get(REFERENCE[2]):  # λ
            return {name: stage.state[name] for name in REFERENCE}
    return {}


def taken_out(client: Any, arrays: Arrays, weight: str) -> tuple[Arrays, Reference | None]:
    """A model's arrays, and what the client's offset follows from, if it came with them.

    Parameters
    ----------
    weight : name of the last layer's weight.

    Raises
    ------
    UserError
        If that has another form.
    """
    if not arrays.keys() & {*REFERENCE}:
        return arrays, None
    model = {name: array for name, array in arrays.items() if name not in REFERENCE}
    classes, features = np.shape(model.get(weight, np.zeros((0, 0))))
    shapes = dict(zip(REFERENCE, [(features,), (classes, features), ()], strict=True))
    fits = all(
        one in arrays and arrays[one].shape == shape and np.isfinite(arrays[one]).all()
        for one, shape in shapes.items()
    )
    if not (are_taken_out(client.settings) and fits and 0 <= arrays[REFERENCE[2]] <= RATIOS[-1]):
        raise UserError("The server sent no reference for what owners are off by.", "message-form")
    return model, Reference.of_arrays(arrays)


def offset_of(
    client: Any, reference: Reference, features: NDArray[np.floating], points: Ints
) -> Floats:
    """δ ``(d,)`` of a client with features ``(n, V, d)`` of the points of all its sets."""
    shares = client.point_shares()
    assert len(points) == len(shares.points)  # all points of sets have class shares
    return reference.offset(Seen.of(features, shares.shares))


def less_offset(
    client: Any, reference: Reference, features: NDArray[np.float32], points: Ints
) -> NDArray[np.float32]:
    """Features ``(n, V, d)`` of these points without the offset, in their type."""
    offset = offset_of(client, reference, features, points)
    return (features - offset).astype(features.dtype)
