"""Settings that are for images or for vectors alone."""

from __future__ import annotations

from typing import TypeVar

from fedul_flwr.config.base import any_of
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.shared import is_function
from fedul_flwr.errors import UserError

C = TypeVar("C", bound=RunConfig)

VIEWS = {
    "images": ("rotate", "flip", "translate-flip", "rotate-flip", "affine"),
    "vectors": ("noise", "dropout", "mixup"),
}
"""Values of `augment` for one kind of points."""


def resolve_standardize(settings: C, input_shape: tuple[int, ...]) -> C:
    """Settings with ``standardize`` and ``standardize_sum`` resolved by kind of points and method.

    Raises
    ------
    UserError
        If means and variances of a client's columns would be sent although its model is protected
        by differential privacy, if the first weights are for vectors as they are, or if
        ``standardize_sum`` has no effect.
    """
    chosen = settings.standardize
    asks_clients = find_method(settings.method).asks_clients
    named = is_function(settings.start_from)
    if chosen == "auto" and (named or len(input_shape) != 1):
        chosen = "none"
    elif chosen == "auto":
        chosen = "federation" if asks_clients else "owner"
    if chosen == "federation" and not asks_clients:
        raise UserError(
            f"Setting standardize = 'federation': no client takes part in method "
            f"{settings.method!r}; 'owner' takes the server's own means and scales.",
            "setting-needs-clients",
            setting="standardize",
        )
    if named and chosen != "none":
        raise UserError(
            f"Setting standardize = {chosen!r}: the weights by start-from = "
            f"{settings.start_from!r} are for vectors as they are; set it to 'none'.",
            "settings-contradict",
            setting="standardize",
        )
    clipping = settings[DPSettings].clipping
    if chosen == "federation" and clipping != "none":
        raise UserError(
            f"Setting standardize = {settings.standardize!r} lets clients send means and variances "
            f"of their columns, which dp.clipping = {clipping!r} does not protect: set it to "
            "'owner', 'constants' or 'none'.",
            "setting-breaks-privacy",
            setting="standardize",
        )
    codes = settings.find(XCLPSettings)
    if chosen == "federation" and codes and codes.codes_epsilon > 0:
        raise UserError(
            f"Setting standardize = {settings.standardize!r} lets clients send means and variances "
            "of their columns, which xclp.codes-epsilon does not protect: set it to 'owner', "
            "'constants' or 'none'.",
            "setting-breaks-privacy",
            setting="standardize",
        )
    how = settings.standardize_sum
    if chosen == "federation" and how == "auto":
        how = "masked" if codes and codes.secure != "plaintext" else "plaintext"
    resolved = settings.model_copy(update={"standardize": chosen, "standardize_sum": how})
    resolved.require_effect()
    return resolved


def refuse_other_kind(
    settings: RunConfig,
    input_shape: tuple[int, ...],
    model_shape: tuple[int, ...] | None = None,
) -> None:
    """Refuse settings that have no effect, because they are for the other kind of points.

    Parameters
    ----------
    input_shape : of a point as it is stored.
    model_shape : of what the model takes; by default the same.

    Raises
    ------
    UserError
        With the setting.
    """
    if settings.standardize == "owner" and settings.measure_forgetting:
        raise UserError(
            "Setting measure-forgetting = true needs the clients' points as they see them, and "
            "with standardize = 'owner' the server does not have their means and scales: leave it "
            "out.",
            "settings-contradict",
            setting="measure-forgetting",
        )
    if settings.standardize == "constants" and settings.features:
        raise UserError(
            "Setting standardize = 'constants' takes means and scales of columns, and features "
            "have none: choose 'owner' or 'federation'.",
            "settings-contradict",
            setting="standardize",
        )
    inputs = kind_of(model_shape or input_shape)
    settings.require_effect({"points": kind_of(input_shape), "inputs": inputs})
    for other in VIEWS.keys() - {inputs}:
        if settings.augment in VIEWS[other]:
            raise UserError(
                f"Setting augment = {settings.augment!r} is for {other}, and the data are "
                f"{inputs}: choose {any_of([repr(view) for view in ('none', *VIEWS[inputs])])}.",
                "setting-unfit-for-data",
                setting="augment",
            )


def kind_of(input_shape: tuple[int, ...]) -> str:
    """``images``, ``vectors`` or ``texts`` by the shape of one of them."""
    return {0: "texts", 1: "vectors"}.get(len(input_shape), "images")
