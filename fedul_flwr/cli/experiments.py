"""The commands ``fedul-flwr compare``, ``reproduce`` and ``tune``."""

from __future__ import annotations

import json
import shlex
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedul_flwr.cli import options
from fedul_flwr.config.options import Comparing, Reproducing, Simulation, Tuning
from fedul_flwr.config.user_files import parse_overrides
from fedul_flwr.engine.simulate import run_here
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from fedul_flwr.config.run_config import RunConfig
    from fedul_flwr.experiments.runs_file import RunsFile
    from fedul_flwr.experiments.search import RowSearch
    from fedul_flwr.experiments.table import Size, Table
    from fedul_flwr.experiments.table_plan import Device
    from fedul_flwr.experiments.trial import Key, Simulate, Trial


@options.with_options
def compare(
    how: Comparing,
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
    run_config: options.RunConfigs = None,
) -> None:
    """Compare methods on the same splits and seeds; the same command resumes a stopped one."""
    if (runs is None) == (methods is None):
        raise UserError(
            "compare takes either --runs FILE or --methods a,b,c.", "options-contradict"
        )
    from fedul_flwr.api.actions import compare as compare_runs
    from fedul_flwr.experiments.compare_table import print_runs
    from fedul_flwr.experiments.trial_plan import method_runs, read_runs

    rows = method_runs(methods or "") if runs is None else read_runs(runs)
    name = "" if runs is None else runs.stem
    with options.resumable():
        compared = compare_runs(rows, parse_overrides(run_config or []), how, typer.echo, name)
    print_runs(compared)
    typer.echo(f"Saved: {compared.plan.output}")
    if compared.ranked["failed"].any():
        raise typer.Exit(1)


# The command ``fedul-flwr reproduce``.


@options.with_options
def reproduce(
    how: Reproducing,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="Table, as fedul/table-1; see --list. Or a folder of tables, as reference, or the "
            "path of a table's file, as my_table.py.",
        ),
    ] = None,
    quick: options.Quick = False,
    seeds: Annotated[str, typer.Option(help="Seeds of every run, separated by commas.")] = "0",
    rows: options.Rows = None,
    columns: options.Columns = None,
    dataset: options.Datasets = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Use the settings that fedul-flwr tune chose.")
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
) -> None:
    """Run the missing trials of TABLE, as fedul/table-1, and compare them with the paper."""
    if (table is None) != show:
        raise UserError("reproduce takes either TABLE or --list.", "options-contradict")
    if column is not None and table is None:
        raise UserError("--print takes a TABLE.", "option-without-effect", option="--print")
    if table is None:
        _list(experiments, results)
        return
    from fedul_flwr.experiments.paper_table import print_ranks
    from fedul_flwr.experiments.runs_file import RunsFile
    from fedul_flwr.experiments.table import pick, read_table, tables_of
    from fedul_flwr.experiments.table_plan import Device, flat_file
    from fedul_flwr.experiments.trial_plan import seeds_of

    size: Size = "quick" if quick else "full"
    is_set = {"--device": how.device != "auto", "--seeds": seeds != "0", "--tuned": tuned}
    is_set["--dataset"] = bool(dataset)
    if column is not None:
        options.refuse_options({"--columns": columns, **is_set}, "with --print: leave it out")
        typer.echo(flat_file(read_table(experiments, table), column, size, rows), nl=False)
        return
    names = tables_of(experiments, table)
    contents = [read_table(experiments, name) for name in names]
    chosen = [
        (pick(rows, content.rows, "row"), pick(columns, content.names, "column"))
        for content in contents
    ]

    def simulate(trial: Trial, config: RunConfig, title: str) -> None:
        of_trial = {"clients": trial.clients, "client_gpus": _client_gpus(config)}
        run_here(config, Simulation(engine=how.engine, verbose=how.verbose, **of_trial), title)

    failed, statistics = 0, []
    for content, (of_rows, of_columns) in zip(contents, chosen, strict=True):
        if content.benchmark:
            ineffective = {"--quick": quick, **is_set} if len(names) == 1 else {}
            _print_benchmark(content, of_rows, of_columns, ineffective)
            continue
        file = RunsFile(results, content.name, size, tuned)
        here = Device(how.device, options.local_copies(dataset))
        if verify is not None:
            options.refuse_options({"--seeds": seeds != "0"}, "with --verify: leave it out")
            _verify(content, file, here, (of_rows, of_columns), verify, simulate)
            continue
        cells = product(of_columns, of_rows, seeds_of(seeds))
        keys = [(row, column, seed) for column, row, seed in cells]
        table_failed, runs = _run_and_print(content, file, here, keys, simulate)
        failed += table_failed
        statistics.append((content, runs, of_rows, of_columns))
    for of in statistics if names != [table] else ():
        print_ranks(*of)
    if failed:
        raise typer.Exit(1)


def _client_gpus(config: RunConfig) -> float:
    """GPUs of each process: one, where the run may use GPUs and there are any."""
    from fedul_flwr.learning.device import choose_device

    return 1.0 if choose_device(config.device).type == "cuda" else 0.0


def _print_benchmark(
    table: Table, rows: list[str], columns: list[str], ineffective: Mapping[str, object]
) -> None:
    """Print the paper's figures of a table that a benchmark measures; it takes no options."""
    from fedul_flwr.experiments.paper_table import figures, print_figures
    from fedul_flwr.experiments.runs_file import RunsFile

    options.refuse_options(ineffective, f"on {table.name}: a benchmark measures it")
    typer.echo(f"A benchmark measures {table.name}: {table.benchmark}")
    no_runs = RunsFile(Path(), table.name, "full").read()
    print_figures(table, None, figures(table, no_runs, rows, columns))


