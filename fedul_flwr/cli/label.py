"""The command line's ``label``: clients label their own points, without training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedul_flwr.cli.options import (
    ClientCpus,
    ClientGpus,
    EngineName,
    MessageLog,
    NumSupernodes,
    Output,
    RayAddress,
    RunConfigs,
    Verbose,
)
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.config.user_files import user_path
from fedul_flwr.engine.simulate import simulate
from fedul_flwr.errors import UserError

_METHOD = "xclp-predict"
_FEATURES = "xclp-predict.features"


def label(
    run_config: RunConfigs = None,
    model: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="Directory of a run: compare features of its model."
        ),
    ] = None,
    num_supernodes: NumSupernodes = 10,
    output: Output = None,
    client_cpus: ClientCpus = 1,
    client_gpus: ClientGpus = 0.0,
    verbose: Verbose = False,
    engine: EngineName = "processes",
    ray_address: RayAddress = "",
    message_log: MessageLog = None,
) -> None:
    """Let clients label their unlabeled points from each other's labels, without training."""
    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.methods import find_method

    overrides = {"method": _METHOD, **parse_overrides(run_config or [])}
    method = str(overrides["method"])
    if find_method(method).trains:
        raise UserError(f"Setting method = {method!r} trains a model: use fedul-flwr run.")
    if output is not None:
        overrides["output"] = str(output)
    if model is not None:
        overrides = with_model(overrides, user_path(model))
    config = resolve(overrides, base_dir=Path.cwd())
    place = simulate(
        config,
        num_supernodes,
        client_cpus,
        client_gpus,
        verbose,
        named=bool(overrides.get("output")),
        engine=engine,
        ray_address=ray_address,
        message_log=message_log,
    )
    from fedul_flwr.results.printed_summary import print_summary

    print_summary(place)


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
    from fedul_flwr.config.model import ModelOptions
    from fedul_flwr.config.own_modules import name_again, require_trusted_modules
    from fedul_flwr.methods import find_method
    from fedul_flwr.results.records import read_config, saved_model
    from fedul_flwr.results.store import BEST_MODEL

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
