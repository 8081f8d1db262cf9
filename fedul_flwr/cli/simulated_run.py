"""The commands ``fedul-flwr run``, simulated or among owners' machines, and ``fedul-flwr demo``."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from fedul_flwr.cli.options import RunConfigs, flag_of, refuse_options, with_options
from fedul_flwr.config.options import Clients, Labeling, Resumable, Simulation
from fedul_flwr.config.user_files import parse_overrides
from fedul_flwr.engine.shell import load_early
from fedul_flwr.engine.simulate import label_points, plan_rounds, resolved, run_here, simulate

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


@with_options
def run(how: Resumable, run_config: RunConfigs = None, federation: Federation = None) -> None:
    """Simulate a federation, or run on a deployed one, and print a summary."""
    overrides = parse_overrides(run_config or [])
    if federation is None:
        directory: Path | None = simulate(overrides, how)
    else:
        of_simulations = {
            flag_of(name, field): getattr(how, name) != field.default
            for name, field in Simulation.model_fields.items()
            if name not in ("output", "verbose")
        }
        refuse_options(of_simulations, "with --federation: leave it out")
        from fedul_flwr.engine.flower_run import run_deployed

        config, is_named = resolved(overrides, how)
        if config.resume and "num-rounds" in overrides:
            config = plan_rounds(config, config.num_rounds)
        typer.echo(f"Asking SuperLink {federation} …")
        directory = run_deployed(config, federation, how.verbose, named=is_named)
        if directory is None:
            where = f"on the SuperLink's machine, in {config.output}"
            typer.echo(f"Finished. The results are {where}.")
    if directory is not None:
        from fedul_flwr.results.facts import print_summary

        print_summary(directory)


@with_options
def demo(how: Clients) -> None:
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
        run_here(resolve(overrides, base_dir=Path.cwd()), Simulation(clients=how.clients))
    from fedul_flwr.results.facts import print_comparison

    print_comparison(outputs, time.monotonic() - start)


@with_options
def label(how: Labeling, run_config: RunConfigs = None) -> None:
    """Let clients label their unlabeled points from each other's labels, without training."""
    from fedul_flwr.results.facts import print_summary

    print_summary(label_points(parse_overrides(run_config or []), how))
