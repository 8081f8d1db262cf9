"""The command ``fedul-flwr tune``."""

from __future__ import annotations

import logging
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedul_flwr.cli import options
from fedul_flwr.errors import UserError


def tune(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Table, as fedul/table-1; see reproduce --list."),
    ] = None,
    quick: options.Quick = False,
    rows: options.Rows = None,
    columns: options.Columns = None,
    dataset: options.Datasets = None,
    runs: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Instead of TABLE: file of runs, as in compare."),
    ] = None,
    run_config: options.RunConfigs = None,
    num_supernodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=options.MOST_CLIENTS,
            help="With --runs: number of simulated clients, 10 by default.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="With --runs: directory of trials and search.jsonl."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Number of trials of every row in place of the search file's."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search and of all its trials.")] = 0,
    criterion: Annotated[
        Literal["validation", "balanced", "heldout"],
        typer.Option(
            help="Measure: validation error, the same with all classes weighing equally, or "
            "held-out loss, which needs no label."
        ),
    ] = "validation",
    search: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="Python file with SEARCH, in place of the table's search."
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Number of rows that are searched at the same time.")
    ] = 1,
    device: options.DeviceName = "auto",
    results: options.Results = options.RESULTS,
    experiments: options.Experiments = options.EXPERIMENTS,
) -> None:
    """Search settings for every row of TABLE, as fedul/table-1, without using test errors."""
    if (table is None) == (runs is None):
        raise UserError("tune takes either TABLE or --runs FILE.", "options-contradict")
    from fedul_flwr.config.overrides import parse_overrides
    from fedul_flwr.engine.flower_logs import flower_logs
    from fedul_flwr.experiments.python_files import attribute
    from fedul_flwr.experiments.runs_file import RunsFile, require_committed
    from fedul_flwr.experiments.search import TRIALS, Searches, plan_searches, run_searches
    from fedul_flwr.experiments.search_space import Search
    from fedul_flwr.experiments.studies import require_optuna
    from fedul_flwr.experiments.table import Size, pick, read_table
    from fedul_flwr.experiments.table_plan import Device, plan_columns
    from fedul_flwr.experiments.trial_plan import make_plan, read_runs

    require_optuna()
    asked = None if search is None else attribute(search, "SEARCH", Search)
    if table is not None:
        of_runs = {"-c": run_config, "--num-supernodes": num_supernodes, "--output": output}
        options.refuse_options(of_runs, f"with {table}: leave it out")
        content = read_table(experiments, table)
        if content.benchmark:
            raise UserError(
                f"A benchmark measures {table}: there is nothing to search.", "nothing-to-search"
            )
        size: Size = "quick" if quick else "full"
        names = pick(columns, content.names, "column")
        chosen = pick(rows, [row for row in content.rows if row not in content.chosen_with], "row")
        here = Device(device, options.local_copies(dataset))
        plans = plan_columns(content, names, size, (seed,), here)
        tried, folder = asked or content.search, TRIALS / content.name / size
        file = RunsFile(results, content.name, size).searches
        require_committed(results)
        use = ["fedul-flwr", "reproduce", table, *(["--quick"] if quick else []), "--tuned"]
    else:
        assert runs is not None
        of_table = {"--quick": quick, "--rows": rows, "--columns": columns, "--dataset": dataset}
        options.refuse_options(of_table, "with --runs: leave it out")
        clients, shared = num_supernodes or 10, parse_overrides(run_config or [])
        folder = output or Path("runs") / f"tune-{runs.stem}"
        named = read_runs(runs)
        plans = [make_plan(named, {"device": device, **shared}, (seed,), clients, folder)]
        tried, chosen, file = asked or Search(), list(named), folder / "search.jsonl"
        use = ["fedul-flwr", "compare", "--runs", str(runs)]
        use += [part for text in run_config or [] for part in ("-c", text)]
        use += ["--num-supernodes", str(clients), "--tuned", str(file)]
    if trials is not None:
        tried = replace(tried, trials=trials)
    tasks = plan_searches(
        plans, chosen, Searches(tried, criterion, folder, file, size if table else "")
    )
    with options.resumable(), flower_logs(logging.ERROR):
        failed = run_searches(tasks, jobs, typer.echo)
    typer.echo(f"Search: {file}; {shlex.join(use)} runs the chosen settings, with other --seeds.")
    if failed:
        raise typer.Exit(1)
