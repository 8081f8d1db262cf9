"""Settings that are for images or for vectors alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fedul_flwr.config.method_settings import FedULConsistencySettings, ViewSettings, XCLPSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.privacy import DPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.shared import SharedSettings
from fedul_flwr.errors import UserError

C = TypeVar("C", bound=RunConfig)

_RANDAUGMENT = {
    "ssl": ("randaugment", "operations", "min_magnitude", "max_magnitude"),
    "semi": ("operations",),
}
"""Settings of RandAugment by table."""

IMAGE_VIEWS = ("rotate", "flip", "translate-flip", "rotate-flip", "affine")
VECTOR_VIEWS = {"noise": "noise", "dropout": "feature_dropout", "mixup": "mixup"}
"""Values of `augment` for one kind of points; for vectors with the setting of their strength."""
OF_IMAGES = {"image_size": 0, "image_bits": 0}
OF_TABLES = {"columns": "", "missing": "refuse"}
OF_TEXTS = {"text_column": ""}
OF_MODEL_VECTORS = {
    "standardize": "none",
    **{name: SharedSettings.model_fields[name].default for name in VECTOR_VIEWS.values()},
}
"""Settings for one kind of points, or for a model that takes vectors (a table's or an extractor's),
with the values at which they have no effect."""


def resolve_standardize(settings: C, input_shape: tuple[int, ...]) -> C:
    """Settings with ``standardize`` and ``standardize_sum`` resolved by kind of points and method.

    Raises
    ------
    UserError
        If means and variances of a client's columns would be sent although its model is protected
        by differential privacy, or if ``standardize_sum`` has no effect.
    """
    chosen = settings.standardize
    asks_clients = find_method(settings.method).asks_clients
    if chosen == "auto" and len(input_shape) != 1:
        chosen = "none"
    elif chosen == "auto":
        chosen = "federation" if asks_clients else "owner"
    if chosen == "federation" and not asks_clients:
        raise UserError(
            f"Setting standardize = 'federation': no client takes part in method "
            f"{settings.method!r}; 'owner' takes the server's own means and scales."
        )
    clipping = settings[DPSettings].clipping
    if chosen == "federation" and clipping != "none":
        raise UserError(
            f"Setting standardize = {settings.standardize!r} lets clients send means and variances "
            f"of their columns, which dp.clipping = {clipping!r} does not protect: set it to "
            "'owner', 'constants' or 'none'."
        )
    codes = settings.find(XCLPSettings)
    if chosen == "federation" and codes and codes.codes_epsilon > 0:
        raise UserError(
            f"Setting standardize = {settings.standardize!r} lets clients send means and variances "
            "of their columns, which xclp.codes-epsilon does not protect: set it to 'owner', "
            "'constants' or 'none'."
        )
    how = settings.standardize_sum
    if chosen != "federation" and how != "auto":
        raise UserError(
            f"Setting standardize-sum = {how!r} has no effect with standardize = {chosen!r}: leave "
            "it out."
        )
    if chosen == "federation" and how == "auto":
        how = "masked" if codes and codes.secure != "plaintext" else "plaintext"
    return settings.model_copy(update={"standardize": chosen, "standardize_sum": how})


def refuse_other_kind(
    settings: SharedSettings,
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
            "out."
        )
    if settings.standardize == "constants" and settings.features:
        raise UserError(
            "Setting standardize = 'constants' takes means and scales of columns, and features "
            "have none: choose 'owner' or 'federation'."
        )
    takes_vectors = len(model_shape or input_shape) == 1
    refuse_other_points(settings, input_shape)
    if not takes_vectors:
        _refuse_changed(settings, OF_MODEL_VECTORS, "images", "vectors")
    kind, other = ("vectors", "images") if takes_vectors else ("images", "vectors")
    views, others = tuple(VECTOR_VIEWS), IMAGE_VIEWS
    if not takes_vectors:
        views, others = others, views
    if settings.augment in others:
        raise UserError(
            f"Setting augment = {settings.augment!r} is for {other}, and the data are {kind}: "
            f"choose {', '.join(map(repr, ('none', *views[:-1])))} or {views[-1]!r}."
        )
    if isinstance(settings, RunConfig) and takes_vectors:
        _refuse_image_views(settings)


def refuse_other_points(settings: SharedSettings, input_shape: tuple[int, ...]) -> None:
    """Refuse settings of how points of another kind are read; errors as `refuse_other_kind`."""
    kind = kind_of(input_shape)
    for other, defaults in (("images", OF_IMAGES), ("vectors", OF_TABLES), ("texts", OF_TEXTS)):
        if other != kind:
            _refuse_changed(settings, defaults, kind, other)


def kind_of(input_shape: tuple[int, ...]) -> str:
    """``images``, ``vectors`` or ``texts`` by the shape of one of them."""
    return {0: "texts", 1: "vectors"}.get(len(input_shape), "images")


def _refuse_changed(
    settings: SharedSettings, defaults: Mapping[str, Any], kind: str, other: str
) -> None:
    for name, default in defaults.items():
        value = getattr(settings, name)
        if value not in (default, "auto"):
            key = name.replace("_", "-")
            raise UserError(
                f"Setting {key} = {value!r} is for {other}, and the data are {kind}: leave it out."
            )


def _refuse_image_views(settings: RunConfig) -> None:
    """Refuse settings of RandAugment, and strengths of views that nobody makes."""
    for table in settings.sections.values():
        for name in _RANDAUGMENT.get(type(table).table, ()):
            key, value = name.replace("_", "-"), getattr(table, name, None)
            if value is not None and value != type(table).model_fields[name].default:
                raise UserError(
                    f"Setting {type(table).table}.{key} = {value!r} is for images, and the data "
                    "are vectors, whose views follow noise, feature-dropout and mixup: leave it "
                    "out."
                )
    tables = settings.sections.values()
    strong = any(isinstance(t, ViewSettings | FedULConsistencySettings) for t in tables)
    for value, name in VECTOR_VIEWS.items():
        changed = getattr(settings, name) != SharedSettings.model_fields[name].default
        if changed and not strong and settings.augment != value:
            raise UserError(
                f"Setting {name.replace('_', '-')} = {getattr(settings, name)!r} has no effect "
                f"with method = {settings.method!r} and augment = {settings.augment!r}: leave it "
                "out."
            )
