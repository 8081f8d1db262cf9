"""``fedul-flwr run --federation NAME``: a run among owners' own machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

Federation = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Run on owners' machines instead: a SuperLink that Flower's configuration names "
        "(docs/deployment.md).",
    ),
]


def run_on_federation(name: str, overrides: Mapping[str, Any], verbose: bool) -> None:
    """Run among the SuperNodes of SuperLink ``name``, and print the summary.

    Parameters
    ----------
    overrides : flat settings.
    verbose : whether to show the run's log.

    Raises
    ------
    UserError
        If the run fails, or Flower refuses it.
    """
    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.engine.deployed import run_deployed
    from fedul_flwr.engine.simulate import plan_rounds
    from fedul_flwr.results.printed_summary import print_summary

    config = resolve(overrides, base_dir=Path.cwd())
    if config.resume and "num-rounds" in overrides:
        config = plan_rounds(config, int(overrides["num-rounds"]))
    named = bool(config.resume or overrides.get("output"))
    typer.echo(f"Asking SuperLink {name} …")
    place = run_deployed(config, name, verbose, named=named)
    if place is None:
        typer.echo(f"Finished. The results are on the SuperLink's machine, in {config.output}.")
    else:
        print_summary(place)
