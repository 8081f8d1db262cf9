"""The commands ``fedul-flwr compare``, ``reproduce`` and ``tune``."""

from __future__ import annotations

import logging
import shlex
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedul_flwr.cli import options
from fedul_flwr.config.user_files import parse_overrides
from fedul_flwr.data.cores import refuse_cpus
from fedul_flwr.engine.simulate import Simulation, run_here
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from fedul_flwr.config.run_config import RunConfig
    from fedul_flwr.experiments.runs_file import Reproduction
    from fedul_flwr.experiments.table import Size, Table
    from fedul_flwr.experiments.trial_plan import Plan


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
    from fedul_flwr.run.tracking import refuse_missing

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
    for note in plan.notes:
        typer.echo(f"Note: {note}", err=True)

    how = Simulation(num_supernodes, client_cpus, client_gpus, verbose, engine)

    def simulate(config: RunConfig, title: str) -> None:
        run_here(config, how, title)

    with options.resumable():
        table = compare_files.compare(plan, simulate, typer.echo)
    print_rows(plan, table)
    typer.echo(f"Saved: {plan.output}")
    if any(row.failed for row in table):
        raise typer.Exit(1)


# The command ``fedul-flwr reproduce``.


def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="Table, as fedul/table-1; see --list. Or a folder of tables, as reference, or the "
            "path of a table's file, as my_table.py.",
        ),
    ] = None,
    quick: options.Quick = False,
    device: options.DeviceName = "auto",
    seeds: options.Seeds = "0",
    rows: options.Rows = None,
    columns: options.Columns = None,
    dataset: options.Datasets = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Use the settings that fedul-flwr tune chose.")
    ] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Write all tables to docs/tables.md; no runs.")
    ] = False,
    column: Annotated[
        str | None,
        typer.Option(
            "--print",
            metavar="COLUMN",
            help="Print the settings of a column as TOML, or with --rows those of a row; no runs.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Print all tables; no runs.")] = False,
    verify: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Run N trials that have a result once more, and print how far both are apart.",
        ),
    ] = None,
    results: options.Results = options.RESULTS,
    experiments: options.Experiments = options.EXPERIMENTS,
    engine: Annotated[
        Literal["processes", "in-process"],
        typer.Option("--engine", help="What runs the clients; the numbers are the same."),
    ] = "processes",
    verbose: options.Verbose = False,
) -> None:
    """Run the missing trials of TABLE, as fedul/table-1, and compare them with the paper."""
    if [table is not None, render, show].count(True) != 1:
        raise UserError("reproduce takes one of TABLE, --render and --list.", "options-contradict")
    if column is not None and table is None:
        raise UserError("--print takes a TABLE.", "option-without-effect", option="--print")
    if show:
        _list(experiments, results)
        return
    from fedul_flwr.experiments import tables_page

    if table is None:
        tables_page.render(experiments, results)
        typer.echo(f"Tables: {tables_page.PAGE}")
        return
    from fedul_flwr.experiments.runs_file import RunsFile
    from fedul_flwr.experiments.statistics import print_statistics
    from fedul_flwr.experiments.table import pick, read_table, tables_of
    from fedul_flwr.experiments.trial_plan import parse_seeds

    size: Size = "quick" if quick else "full"
    is_set = {"--device": device != "auto", "--seeds": seeds != "0", "--tuned": tuned}
    is_set["--dataset"] = bool(dataset)
    if column is not None:
        from fedul_flwr.experiments.table_plan import flat_file

        options.refuse_options({"--columns": columns, **is_set}, "with --print: leave it out")
        typer.echo(flat_file(read_table(experiments, table), column, size, rows), nl=False)
        return
    names = tables_of(experiments, table)
    contents = [read_table(experiments, name) for name in names]
    chosen = [
        (pick(rows, content.rows, "row"), pick(columns, content.names, "column"))
        for content in contents
    ]
    from fedul_flwr.engine.simulate import Simulation, run_here
    from fedul_flwr.experiments.runs_file import Reproduction
    from fedul_flwr.experiments.table_plan import Device

    failed, statistics = 0, []
    for content, (of_rows, of_columns) in zip(contents, chosen, strict=True):
        if content.benchmark:
            ineffective = {"--quick": quick, **is_set} if len(names) == 1 else {}
            _print_benchmark(content, of_rows, of_columns, ineffective)
            continue
        task = Reproduction(
            content,
            RunsFile(results, content.name, size, tuned),
            Device(device, options.local_copies(dataset)),
            run=lambda config, clients, title: run_here(
                config,
                Simulation(clients, 1, _client_gpus(config), verbose, engine),
                title,
            ),
            say=typer.echo,
        )
        if verify is not None:
            options.refuse_options({"--seeds": seeds != "0"}, "with --verify: leave it out")
            _verify(task, of_rows, of_columns, verify)
            continue
        table_failed, runs = _run_and_print(task, of_rows, of_columns, parse_seeds(seeds))
        failed += table_failed
        statistics.append((content, runs, of_rows, of_columns))
    for of in statistics if names != [table] else ():
        print_statistics(*of)
    if failed:
        raise typer.Exit(1)


