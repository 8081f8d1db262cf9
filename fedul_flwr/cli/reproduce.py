"""The command ``fedul-flwr reproduce``."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedul_flwr.cli import options
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from fedul_flwr.config.run_config import RunConfig
    from fedul_flwr.experiments.table import Size, Table
    from fedul_flwr.experiments.table_runs import Reproduction
    from fedul_flwr.experiments.trial_plan import Plan


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
        from fedul_flwr.experiments.flat_file import flat_file

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
    from fedul_flwr.experiments.table_plan import Device
    from fedul_flwr.experiments.table_runs import Reproduction

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
