"""The command line's ``label``: clients label their own points, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedul_flwr.cli import options
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.config.user_files import user_path
from fedul_flwr.engine.simulate import Simulation, simulate
from fedul_flwr.errors import UserError

_METHOD = "xclp-predict"


def label(
    run_config: options.RunConfigs = None,
    model: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="Directory of a run: compare features of its model."
        ),
    ] = None,
    num_supernodes: options.NumSupernodes = 10,
    output: options.Output = None,
    client_cpus: options.ClientCpus = 1,
    client_gpus: options.ClientGpus = 0.0,
    verbose: options.Verbose = False,
    engine: options.EngineName = "processes",
    ray_address: options.RayAddress = "",
    message_log: options.MessageLog = None,
) -> None:
    """Let clients label their unlabeled points from each other's labels, without training."""
    from fedul_flwr.config.methods import find_method
    from fedul_flwr.config.run_config import resolve

    overrides = {"method": _METHOD, **parse_overrides(run_config or [])}
    method = str(overrides["method"])
    if find_method(method).trains:
        raise UserError(
            f"Setting method = {method!r} trains a model: use fedul-flwr run.",
            "method-mismatch",
            setting="method",
        )
    if output is not None:
        overrides["output"] = str(output)
    if model is not None:
        from fedul_flwr.run.resolve_settings import with_model

        overrides = with_model(overrides, user_path(model))
    config = resolve(overrides, base_dir=Path.cwd())
    directory = simulate(
        config,
        Simulation(num_supernodes, client_cpus, client_gpus, verbose, engine, ray_address),
        named=bool(overrides.get("output")),
        message_log=message_log,
    )
    from fedul_flwr.results.printed_summary import print_summary

    print_summary(directory)
