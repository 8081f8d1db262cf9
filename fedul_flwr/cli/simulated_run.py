"""The commands ``fedul-flwr run`` and ``fedul-flwr demo``."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from fedul_flwr.cli.federation import Federation, run_on_federation
from fedul_flwr.cli.options import (
    MOST_CLIENTS,
    ClientCpus,
    ClientGpus,
    EngineName,
    MessageLog,
    NumSupernodes,
    Output,
    RayAddress,
    RunConfigs,
    Verbose,
    refuse_given,
)
from fedul_flwr.cli.searched_run import searched
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.engine.fork_server import load_early
from fedul_flwr.engine.simulate import number_of_clients, run_here, simulate

_DEMO_DIRECTORY = Path("runs/demo")
_DEMO_SELECTION = {"fedul": "heldout", "supervised": "validation"}
"""Methods of the demo, and the criterion of each one's best round. FedUL uses its own loss on
clients' held-out points, so that its result does not depend on any label."""


def run(
    run_config: RunConfigs = None,
    num_supernodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_CLIENTS,
            help="Number of simulated clients, 10 by default; --resume knows it.",
        ),
    ] = None,
    output: Output = None,
    resume: Annotated[
        Path | None, typer.Option(file_okay=False, help="Interrupted run to go on with.")
    ] = None,
    client_cpus: ClientCpus = 1,
    client_gpus: ClientGpus = 0.0,
    keep_superlink: Annotated[
        bool, typer.Option("--keep-superlink", help="Leave the SuperLink running at the end.")
    ] = False,
    verbose: Verbose = False,
    engine: EngineName = "processes",
    ray_address: RayAddress = "",
    message_log: MessageLog = None,
    federation: Federation = None,
    tune: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="TRIALS",
            help="First search settings with so many trials, by validation labels; 12 are usual.",
        ),
    ] = None,
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
            "--keep-superlink": keep_superlink,
            "--engine": engine != "processes",
            "--ray-address": ray_address,
            "--message-log": message_log,
            "--tune": tune,
        }
        refuse_given(of_simulations, "with --federation: leave it out")
        run_on_federation(federation, overrides, verbose)
        return
    if tune is not None:
        refuse_given({"--resume": overrides.get("resume")}, "with --tune: leave it out")
    config = resolve(overrides, base_dir=Path.cwd())
    clients = number_of_clients(config, num_supernodes)
    if tune is not None:
        overrides |= searched(config, overrides, clients, tune)
        config = resolve(overrides, base_dir=Path.cwd())
    if config.resume and "num-rounds" in overrides:
        config = config.model_copy(update={"num_rounds": int(overrides["num-rounds"])})
    place = simulate(
        config,
        clients,
        client_cpus,
        client_gpus,
        verbose,
        named=bool(config.resume or overrides.get("output")),
        engine=engine,
        keep_superlink=keep_superlink,
        ray_address=ray_address,
        message_log=message_log,
    )
    from fedul_flwr.results.printed_summary import print_summary

    print_summary(place)


def demo(
    num_supernodes: NumSupernodes = 10,
) -> None:
    """Learn handwritten digits without labels, and compare with all labels on the same split."""
    load_early()
    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.data.run_files.run_lock import refuse_held

    start = time.monotonic()
    outputs: dict[str, Path] = {}
    for method, selection in _DEMO_SELECTION.items():
        outputs[method] = Path.cwd() / _DEMO_DIRECTORY / method
        refuse_held(outputs[method])
        shutil.rmtree(outputs[method], ignore_errors=True)
        output = str(outputs[method])
        overrides = {"method": method, "selection": selection, "output": output}
        config = resolve(overrides, base_dir=Path.cwd())
        run_here(config, num_supernodes)
    from fedul_flwr.results.printed_summary import print_comparison

    print_comparison(outputs, time.monotonic() - start)
