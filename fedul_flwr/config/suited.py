"""Settings that follow from the size of the data where the user has not set them.

The rule (docs/defaults.md) sees no point and no label, so it gives the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fedul_flwr.config.base import AUTO, Scalar
from fedul_flwr.config.run_config import RunConfig, parse_flat

SUITED = (
    *("model", "batch-size", "local-epochs", "learning-rate", "learning-rate-schedule"),
    "augment",
)
"""Settings that the rule chooses where they are `auto`."""
LENET_SIDE = 12
"""Smallest side in pixels of images for `lenet`."""
CNN4_SIDES = (16, 64)
"""Sides in pixels of images for `cnn4`; its linear layer would be too large beyond."""
BATCH, EPOCHS = 16, 2
MOST_STEPS = 600
"""Most steps of a client in a round; for more points there is one epoch, and larger batches."""
SMALL_MODELS = ("cnn-small", "lenet", "linear", "mlp", "mlp-linear")
"""Models that take the large step size."""
MANY_ROUNDS = 50
"""Smallest number of rounds for which the step size falls."""


@dataclass(frozen=True)
class DataSize:
    """The size of the data of a run.

    Attributes
    ----------
    shape : of what the model takes: ``(height, width, channels)`` or ``(d,)``.
    points : mean number of points that a client trains on; None if the server does not know it,
        as with owners' own data.
    rounds : communication rounds.
    """

    shape: tuple[int, ...]
    points: float | None
    rounds: int


class Choice(NamedTuple):
    """The value of a setting, and why."""

    value: Scalar
    because: str


def suited(size: DataSize, model: str = AUTO) -> dict[str, Choice]:
    """The values of :data:`SUITED` for data of this size.

    Parameters
    ----------
    model : setting `model`; another value than `auto` is kept, and the step size follows from it.
    """
    sides = " x ".join(map(str, size.shape))
    form = f"images of {sides}" if len(size.shape) > 1 else f"vectors of {sides} numbers"
    points = f"points are {form}"
    chosen = _model(size.shape) if model == AUTO else model
    batch, epochs = _steps(size.points)
    count = "the server does not know how many points a client has"
    if size.points is not None:
        count = f"a client has about {round(size.points):,} points"
    small = chosen.removesuffix("+head") in SMALL_MODELS
    falls = size.rounds >= MANY_ROUNDS
    return {
        "model": Choice(chosen, points),
        "augment": Choice("flip" if size.shape[2:] == (3,) else "none", points),
        "batch-size": Choice(batch, count),
        "local-epochs": Choice(epochs, count),
        "learning-rate": Choice(3e-3 if small else 1e-3, f"the model is {chosen}"),
        "learning-rate-schedule": Choice(
            "cosine" if falls else "constant", f"num-rounds is {size.rounds}"
        ),
    }


def _model(shape: tuple[int, ...]) -> str:
    """The best network that two cores train quickly on points of this shape."""
    if len(shape) == 1:
        return "mlp"
    smallest, largest = min(shape[:2]), max(shape[:2])
    if smallest < LENET_SIDE:
        return "cnn-small"
    in_color = shape[2] == 3 and CNN4_SIDES[0] <= smallest and largest <= CNN4_SIDES[1]
    return "cnn4" if in_color else "lenet"


def _steps(points: float | None) -> tuple[int, int]:
    """Batch size and epochs for this number of points of a client."""
    batch, epochs = BATCH, EPOCHS
    if points is not None and epochs * points > MOST_STEPS * batch:
        epochs = 1
        while points > MOST_STEPS * batch:
            batch *= 2
    return batch, epochs


def unsettled(settings: RunConfig) -> tuple[str, ...]:
    """Those of :data:`SUITED` that are still `auto`."""
    return tuple(key for key in SUITED if getattr(settings, key.replace("-", "_")) == AUTO)


def with_suited(settings: RunConfig, size: DataSize) -> tuple[RunConfig, dict[str, Choice]]:
    """Settings without `auto` in :data:`SUITED`, and the choices made.

    Raises
    ------
    UserError
        If a setting of the user has no effect with a choice, such as `model-width` with a network
        for images.
    """
    missing, found = unsettled(settings), suited(size, settings.model)
    chosen = {key: choice for key, choice in found.items() if key in missing}
    values = {key: choice.value for key, choice in chosen.items()}
    return (parse_flat({**settings.to_flat(), **values}), chosen) if chosen else (settings, {})


def in_words(chosen: Mapping[str, Choice]) -> str:
    """Two lines, ``Chosen: model mlp, … because …``; an empty text without choices."""
    if not chosen:
        return ""
    values = ", ".join(f"{key} {choice.value}" for key, choice in chosen.items())
    reasons = dict.fromkeys(choice.because for choice in chosen.values())
    return f"Chosen: {values},\nbecause {'; '.join(reasons)}."
