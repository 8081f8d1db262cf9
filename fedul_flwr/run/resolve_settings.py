"""Resolve settings that depend on the data, and refuse those that data or model forbid."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fedul_flwr.config.auto_settings import Choice, DataSize, resolve_standardize, with_auto_values
from fedul_flwr.config.base import AUTO, load_reference
from fedul_flwr.config.method_settings import FedULSettings, may_ask_for_shares
from fedul_flwr.config.methods import PARTLY_LABELED, find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.sections import DPSettings
from fedul_flwr.config.shared import PLATEAUS, ModelOptions
from fedul_flwr.config.trusted_modules import name_again, require_trusted_modules
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.columns import Columns, unnamed_columns
from fedul_flwr.data.run_files.records import read_config, saved_model
from fedul_flwr.data.run_files.store import BEST_MODEL
from fedul_flwr.data.split import label_scenario
from fedul_flwr.data.types import LabeledPoints
from fedul_flwr.errors import UserError
from fedul_flwr.federated.nodes import DataShape
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.learning.network import tracking_layers
from fedul_flwr.models.parts import feature_layer
from fedul_flwr.run.server_data import ServerData

_METHOD = "xclp-predict"
_FEATURES = "xclp-predict.features"


def with_model(overrides: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """``overrides`` plus settings for features from an earlier run's model."""
    saved, _ = read_config(directory)
    if not (directory / BEST_MODEL).is_file():
        raise UserError(
            f"--model {directory}: the run holds no {BEST_MODEL}.",
            "model-missing",
            option="--model",
        )
    used = {"model": saved_model(directory, saved)}
    if saved.get("features"):
        used["features"] = saved["features"]
    require_trusted_modules(directory, used, name_again(used), overrides)
    implied = {"start-from": str(directory), **used}
    if _METHOD in find_method(str(overrides["method"])).tables:
        implied[_FEATURES] = "model"
    # Without a data set at the server, settings define the images' shape and classes.
    without_data = overrides.get("dataset") == "none"
    keys = ("input-shape", "class-names") if without_data else ("image-size",)
    of_model = [f"model-{name}" for name in ModelOptions._fields]
    for key in (*keys, "columns", "missing", "label-column", "text-column", *of_model):
        if saved.get(key):
            implied[key] = saved[key]
    standardized = saved.get("standardize")
    if standardized in ("constants", "federation") and not saved.get("features"):
        implied |= {"standardize": "constants", "columns": str(directory)}
    elif standardized == "owner" or (saved.get("features") and standardized == "federation"):
        implied["standardize"] = standardized  # no file of columns can say means of features
    for key, value in implied.items():
        chosen = overrides.get(key, value)
        if key == "start-from":
            chosen = str(user_path(chosen))
        if chosen != value:
            raise UserError(
                f"Setting {key} = {overrides[key]!r} contradicts --model, "
                f"which means {value!r}: leave one of them out.",
                "settings-contradict",
                setting=key,
            )
    return {**overrides, **implied}


def resolve_auto(
    settings: RunConfig,
    strategy: type[Strategy],
    shape: DataShape,
    points: float | None = None,
) -> tuple[RunConfig, Mapping[str, Choice]]:
    """Settings with all replaced that `auto` leaves to the data's size, and the choices made."""
    settings = resolve_standardize(settings, shape.input_shape)
    settings = settings.model_copy(update={"image_bits": shape.bits})
    size = DataSize(shape.model_shape, points)
    settings, chosen = with_auto_values(settings, size)
    if chosen:
        strategy.validate(settings)
    if len(shape.input_shape) == 1 and find_method(settings.method).trains:
        _refuse_unknown_fills(settings, shape.columns or unnamed_columns(shape.input_shape[0]))
    return settings, chosen


def _refuse_unknown_fills(settings: RunConfig, columns: Columns) -> None:
    """Refuse a rule for missing values that a row to predict would not have."""
    rule, pooled = settings.missing, settings.standardize == "federation" and not settings.features
    unfilled = [column for column in columns.columns if column.fill is None]
    if pooled and rule == "most-frequent":  # means of categories tell it, those of numbers do not
        unfilled = [column for column in unfilled if column.categories is None]
    elif pooled or rule == "refuse":
        return
    if unfilled:
        raise UserError(
            f"Setting missing = {rule!r}: predictions of the model would not know what fills "
            f'column {unfilled[0].name!r}. Give it a "fill" in the columns file, or set missing '
            "to 'mean' or 'median' and standardize to 'federation', which pools them.",
            "columns-file-needed",
            setting="missing",
        )


