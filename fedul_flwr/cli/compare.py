"""The command line's ``compare``; see :mod:`fedul_flwr.experiments`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedul_flwr.cli.options import (
    ClientCpus,
    ClientGpus,
    InProcess,
    NumSupernodes,
    Output,
    RunConfigs,
    Verbose,
)
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.engine.simulate import run_here, run_on
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.config.run_config import RunConfig
    from fedul_flwr.engine.submit import LocalSuperLink


def compare(
    runs: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="TOML file with a table of settings for each run."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Instead of --runs: methods, as in fedul,supervised.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds of every run.")] = "0,1,2",
    run_config: RunConfigs = None,
    tuned: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="search.json of fedul-flwr tune: settings it chose."),
    ] = None,
    num_supernodes: NumSupernodes = 10,
    output: Output = None,
    client_cpus: ClientCpus = 1,
    client_gpus: ClientGpus = 0.0,
    verbose: Verbose = False,
    in_process: InProcess = False,
) -> None:
    """Compare methods on the same splits and seeds; continues where it was stopped."""
    if (runs is None) == (methods is None):
        raise UserError("compare takes either --runs FILE or --methods a,b,c.")
    from fedul_flwr.experiments import trial_plan as planning
    from fedul_flwr.experiments.compare_table import print_table
    from fedul_flwr.experiments.run_trials import run_cells
    from fedul_flwr.results.tracking import refuse_missing

    if runs is not None:
        wanted, name = planning.read_runs(runs), runs.stem
    else:
        wanted = planning.method_runs(methods or "")
        name = "-".join(map(planning.slug, wanted))
    shared = parse_overrides(run_config or [])
    place = output or Path("runs") / f"compare-{name}{'-tuned' if tuned else ''}"
    plan = planning.make_plan(wanted, shared, planning.parse_seeds(seeds), num_supernodes, place)
    if tuned is not None:
        from fedul_flwr.experiments.tuned_settings import tuned_runs

        plan = planning.make_plan(
            tuned_runs(plan, tuned), shared, plan.seeds, num_supernodes, place
        )
    for cell in plan.cells:
        refuse_missing(cell.config.tracking)
    for warning in plan.split_warnings:
        typer.echo(f"Warning: {warning}", err=True)

    @contextlib.contextmanager
    def simulation() -> Iterator[Callable[[RunConfig, str], None]]:
        if in_process:
            yield lambda config, title: run_here(config, num_supernodes, verbose, title)
            return
        with _SuperLinks() as superlinks:
            yield lambda config, title: run_on(
                superlinks.running(),
                config,
                num_supernodes,
                client_cpus,
                client_gpus,
                verbose,
                title,
            )

    try:
        with simulation() as simulate:
            rows = run_cells(plan, simulate, typer.echo)
    except KeyboardInterrupt:
        typer.echo("The same command goes on from here.", err=True)
        raise
    print_table(plan, rows)
    typer.echo(f"Saved: {plan.output}")
    if any(row.failed for row in rows):
        raise typer.Exit(1)


class _SuperLinks(contextlib.ExitStack):
    """One SuperLink for all cells, started on first use, and restarted if it dies."""

    _current: LocalSuperLink | None = None

    def running(self) -> LocalSuperLink:
        from fedul_flwr.engine.submit import LocalSuperLink

        if self._current is None or self._current.exit_code() is not None:
            typer.echo("Starting Flower's simulation …")
            self._current = self.enter_context(LocalSuperLink())
        return self._current
