"""The command line's ``reproduce``; see :mod:`fedul_flwr.experiments`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedul_flwr.cli.options import Verbose
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.experiments.table_file import Size, Table


def reproduce(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="As fedul/table-1; see --list.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="At a size for two cores, not the paper's.")
    ] = False,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="What models are trained on.")
    ] = "auto",
    seeds: Annotated[str, typer.Option(help="Seeds of every run.")] = "0",
    rows: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    columns: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="Local copy of a data set; may be repeated."),
    ] = None,
    tuned: Annotated[
        bool,
        typer.Option("--tuned", help="With the settings that fedul-flwr tune chose."),
    ] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Write all tables to docs/tables.md; no runs.")
    ] = False,
    column: Annotated[
        str | None,
        typer.Option(
            "--print",
            metavar="COLUMN",
            help="Write the settings of a column, or with --rows of a cell, as TOML; no runs.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show all tables; no runs.")] = False,
    results: Annotated[Path, typer.Option(file_okay=False, help="Where results are kept.")] = Path(
        "results"
    ),
    experiments: Annotated[
        Path, typer.Option(file_okay=False, help="Where tables are described.")
    ] = Path("experiments"),
    verbose: Verbose = False,
) -> None:
    """Run the missing experiments of a paper's table, and compare the results with the paper's."""
    if [table is not None, render, show].count(True) != 1:
        raise UserError("reproduce takes one of TABLE, --render and --list.")
    if column is not None and table is None:
        raise UserError("--print takes a TABLE.")
    from fedul_flwr.experiments import table_file as tables

    if show:
        _list(experiments, results)
        return
    if render or table is None:
        from fedul_flwr.experiments.tables_page import PAGE
        from fedul_flwr.experiments.tables_page import render as write

        write(experiments, results)
        typer.echo(f"Tables: {PAGE}")
        return
    found = tables.read_table(experiments, table)
    size: Size = "quick" if quick else "full"
    if column is not None:
        from fedul_flwr.experiments.flat_file import cell_file, refuse_unused

        refuse_unused(
            columns=columns, seeds=seeds != "0", tuned=tuned, dataset=dataset,
            device=device != "auto",
        )  # fmt: skip
        typer.echo(cell_file(found, column, size, rows, experiments), nl=False)
        return
    chosen_rows = tables.pick(rows, found.rows(), "row")
    chosen_columns = tables.pick(columns, list(found.columns), "column")
    from fedul_flwr.experiments.paper_table import lines
    from fedul_flwr.experiments.result_file import read_results, results_file
    from fedul_flwr.experiments.tables_page import check_results, print_lines
    from fedul_flwr.experiments.trial_plan import parse_seeds

    if measured := found.settings.benchmark:
        options = {"--quick": quick, "--device": device != "auto", "--seeds": seeds != "0"}
        options["--tuned"] = tuned
        for option, given in {**options, "--dataset": bool(dataset)}.items():
            if given:
                raise UserError(f"{option} has no effect on {table}: a benchmark measures it.")
        typer.echo(f"A benchmark measures {table}: {measured}")
        print_lines(found, None, list(lines(found, {}, chosen_rows, chosen_columns)))
        return
    failed = _run(
        found, size, experiments, results, device, seeds, dataset or [],
        chosen_rows, chosen_columns, verbose, tuned,
    )  # fmt: skip
    chosen_seeds = parse_seeds(seeds)
    file = results_file(results, table, size, tuned=tuned)
    chosen = {
        (row, column, seed): result
        for (row, column, seed), result in read_results(file).items()
        if row in chosen_rows and column in chosen_columns and seed in chosen_seeds
    }
    check_results(experiments, found, size, chosen, results if tuned else None)
    shown = list(lines(found, {size: chosen}, chosen_rows, chosen_columns))
    print_lines(found, size, shown, tuned=tuned)
    if failed:
        raise typer.Exit(1)


def _run(
    table: Table,
    size: Size,
    experiments: Path,
    results: Path,
    device: Literal["auto", "cpu", "cuda"],
    seeds: str,
    dataset: list[str],
    rows: list[str],
    columns: list[str],
    verbose: bool,
    tuned: bool,
) -> int:
    from fedul_flwr.engine.simulate import run_here
    from fedul_flwr.experiments.result_file import results_file
    from fedul_flwr.experiments.table_plan import Machine, plan_columns
    from fedul_flwr.experiments.table_runs import Reproduction, missing, reproduce
    from fedul_flwr.experiments.trial_plan import parse_seeds

    machine = Machine(experiments, datasets(dataset), device)
    numbers = parse_seeds(seeds)
    chosen = None
    if tuned:
        from fedul_flwr.experiments.tuned_settings import tuned_rows

        wanted = {
            column: [row for row in rows if row in table.rows_of(column, size)]
            for column in columns
        }
        chosen = tuned_rows(table, wanted, size, numbers, machine, results)
    plans = plan_columns(table, columns, size, numbers, machine, chosen)
    task = Reproduction(
        table, size, results, machine,
        run=lambda config, clients, title: run_here(config, clients, verbose, title),
        say=typer.echo, tuned=tuned,
    )  # fmt: skip
    if size == "full" and any(missing(task, plan, rows) for plan in plans):
        _warn(device)
    try:
        failed = reproduce(task, plans, rows)
    except KeyboardInterrupt:
        typer.echo("The same command goes on from here.", err=True)
        raise
    file = results_file(results, table.name, size, tuned=tuned)
    typer.echo(f"Results: {file}; fedul-flwr reproduce --render writes them to docs/tables.md.")
    return failed


def datasets(values: list[str]) -> dict[str, Path]:
    """Local copies of data sets by name, from options such as ``ylecun/mnist=data/mnist``.

    Raises
    ------
    UserError
        If one has another form, or its path is not a folder.
    """
    found = {}
    for value in values:
        name, sign, path = value.partition("=")
        if not (name and sign and path):
            raise UserError(
                f"--dataset {value!r} must be NAME=PATH, as in ylecun/mnist=data/mnist."
            )
        place = Path(path).expanduser()
        if not place.is_dir():
            raise UserError(f"--dataset {value!r}: {place} is not a folder.")
        found[name] = place
    return found


def _warn(device: str) -> None:
    import torch

    if device == "cpu" or not torch.cuda.is_available():
        typer.echo(
            "Warning: full size without a GPU takes hours to days a run; "
            "--quick has it at a size for two cores.",
            err=True,
        )


def _list(experiments: Path, results: Path) -> None:
    from fedul_flwr.experiments.result_file import read_results, results_file
    from fedul_flwr.experiments.table_file import read_table, table_names

    for name in table_names(experiments):
        table = read_table(experiments, name)
        runs = sum(len(table.rows_of(column, "full")) for column in table.columns)
        full = len(read_results(results_file(results, name, "full")))
        quick = len(read_results(results_file(results, name, "quick")))
        what = "a benchmark" if table.settings.benchmark else f"{runs} runs a seed"
        typer.echo(f"{name}: {table.settings.title} ({what}; results: {full} full, {quick} quick)")