def resolve_settings(
    settings: RunConfig, strategy: type[Strategy], data: ServerData, model: nn.Module
) -> tuple[RunConfig, LabeledPoints | None, LabeledPoints | None]:
    """Choose what settings leave to the data, and refuse settings that the data or model forbid.

    Owners' own sets say which class priors their data have, so `test-prior` follows them.
    """
    _refuse_bad_references(settings)
    if len(data.validation) == 0:
        if settings.learning_rate_schedule in PLATEAUS:
            raise _needs_validation("learning-rate-schedule", settings.learning_rate_schedule)
        if settings.calibration != "none":
            raise _needs_validation("calibration", settings.calibration)
    _refuse_private_statistics(settings, model)
    _refuse_personal(settings, model)
    chosen = choose_selection(
        settings, strategy.can_hold_out, has_validation=len(data.validation) > 0
    )
    prior = choose_test_prior(settings, strategy, own_data=data.split is None)
    settings = settings.model_copy(update={"selection": chosen, "test_prior": prior})
    of_server = data.labeled(settings) if strategy.learns_at_server(settings) else None
    return settings, of_server, _labeled_points(settings, data, of_server)


def choose_selection(settings: RunConfig, can_hold_out: bool, *, has_validation: bool) -> str:
    """The criterion that selects the best round; resolves ``selection = "auto"``."""
    chosen = settings.selection
    if chosen == "auto" and has_validation:
        return "validation"
    if chosen == "auto":
        alone = settings.evaluate == "global" and not settings.sums_updates
        return "heldout" if can_hold_out and alone else "last"
    if chosen in ("validation", "balanced") and not has_validation:
        raise _needs_validation("selection", chosen)
    if chosen == "heldout" and not can_hold_out:
        raise UserError(
            f"Setting selection = 'heldout': {settings.method!r} has no such loss.",
            "method-mismatch",
            setting="selection",
        )
    return str(chosen)


def choose_test_prior(settings: RunConfig, strategy: type[Strategy], *, own_data: bool) -> str:
    """The class priors at test time; resolves ``test-prior = "auto"``."""
    if settings.test_prior != AUTO:
        return settings.test_prior
    asks = (
        own_data
        and strategy.takes_test_prior
        and may_ask_for_shares(settings.find(FedULSettings), settings[DPSettings])
    )
    return "sets" if asks else "uniform"


def _labeled_points(
    settings: RunConfig, data: ServerData, of_server: LabeledPoints | None
) -> LabeledPoints | None:
    """Labeled training points whose error is also measured, if settings ask for it."""
    if not settings.measure_forgetting:
        return None
    labeled = of_server or data.labeled_by_owners()
    if labeled is None or data.source is None:
        raise UserError(
            f"Setting measure-forgetting = true: nobody knows the labels that method "
            f"{settings.method!r} trains on here. It is for simulations on partly labeled data "
            "and for methods that train at the server, with a data set there.",
            "setting-needs-labels",
            setting="measure-forgetting",
        )
    return labeled


def _refuse_bad_references(settings: RunConfig) -> None:
    """Refuse functions of the user's own that clients could not load, before any client starts."""
    for setting, reference in (("optimizer", settings.optimizer), ("augment", settings.augment)):
        if ":" in reference and not callable(load_reference(reference, setting)):
            raise UserError(
                f"Setting {setting} = {reference!r} does not refer to a function.",
                "reference-wrong",
                setting=setting,
            )


def _needs_validation(setting: str, value: str) -> UserError:
    return UserError(
        f"Setting {setting} = {value!r} needs labeled data at the server and validation-fraction "
        "above 0.",
        "setting-needs-labels",
        setting=setting,
    )


def _refuse_private_statistics(settings: RunConfig, model: nn.Module) -> None:
    clipping = settings[DPSettings].clipping
    if clipping != "none" and any(True for _ in model.buffers()):
        raise UserError(
            f"Setting model = {settings.model!r} has batch-norm statistics, which dp.clipping = "
            f"{clipping!r} leaves without noise: choose one without, such as 'cnn-small'.",
            "setting-breaks-privacy",
            setting="model",
        )


def _refuse_personal(settings: RunConfig, model: nn.Module) -> None:
    """Refuse personal models for which the network has no part, or no client has a target."""
    if settings.personal == "norm" and not tracking_layers(model):
        raise UserError(
            f"Setting personal = 'norm' needs batch norm, and model = {settings.model!r} has none: "
            "choose 'head', or a model with batch norm, such as 'cnn2'.",
            "model-unfit",
            setting="personal",
        )
    if settings.personal == "head":
        feature_layer(model)  # refuses a model without one
        kind = find_method(settings.method).data
        if kind in PARTLY_LABELED and label_scenario(settings) == "server":
            raise UserError(
                "Setting personal = 'head' needs labels or sets at clients, and only the server "
                "has labels: leave it out, or choose 'norm' with a model that has batch norm.",
                "setting-needs-labels",
                setting="personal",
            )
