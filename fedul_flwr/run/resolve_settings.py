"""Resolve settings that depend on the data, and refuse those that data or model forbid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fedul_flwr.config.auto_settings import (
    Choice,
    DataSize,
    in_words,
    resolve_standardize,
    with_auto_values,
)
from fedul_flwr.config.base import AUTO, Scalar, load_reference, setting_error
from fedul_flwr.config.method_settings import FedULSettings
from fedul_flwr.config.methods import find_method
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.shared import PLATEAUS, ModelOptions
from fedul_flwr.config.trusted_modules import name_again, require_trusted_modules
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.columns import Columns, unnamed_columns
from fedul_flwr.data.run_files.run import BEST_MODEL, Run
from fedul_flwr.data.standardize import SharedScaling
from fedul_flwr.data.types import LabeledPoints
from fedul_flwr.errors import UserError
from fedul_flwr.federated.nodes import DataShape
from fedul_flwr.federated.stage import are_hidden, stages_of
from fedul_flwr.federated.stages.agreement import resolve_agreement
from fedul_flwr.federated.stages.known_error import KnowsError
from fedul_flwr.federated.stages.server_training import learns_at_server
from fedul_flwr.federated.strategy import Strategy, validate
from fedul_flwr.models.registry import fresh_model
from fedul_flwr.run.server_data import ServerData
from fedul_flwr.run.split_report import split_in_words

_METHOD = "xclp-predict"
_FEATURES = "xclp-predict.features"


def with_model(overrides: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """``overrides`` plus settings for features from an earlier run's model."""
    run = Run.read(directory)
    saved = run.settings
    if not (directory / BEST_MODEL).is_file():
        raise UserError(
            f"--model {directory}: the run holds no {BEST_MODEL}.",
            "model-missing",
            option="--model",
        )
    used: dict[str, Scalar] = {"model": run.model}
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
            why = f"--model means {value!r}; leave one of them out"
            raise setting_error(key, overrides[key], why, "settings-contradict")
    return {**overrides, **implied}


def resolve_auto(
    settings: RunConfig,
    shape: DataShape,
    points: float | None = None,
) -> tuple[RunConfig, Mapping[str, Choice]]:
    """Settings with all replaced that `auto` leaves to the data's size, and the choices made."""
    settings = resolve_standardize(settings, shape.input_shape)
    settings = settings.model_copy(update={"image_bits": shape.bits})
    size = DataSize(shape.model_shape, points)
    settings, chosen = with_auto_values(settings, size)
    if chosen:
        validate(settings)
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
        why = (
            f"predictions of the model would not know what fills column {unfilled[0].name!r}. Give "
            "it a \"fill\" in the columns file, or set missing to 'mean' or 'median' and "
            "standardize to 'federation', which pools them"
        )
        raise setting_error("missing", rule, why, "columns-file-needed")


@dataclass(frozen=True)
class Prepared:
    """A run before its first message, whose settings, data and model go together.

    Attributes
    ----------
    model : not started from elsewhere yet; ``None`` if the method needs none.
    scaling : by which vectors are standardized, once it is known.
    of_server : labeled points that the server trains on.
    learned_from : labeled training points whose error is measured, too.
    said : lines about the data, and about what settings have left to them.
    """

    settings: RunConfig
    data: ServerData
    model: nn.Module | None
    scaling: SharedScaling
    of_server: LabeledPoints | None
    learned_from: LabeledPoints | None
    said: tuple[str, ...]


def prepare(settings: RunConfig, data: ServerData) -> Prepared:
    """Replace `auto` by what the data say, and refuse what does not go together."""
    method = find_method(settings.method)
    strategy = method.strategy_class
    settings, chosen = resolve_auto(settings, data.shape, data.points_of_client(settings))
    scaling, of_server, learned_from = SharedScaling(), None, None
    model = None
    if method.trains or strategy.needs_model(settings):
        model = fresh_model(settings, data.shape.model_shape, len(data.shape.class_names))
    if method.trains:
        assert model is not None
        data = data.standardized(settings, scaling)
        settings, of_server, learned_from = resolve_settings(settings, strategy, data, model)
    notes = data.source.notes if data.source is not None else ()
    words = in_words(chosen).splitlines() if method.trains else ()
    said = tuple(
        filter(
            None, (*notes, split_in_words(data), data.labels_in_words, data.shape.in_words, *words)
        )
    )
    return Prepared(settings, data, model, scaling, of_server, learned_from, said)


