"""The commands ``fedul-flwr run``, simulated or among owners' machines, and ``fedul-flwr demo``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedul_flwr.cli import options
from fedul_flwr.config.user_files import parse_overrides, user_path
from fedul_flwr.engine.shell import load_early
from fedul_flwr.engine.simulate import (
    Simulation,
    number_of_clients,
    plan_rounds,
    run_here,
    simulate,
)
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    pass


Federation = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Run on owners' machines instead: a SuperLink that Flower's configuration names "
        "(docs/deployment.md).",
    ),
]
_DEMO_DIRECTORY = Path("runs/demo")
_DEMO_SELECTION = {"fedul": "heldout", "supervised": "validation"}
"""Methods of the demo, and the criterion of each one's best round. FedUL uses its own loss on
clients' held-out points, so that its result does not depend on any label."""


def run(
    run_config: options.RunConfigs = None,
    num_supernodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=options.MOST_CLIENTS,
            help="Number of simulated clients, 10 by default; --resume knows it.",
        ),
    ] = None,
    output: options.Output = None,
    resume: Annotated[
        Path | None, typer.Option(file_okay=False, help="Interrupted run to go on with.")
    ] = None,
    client_cpus: options.ClientCpus = 1,
    client_gpus: options.ClientGpus = 0.0,
    verbose: options.Verbose = False,
    engine: options.EngineName = "processes",
    ray_address: options.RayAddress = "",
    federation: Federation = None,
) -> None:
    """Simulate a federation, or run on a deployed one, and print a summary."""
    if engine == "processes" and federation is None:
        load_early()
    from fedul_flwr.config.run_config import resolve

    overrides = parse_overrides(run_config or [])
    for key, path in (("output", output), ("resume", resume)):
        if path is not None:
            overrides[key] = str(path)
    if federation is not None:
        of_simulations = {
            "--num-supernodes": num_supernodes,
            "--client-cpus": client_cpus != 1,
            "--client-gpus": client_gpus,
            "--engine": engine != "processes",
            "--ray-address": ray_address,
        }
        options.refuse_options(of_simulations, "with --federation: leave it out")
        _run_on_federation(federation, overrides, verbose)
        return
    config = resolve(overrides, base_dir=Path.cwd())
    clients = number_of_clients(config, num_supernodes)
    if config.resume and "num-rounds" in overrides:
        config = config.model_copy(update={"num_rounds": int(overrides["num-rounds"])})
    directory = simulate(
        config,
        Simulation(clients, client_cpus, client_gpus, verbose, engine, ray_address),
        named=bool(config.resume or overrides.get("output")),
    )
    from fedul_flwr.results.facts import print_summary

    print_summary(directory)


def _run_on_federation(name: str, overrides: Mapping[str, Any], verbose: bool) -> None:
    """Run among the SuperNodes of SuperLink ``name``, and print the summary."""
    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.engine.flower_run import run_deployed
    from fedul_flwr.results.facts import print_summary

    config = resolve(overrides, base_dir=Path.cwd())
    if config.resume and "num-rounds" in overrides:
        config = plan_rounds(config, int(overrides["num-rounds"]))
    named = bool(config.resume or overrides.get("output"))
    typer.echo(f"Asking SuperLink {name} …")
    directory = run_deployed(config, name, verbose, named=named)
    if directory is None:
        typer.echo(f"Finished. The results are on the SuperLink's machine, in {config.output}.")
    else:
        print_summary(directory)


def demo(
    num_supernodes: options.NumSupernodes = 10,
) -> None:
    """Learn handwritten digits without labels, and compare with all labels on the same split."""
    load_early()
    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.data.run_files.store import require_unlocked

    start = time.monotonic()
    outputs: dict[str, Path] = {}
    for method, selection in _DEMO_SELECTION.items():
        outputs[method] = Path.cwd() / _DEMO_DIRECTORY / method
        require_unlocked(outputs[method])
        shutil.rmtree(outputs[method], ignore_errors=True)
        output = str(outputs[method])
        overrides = {"method": method, "selection": selection, "output": output}
        config = resolve(overrides, base_dir=Path.cwd())
        run_here(config, Simulation(num_supernodes))
    from fedul_flwr.results.facts import print_comparison

    print_comparison(outputs, time.monotonic() - start)


# The command line's ``label``: clients label their own points, without training.

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
    )
    from fedul_flwr.results.facts import print_summary

    print_summary(directory)
