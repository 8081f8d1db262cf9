"""Settings that are for images or for vectors alone."""

from __future__ import annotations

from typing import TypeVar

from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.errors import UserError

C = TypeVar("C", bound=RunConfig)

OF_IMAGES = {"image_size": 0}
OF_VECTORS = {"columns": "", "missing": "refuse", "standardize": "none"}
"""Settings for one kind of points, with the values at which they have no effect."""


def resolve_standardize(settings: C, input_shape: tuple[int, ...]) -> C:
    """Settings with ``standardize = "auto"`` resolved by the kind of points.

    Raises
    ------
    UserError
        If means and variances of a client's columns would be sent although its model is protected
        by differential privacy.
    """
    chosen = settings.standardize
    if chosen == "auto":
        chosen = "federation" if len(input_shape) == 1 else "none"
    clipping = settings[DPSettings].clipping
    if chosen == "federation" and clipping != "none":
        raise UserError(
            f"Setting standardize = {settings.standardize!r} lets clients send means and variances "
            f"of their columns, which dp.clipping = {clipping!r} does not protect: set it to "
            "'owner', 'constants' or 'none'."
        )
    return settings.model_copy(update={"standardize": chosen})


def refuse_other_kind(settings: SharedSettings, input_shape: tuple[int, ...]) -> None:
    """Refuse settings that have no effect, because they are for the other kind of points.

    Raises
    ------
    UserError
        With the setting.
    """
    of_vectors = len(input_shape) == 1
    if settings.standardize == "owner" and settings.measure_forgetting:
        raise UserError(
            "Setting measure-forgetting = true needs the clients' points as they see them, and "
            "with standardize = 'owner' the server does not have their means and scales: leave it "
            "out."
        )
    kind, other = ("vectors", "images") if of_vectors else ("images", "vectors")
    for name, default in (OF_IMAGES if of_vectors else OF_VECTORS).items():
        value = getattr(settings, name)
        if value not in (default, "auto"):
            key = name.replace("_", "-")
            raise UserError(
                f"Setting {key} = {value!r} is for {other}, and the data are {kind}: leave it out."
            )