def _run_and_print(
    table: Table, file: RunsFile, device: Device, keys: Sequence[Key], simulate: Simulate
) -> tuple[int, pd.DataFrame]:
    """Print the table after the missing trials; how many failed, and the runs that it shows."""
    from fedul_flwr.experiments.paper_table import figures, print_figures
    from fedul_flwr.experiments.reproduction import check_runs, missing, plan_cells, run_missing

    trials = plan_cells(table, file, keys, device)
    if file.size == "full" and missing(file, trials):
        import torch

        if device.name == "cpu" or not torch.cuda.is_available():
            typer.echo(
                "Warning: without a GPU each run at full size takes hours to days. "
                "--quick runs a small size made for two cores.",
                err=True,
            )
    with options.resumable():
        failed = run_missing(file, trials, device.datasets, simulate, typer.echo)
    typer.echo(f"Results: {file.path}.")
    stored = file.read()
    runs = stored[stored.index.isin(keys)]
    check_runs(table, file, runs)
    rows, columns = ([*dict.fromkeys(names)] for names in list(zip(*keys, strict=True))[:2])
    print_figures(table, (file.size, file.tuned), figures(table, runs, rows, columns))
    return failed, runs


def _verify(
    table: Table,
    file: RunsFile,
    device: Device,
    cells: tuple[Sequence[str], Sequence[str]],
    count: int,
    simulate: Simulate,
) -> None:
    """Run ``count`` stored trials again; the exit code is 1 if there are none."""
    from fedul_flwr.experiments.reproduction import plan_cells, verify

    rows, columns = cells
    keys = [key for key in file.read().index if key[0] in rows and key[1] in columns]
    trials = plan_cells(table, file, keys, device)
    largest = verify(file, trials, count, simulate, typer.echo)
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


@options.with_options
def tune(
    how: Tuning,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]",
            help="Table, as fedul/table-1; see reproduce --list. Without it, and without --runs: "
            "the run with the settings of -c.",
        ),
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
    results: options.Results = options.RESULTS,
    experiments: options.Experiments = options.EXPERIMENTS,
) -> None:
    """Search settings of a run, or of every row of TABLE, as fedul/table-1, without test errors."""
    from fedul_flwr.api import actions
    from fedul_flwr.experiments.studies import require_optuna

    if table is not None and runs is not None:
        raise UserError("tune takes either TABLE or --runs FILE.", "options-contradict")
    require_optuna()
    if table is not None:
        of_runs = {"-c": run_config, "--num-supernodes": how.clients, "--output": how.output}
        options.refuse_options(of_runs, f"with {table}: leave it out")
        from fedul_flwr.experiments.runs_file import RunsFile, require_committed
        from fedul_flwr.experiments.search import TRIALS
        from fedul_flwr.experiments.table import pick, read_table
        from fedul_flwr.experiments.table_plan import Device, plan_columns

        content = read_table(experiments, table)
        size: Size = "quick" if quick else "full"
        if content.benchmark:
            raise UserError(
                f"A benchmark measures {table}: there is nothing to search.", "nothing-to-search"
            )
        names = pick(columns, content.names, "column")
        chosen = pick(rows, [row for row in content.rows if row not in content.chosen_with], "row")
        here = Device(how.device, options.local_copies(dataset))
        planned = plan_columns(content, names, size, (how.seed,), here)
        planned = [trial for trial in planned if trial.row in chosen]
        folder, file = TRIALS / content.name / size, RunsFile(results, content.name, size).searches
        require_committed(results)
        with options.resumable():
            tasks, failed = actions.search(
                planned, content.search, how, folder, file, typer.echo, size
            )
        use = ["fedul-flwr", "reproduce", table, *(["--quick"] if quick else []), "--tuned"]
    else:
        of_table = {"--quick": quick, "--rows": rows, "--columns": columns, "--dataset": dataset}
        options.refuse_options(of_table, "without TABLE: leave it out")
        from fedul_flwr.experiments.trial_plan import read_runs

        shared = parse_overrides(run_config or [])
        named = {str(shared.get("method", "fedul")): {}} if runs is None else read_runs(runs)
        with options.resumable():
            tasks, failed = actions.tune(
                named, shared, how, typer.echo, "" if runs is None else runs.stem
            )
        file = tasks[0].file
        use = [part for text in run_config or [] for part in ("-c", text)]
        use += ["--num-supernodes", str(how.number)]
        use = ["fedul-flwr", "compare", "--runs", str(runs), *use, "--tuned", str(file)]
    if table is None and runs is None:
        _print_run(tasks[0], run_config or [], how.number)
    else:
        text = f"{shlex.join(use)} runs the chosen settings, with other --seeds."
        typer.echo(f"Search: {file}; {text}")
    if failed:
        raise typer.Exit(1)


def _print_run(task: RowSearch, run_config: Sequence[str], clients: int) -> None:
    """Print the command of a run with the chosen settings, on a split that no trial saw."""
    from fedul_flwr.experiments.studies import chosen_settings, read_studies

    settings = chosen_settings(read_studies(task.file)[task.name])
    if settings is None:
        typer.echo(f"Search: {task.file}")
        return
    chosen = {**settings, "seed": task.trial.seed + 1}
    use = [part for text in run_config for part in ("-c", text)]
    use += ["-c", " ".join(f"{key}={json.dumps(value)}" for key, value in chosen.items())]
    words = ["fedul-flwr", "run", *use, "--num-supernodes", str(clients)]
    typer.echo(f"Search: {task.file}; this runs the chosen settings, with another seed:")
    typer.echo(shlex.join(words))
