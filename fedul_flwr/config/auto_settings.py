"""Settings that follow from the size of the data where the user has not set them.

The rule (docs/defaults.md) sees no point and no label, so it gives the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fedul_flwr.config.base import AUTO, Scalar
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.run_config import RunConfig

AUTO_KEYS = (
    *("model", "batch-size", "local-epochs", "learning-rate", "learning-rate-schedule"),
    "augment",
)
"""Settings that the rule chooses where they are `auto`."""
LEAST_SIDE = 16
"""Smallest side in pixels of images for a batch-normalized network and turned and shifted views.
Smaller ones learn better without both, and in fewer steps of constant size."""
LARGEST_SIDE = 32
"""Largest side in pixels of images for `cnn6-quarter`, whose linear layer is too large beyond."""
BATCH, EPOCHS = 16, 2
LEAST_STEPS, MOST_EPOCHS = 40, 20
"""A client makes at least so many steps in a round, unless they take more epochs than this."""
MOST_STEPS = 600
"""Most steps of a client in a round; for more points there is one epoch, and larger batches."""
LARGE_STEP_MODELS = (
    *("cnn2", "cnn6-quarter", "cnn-small", "lenet", "linear", "mlp", "mlp-linear"),
)
"""Models that take the large step size."""


@dataclass(frozen=True)
class DataSize:
    """The size of the data of a run.

    Attributes
    ----------
    shape : of what the model takes: ``(height, width, channels)`` or ``(d,)``.
    points : mean number of points that a client trains on; None if the server does not know it,
        as with owners' own data.
    """

    shape: tuple[int, ...]
    points: float | None


class Choice(NamedTuple):
    """The value of a setting, and why."""

    value: Scalar
    reason: str


def auto_values(size: DataSize, model: str = AUTO, clipping: str = "none") -> dict[str, Choice]:
    """The values of :data:`AUTO_KEYS` for data of this size.

    Parameters
    ----------
    model : setting `model`; another value than `auto` is kept, and the step size follows from it.
    clipping : setting `dp.clipping`; with another value than `none` the model has no batch norm.
    """
    sides = " x ".join(map(str, size.shape))
    form = f"images of {sides}" if len(size.shape) > 1 else f"vectors of {sides} numbers"
    points = f"points are {form}"
    chosen = _model(size.shape, clips=clipping != "none") if model == AUTO else model
    is_tiny = len(size.shape) == 3 and min(size.shape[:2]) < LEAST_SIDE
    batch, epochs = _steps(size.points, 0 if is_tiny else LEAST_STEPS)
    count = "the server does not know how many points a client has"
    if size.points is not None:
        count = f"a client has about {round(size.points):,} points"
    large = chosen.removesuffix("+head") in LARGE_STEP_MODELS
    differs = model == AUTO and chosen != _model(size.shape, clips=False)
    without = f"; dp.clipping = {clipping!r} forbids batch norm" if differs else ""
    return {
        "model": Choice(chosen, points + without),
        "augment": Choice(_augmentation(size.shape), points),
        "batch-size": Choice(batch, count),
        "local-epochs": Choice(epochs, count),
        "learning-rate": Choice(3e-3 if large else 1e-3, f"the model is {chosen}"),
        "learning-rate-schedule": Choice("constant" if is_tiny else "cosine", points),
    }


def _model(shape: tuple[int, ...], *, clips: bool) -> str:
    """The best network that two cores train quickly on points of this shape."""
    if len(shape) == 1:
        return "mlp"
    if min(shape[:2]) < LEAST_SIDE:
        return "cnn-small"
    if clips:
        return "lenet"
    return "cnn6-quarter" if max(shape[:2]) <= LARGEST_SIDE else "cnn2"


def _augmentation(shape: tuple[int, ...]) -> str:
    """Views in which images keep their class; gray ones may be letters, which are not mirrored."""
    if shape[2:] == (3,):
        return "flip"
    return "affine" if len(shape) == 3 and min(shape[:2]) >= LEAST_SIDE else "none"


def _steps(points: float | None, least: int) -> tuple[int, int]:
    """Batch size and epochs for a client of so many points that makes ``least`` steps a round."""
    if points is None:
        return BATCH, EPOCHS
    if EPOCHS * points > MOST_STEPS * BATCH:
        batch = BATCH
        while points > MOST_STEPS * batch:
            batch *= 2
        return batch, 1
    steps = max(1, int(points) // BATCH)
    return BATCH, min(max(EPOCHS, math.ceil(least / steps)), MOST_EPOCHS)


def unresolved(settings: RunConfig) -> tuple[str, ...]:
    """Those of :data:`AUTO_KEYS` that are still `auto`."""
    return tuple(key for key in AUTO_KEYS if getattr(settings, key.replace("-", "_")) == AUTO)


def with_auto_values(settings: RunConfig, size: DataSize) -> tuple[RunConfig, dict[str, Choice]]:
    """Settings without `auto` in :data:`AUTO_KEYS`, and the choices made.

    Raises
    ------
    UserError
        If a setting of the user has no effect with a choice, such as `model-width` with a network
        for images.
    """
    clipping = settings[DPSettings].clipping
    missing, automatic = unresolved(settings), auto_values(size, settings.model, clipping)
    chosen = {key: choice for key, choice in automatic.items() if key in missing}
    values = {key: choice.value for key, choice in chosen.items()}
    settings = settings.model_copy(update={k.replace("-", "_"): v for k, v in values.items()})
    settings.require_effect()
    return settings, chosen


def in_words(chosen: Mapping[str, Choice]) -> str:
    """Two lines, ``Chosen: model mlp, … because …``; an empty text without choices."""
    if not chosen:
        return ""
    values = ", ".join(f"{key} {choice.value}" for key, choice in chosen.items())
    reasons = dict.fromkeys(choice.reason for choice in chosen.values())
    return f"Chosen: {values},\nbecause {'; '.join(reasons)}."
