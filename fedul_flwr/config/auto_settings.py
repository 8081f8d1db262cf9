"""Settings that follow from the data: rules by their size, and by the kind of their points.

The rule of sizes (docs/defaults.md) sees no point and no label, so it gives the same on every
machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from fedul_flwr.config.base import AUTO, Scalar, setting_error
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings, HeadSettings
from fedul_flwr.config.shared import FITTED_MODEL, split_extension, starts_from_names

AUTO_KEYS = (
    *("model", "batch-size", "local-epochs", "learning-rate", "learning-rate-schedule"),
    "augment",
)
"""Settings that the rule chooses where they are `auto`."""
LEAST_SIDE = 16
"""Smallest side in pixels of images for a batch-normalized network and turned and shifted views.
Smaller ones learn better without both, and in fewer steps of constant size."""
LARGEST_SIDE = 32
"""Largest side in pixels of color images for `cnn6-quarter`, whose linear layer is too large
beyond. Gray ones get `cnn2`, which makes two to three times as many steps in the same
time."""
BATCH, EPOCHS, GRAY_EPOCHS = 16, 2, 6
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


def auto_values(
    size: DataSize,
    model: str = AUTO,
    clipping: str = "none",
    *,
    updates: bool = True,
    noise: bool = False,
) -> dict[str, Choice]:
    """The values of :data:`AUTO_KEYS` for data of this size.

    Parameters
    ----------
    updates, noise : whether a network is trained, and whether sums for heads have noise.
    """
    sides = " x ".join(map(str, size.shape))
    form = f"images of {sides}" if len(size.shape) > 1 else f"vectors of {sides} numbers"
    points = f"points are {form}"
    fits = _model(size.shape, clips=clipping != "none")
    if not updates:  # the last layer alone is made: on vectors themselves, or answers of filters
        of_images = "random-features" if noise else FITTED_MODEL
        fits = "linear" if len(size.shape) == 1 else of_images
    chosen = fits if model == AUTO else model
    is_tiny = len(size.shape) == 3 and min(size.shape[:2]) < LEAST_SIDE
    is_gray = size.shape[2:] == (1,) and not is_tiny
    most = GRAY_EPOCHS if is_gray else EPOCHS
    batch, epochs = _steps(size.points, 0 if is_tiny else LEAST_STEPS, most)
    count = "the server does not know how many points a client has"
    if size.points is not None:
        count = f"a client has about {round(size.points):,} points"
    large = split_extension(chosen)[0] in LARGE_STEP_MODELS
    differs = updates and model == AUTO and chosen != _model(size.shape, clips=False)
    without = f"; dp.clipping = {clipping!r} forbids batch norm" if differs else ""
    return {
        "model": Choice(chosen, points + without),
        "augment": Choice(_augmentation(size.shape, updates=updates), points),
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
    return "cnn6-quarter" if shape[2] == 3 and max(shape[:2]) <= LARGEST_SIDE else "cnn2"


def _augmentation(shape: tuple[int, ...], *, updates: bool) -> str:
    """Views in which images keep their class; gray ones may be letters, which are not mirrored, and
    turned ones help networks alone."""
    if shape[2:] == (3,):
        return "flip"
    is_large = len(shape) == 3 and min(shape[:2]) >= LEAST_SIDE
    return "affine" if is_large and updates else "none"


def _steps(points: float | None, least: int, epochs: int) -> tuple[int, int]:
    """Batch size and epochs for a client of so many points."""
    if points is None:
        return BATCH, epochs
    batch = BATCH
    while points > MOST_STEPS * batch:
        batch *= 2
    if epochs * points > MOST_STEPS * batch:
        return batch, int(MOST_STEPS * batch // points)
    steps = max(1, int(points) // batch)
    return batch, min(max(epochs, math.ceil(least / steps)), MOST_EPOCHS)


def unresolved(settings: RunConfig) -> tuple[str, ...]:
    """Those of :data:`AUTO_KEYS` that are still `auto`."""
    return tuple(key for key in AUTO_KEYS if getattr(settings, key.replace("-", "_")) == AUTO)


def with_auto_values(settings: RunConfig, size: DataSize) -> tuple[RunConfig, dict[str, Choice]]:
    """Settings without `auto` in :data:`AUTO_KEYS`, and the choices made."""
    clipping = settings[DPSettings].clipping
    method = find_method(settings.method)
    noise = settings.makes_heads and settings[HeadSettings].epsilon > 0
    automatic = auto_values(size, settings.model, clipping, updates=method.updates, noise=noise)
    if settings.local_steps:  # as many epochs as they need
        settings = settings.model_copy(update={"local_epochs": 1})
    missing = unresolved(settings)
    chosen = {key: choice for key, choice in automatic.items() if key in missing}
    values = {key: choice.value for key, choice in chosen.items()}
    settings = settings.model_copy(update={k.replace("-", "_"): v for k, v in values.items()})
    settings.require_effect()
    return settings, {key: choice for key, choice in chosen.items() if key not in method.idle}


def in_words(chosen: Mapping[str, Choice]) -> str:
    """Two lines, ``Chosen: model mlp, … because …``; an empty text without choices."""
    if not chosen:
        return ""
    values = ", ".join(f"{key} {choice.value}" for key, choice in chosen.items())
    reasons = dict.fromkeys(choice.reason for choice in chosen.values())
    return f"Chosen: {values},\nbecause {'; '.join(reasons)}."


C = TypeVar("C", bound=RunConfig)


def resolve_standardize(settings: C, input_shape: tuple[int, ...]) -> C:
    """``standardize`` and ``standardize_sum`` resolved by kind of points and method."""
    chosen = settings.standardize
    asks_clients = find_method(settings.method).asks_clients
    named = starts_from_names(settings.start_from)
    if chosen == "auto" and (named or len(input_shape) != 1):
        chosen = "none"
    elif chosen == "auto":
        chosen = "federation" if asks_clients else "owner"
    if chosen == "federation" and not asks_clients:
        why = f"no client takes part in method {settings.method!r}; choose 'owner'"
        raise setting_error("standardize", chosen, why, "method-mismatch")
    if named and chosen != "none":
        why = f"weights by start-from = {settings.start_from!r} are for vectors as they are"
        raise setting_error("standardize", chosen, why, "settings-contradict")
    codes = settings.find(XCLPSettings)
    how = settings.standardize_sum
    if chosen == "federation" and how == "auto":
        of_models = settings.secure_sum == "on" or settings.sums_heads
        hidden = of_models or (codes and codes.secure != "plaintext")
        how = "masked" if hidden else "plaintext"
    resolved = settings.model_copy(update={"standardize": chosen, "standardize_sum": how})
    resolved.require_effect()
    return resolved


def kind_of(input_shape: tuple[int, ...]) -> str:
    """``images``, ``vectors`` or ``texts`` by the shape of one of them."""
    return {0: "texts", 1: "vectors"}.get(len(input_shape), "images")
