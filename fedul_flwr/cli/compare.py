"""The command ``fedul-flwr compare``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedul_flwr.cli import options
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.data.cores import refuse_cpus
from fedul_flwr.engine.simulate import Simulation, run_here
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.config.run_config import RunConfig


def compare(
    runs: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="TOML file with a table for each run, or Python file with ROWS.",
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Instead of --runs: methods, as fedul,supervised.")
    ] = None,
    seeds: options.Seeds = "0,1,2",
    run_config: options.RunConfigs = None,
    tuned: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="Use the settings that fedul-flwr tune chose: its search.jsonl."
        ),
    ] = None,
    measures: Annotated[
        str,
        typer.Option(
            help="Columns beside the test error: some of balanced-accuracy, auc, ece, nll, brier."
        ),
    ] = "",
    num_supernodes: options.NumSupernodes = 10,
    output: options.Output = None,
    client_cpus: options.ClientCpus = 1,
    client_gpus: options.ClientGpus = 0.0,
    verbose: options.Verbose = False,
    engine: options.EngineName = "processes",
) -> None:
    """Compare methods on the same splits and seeds; the same command resumes a stopped one."""
    if (runs is None) == (methods is None):
        raise UserError(
            "compare takes either --runs FILE or --methods a,b,c.", "options-contradict"
        )
    from fedul_flwr.experiments import compare_files, trial_plan
    from fedul_flwr.experiments.compare_table import parse_measures, print_rows
    from fedul_flwr.results.tracking import refuse_missing

    columns = parse_measures(measures)
    if runs is not None:
        rows, name = trial_plan.read_runs(runs), runs.stem
    else:
        rows = trial_plan.method_runs(methods or "")
        name = "-".join(map(trial_plan.slug, rows))
    shared = parse_overrides(run_config or [])
    folder = output or Path("runs") / f"compare-{name}{'-tuned' if tuned else ''}"
    numbers = trial_plan.parse_seeds(seeds)
    plan = trial_plan.make_plan(rows, shared, numbers, num_supernodes, folder)
    if tuned is not None:
        from fedul_flwr.experiments.studies import tuned_runs

        chosen = tuned_runs(plan, tuned)
        shared = trial_plan.in_effect(chosen, shared)
        plan = trial_plan.make_plan(chosen, shared, numbers, num_supernodes, folder)
    plan = replace(plan, measures=columns)
    for trial in plan.trials:
        refuse_missing(trial.config.tracking)
    if engine != "in-process":
        refuse_cpus(client_cpus)
    for warning in plan.split_warnings:
        typer.echo(f"Warning: {warning}", err=True)

    how = Simulation(num_supernodes, client_cpus, client_gpus, verbose, engine)

    def simulate(config: RunConfig, title: str) -> None:
        run_here(config, how, title)

    with options.resumable():
        table = compare_files.compare(plan, simulate, typer.echo)
    print_rows(plan, table)
    typer.echo(f"Saved: {plan.output}")
    if any(row.failed for row in table):
        raise typer.Exit(1)