def resolve_settings(
    settings: RunConfig, strategy: type[Strategy], data: ServerData, model: nn.Module
) -> tuple[RunConfig, LabeledPoints | None, LabeledPoints | None]:
    """Choose what settings leave to the data, and refuse settings that the data or model forbid.

    Owners' own sets say which class priors their data have, so `test-prior` follows them.
    """
    _refuse_bad_references(settings)
    if len(data.validation) == 0:
        if settings.learning_rate_schedule in PLATEAUS:
            raise _needs_labels("learning-rate-schedule", settings.learning_rate_schedule)
        if settings.calibration == "validation":
            raise _needs_labels("calibration", settings.calibration)
    chosen = choose_selection(
        settings, strategy.can_hold_out, has_validation=len(data.validation) > 0
    )
    prior = choose_test_prior(settings, strategy, own_data=data.split is None)
    settings = settings.model_copy(update={"selection": chosen, "test_prior": prior})
    settings = settings.model_copy(update={"calibration": _choose_calibration(settings)})
    settings = resolve_agreement(settings, data.shape.input_shape, own_data=data.split is None)
    for stage in stages_of(settings):
        stage.fits(settings, model)
    of_server = data.labeled(settings) if learns_at_server(settings) else None
    return settings, of_server, _labeled_points(settings, data, of_server)


def choose_selection(settings: RunConfig, can_hold_out: bool, *, has_validation: bool) -> str:
    """The criterion that selects the best round; resolves ``selection = "auto"``."""
    chosen = settings.selection
    if chosen == "auto" and has_validation:
        return "validation"
    if chosen == "auto":
        if not find_method(settings.method).updates and KnowsError.is_on(settings):
            return "shares"  # it is known anyway, and nothing is held out for it
        alone = settings.evaluate == "global" and not are_hidden(settings)
        return "heldout" if can_hold_out and alone else "last"
    if chosen in ("validation", "balanced") and not has_validation:
        raise _needs_labels("selection", chosen)
    if chosen == "shares" and not KnowsError.is_on(settings):
        why = f"the error of {settings.method!r} is not known in this run (docs/known-error.md)"
        raise setting_error("selection", chosen, why, "method-mismatch")
    if chosen == "heldout" and not can_hold_out:
        why = f"{settings.method!r} has no such loss"
        raise setting_error("selection", chosen, why, "method-mismatch")
    return str(chosen)


def _choose_calibration(settings: RunConfig) -> str:
    """By what probabilities are calibrated; resolves ``calibration = "auto"``."""
    knows = KnowsError.is_on(settings)
    if settings.calibration == AUTO:
        return "shares" if knows else "none"
    if settings.calibration == "shares" and not knows:
        why = "needs a run that knows its error without labels (docs/known-error.md)"
        raise setting_error("calibration", "shares", why, "method-mismatch")
    return settings.calibration


def choose_test_prior(settings: RunConfig, strategy: type[Strategy], *, own_data: bool) -> str:
    """The class priors at test time; resolves ``test-prior = "auto"``."""
    if settings.test_prior != AUTO:
        return settings.test_prior
    fedul = settings.find(FedULSettings)
    needs_none = fedul is not None and fedul.surrogate_loss == "release"
    # Nobody adds noise to their mean.
    is_noised = any(stage.noises for stage in stages_of(settings))
    asks = own_data and strategy.takes_test_prior and not (needs_none or is_noised)
    return "sets" if asks else "uniform"


def _labeled_points(
    settings: RunConfig, data: ServerData, of_server: LabeledPoints | None
) -> LabeledPoints | None:
    """Labeled training points whose error is also measured, if settings ask for it."""
    if not settings.measure_forgetting:
        return None
    labeled = of_server or data.labeled_by_owners()
    if labeled is None or data.source is None:
        raise _needs_labels("measure-forgetting", True)
    return labeled


def _refuse_bad_references(settings: RunConfig) -> None:
    """Refuse functions of the user's own that clients could not load, before any client starts."""
    for setting, reference in (("optimizer", settings.optimizer), ("augment", settings.augment)):
        if ":" in reference and not callable(load_reference(reference, setting)):
            raise setting_error(setting, reference, "it is no function", "reference-wrong")


def _needs_labels(setting: str, value: object) -> UserError:
    where = "training points with labels in a simulation or at the server"
    if setting != "measure-forgetting":
        where = "labeled data at the server and validation-fraction above 0"
    return setting_error(setting, value, f"needs {where}", "setting-needs-labels")
