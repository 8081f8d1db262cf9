"""Settings of a run that takes the model of an earlier one for its features."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedul_flwr.config.methods import find_method
from fedul_flwr.config.own_modules import name_again, require_trusted_modules
from fedul_flwr.config.training_settings import ModelOptions
from fedul_flwr.config.user_files import user_path
from fedul_flwr.data.run_files.records import read_config, saved_model
from fedul_flwr.data.run_files.store import BEST_MODEL
from fedul_flwr.errors import UserError

_METHOD = "xclp-predict"
_FEATURES = "xclp-predict.features"


def with_model(overrides: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """``overrides`` plus settings for features from an earlier run's model.

    Parameters
    ----------
    overrides : flat settings, with the method.
    directory : absolute path of the run.

    Raises
    ------
    UserError
        If it is not a run with a model, or ``overrides`` contradict its settings.
    """

    saved, _ = read_config(directory)
    if not (directory / BEST_MODEL).is_file():
        raise UserError(f"--model {directory}: the run holds no {BEST_MODEL}.")
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
        given = overrides.get(key, value)
        if key == "start-from":
            given = str(user_path(given))
        if given != value:
            raise UserError(
                f"Setting {key} = {overrides[key]!r} contradicts --model, "
                f"which means {value!r}: leave one of them out."
            )
    return {**overrides, **implied}