def _print_benchmark(
    table: Table, rows: list[str], columns: list[str], ineffective: Mapping[str, object]
) -> None:
    """Print the paper's figures of a table that a benchmark measures; it takes no options."""
    from fedul_flwr.experiments.paper_table import lines, print_lines
    from fedul_flwr.experiments.runs_file import no_runs

    options.refuse_options(ineffective, f"on {table.name}: a benchmark measures it")
    typer.echo(f"A benchmark measures {table.name}: {table.benchmark}")
    print_lines(table, None, list(lines(table, no_runs(), rows, columns)))


def _run_and_print(
    task: Reproduction, rows: list[str], columns: list[str], seeds: tuple[int, ...]
) -> tuple[int, pd.DataFrame]:
    """Print the table after the missing trials; how many failed, and the runs that it shows."""
    from fedul_flwr.experiments import tables_page
    from fedul_flwr.experiments.paper_table import lines, print_lines

    table, size = task.table, task.file.size
    plans = _plans(task, dict.fromkeys(columns, rows), seeds)
    if size == "full" and any(task.missing(plan, rows) for plan in plans):
        import torch

        if task.device.name == "cpu" or not torch.cuda.is_available():
            typer.echo(
                "Warning: without a GPU each run at full size takes hours to days. "
                "--quick runs a small size made for two cores.",
                err=True,
            )
    with options.resumable():
        failed = task.run_missing(plans, rows)
    typer.echo(f"Results: {task.file.path}; reproduce --render writes them to docs/tables.md.")
    runs = task.file.read()
    wanted = {"row": rows, "column": columns, "seed": seeds}
    chosen = runs[runs[[*wanted]].isin(wanted).all(axis="columns")]
    tables_page.check_runs(table, task.file, chosen)
    print_lines(table, (size, task.file.tuned), list(lines(table, chosen, rows, columns)))
    return failed, chosen


def _client_gpus(config: RunConfig) -> float:
    """GPUs of each process: one, where the run may use GPUs and there are any."""
    from fedul_flwr.learning.device import choose_device

    return 1.0 if choose_device(config.device).type == "cuda" else 0.0


def _plans(
    task: Reproduction, rows: Mapping[str, Sequence[str]], seeds: tuple[int, ...]
) -> Sequence[Plan]:
    """The trials of ``rows`` of each column, with the settings that a search chose if asked."""
    from fedul_flwr.experiments.studies import tuned_rows
    from fedul_flwr.experiments.table_plan import plan_columns

    table, size = task.table, task.file.size
    wanted = {
        column: {row: seeds for row in names if row in table.column(column, size).rows}
        for column, names in rows.items()
    }
    chosen = tuned_rows(table, task.file, wanted) if task.file.tuned else None
    return plan_columns(table, list(rows), size, seeds, task.device, chosen)


def _verify(task: Reproduction, rows: list[str], columns: list[str], count: int) -> None:
    """Run ``count`` stored trials again; the exit code is 1 if there are none."""
    stored: dict[int, dict[str, list[str]]] = {}
    for row, column, seed in task.file.by_key():
        if row in rows and column in columns:
            stored.setdefault(seed, {}).setdefault(column, []).append(row)
    plans = [plan for seed in sorted(stored) for plan in _plans(task, stored[seed], (seed,))]
    largest = task.verify(plans, rows, count)
    typer.echo(f"Largest difference: {largest:.2f} percentage points.")


def _list(experiments: Path, results: Path) -> None:
    from fedul_flwr.experiments.runs_file import RunsFile, age
    from fedul_flwr.experiments.table import SIZES, read_table, table_names

    for name in table_names(experiments):
        table = read_table(experiments, name)
        cells = sum(len(table.column(column).rows) for column in table.names)
        kind = "a benchmark" if table.benchmark else f"{cells} runs a seed"
        stored = []
        for size, is_tuned in product(SIZES, (False, True)):
            file = RunsFile(results, name, size, is_tuned)
            if count := len(runs := file.read()):
                stored.append(f"{count} {file.kind}{age(runs)}")
        text = "; ".join(stored) or "none"
        typer.echo(f"{name}: {table.title} ({kind}; results: {text})")


# The command ``fedul-flwr tune``.


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
    from fedul_flwr.config.user_files import attribute, parse_overrides
    from fedul_flwr.engine.shell import flower_logs
    from fedul_flwr.experiments.runs_file import RunsFile, require_committed
    from fedul_flwr.experiments.search import TRIALS, Searches, plan_searches, run_searches
    from fedul_flwr.experiments.search_space import Search
    from fedul_flwr.experiments.studies import require_optuna
    from fedul_flwr.experiments.table import pick, read_table
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
