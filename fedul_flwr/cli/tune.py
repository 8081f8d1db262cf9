"""The command ``fedul-flwr tune``."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedul_flwr.cli import options
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.experiments.search import RowSearch
    from fedul_flwr.experiments.table_file import Size
    from fedul_flwr.experiments.trial_plan import Plan


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
        typer.Option(dir_okay=False, help="Instead of TABLE: TOML file of runs, as in compare."),
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
        typer.Option(file_okay=False, help="With --runs: directory of trials and search.json."),
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
        typer.Option(dir_okay=False, help="File of the search in place of the table's searches."),
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
    from fedul_flwr.engine.flower_logs import flower_logs
    from fedul_flwr.experiments.search import plan_searches, require_optuna
    from fedul_flwr.experiments.search_file import run_searches
    from fedul_flwr.experiments.search_space import FILE, read_search, search_files

    require_optuna()
    if table is not None:
        of_runs = {"-c": run_config, "--num-supernodes": num_supernodes, "--output": output}
        options.refuse_options(of_runs, f"with {table}: leave it out")
        files = [search] if search else search_files(experiments, table)
        copies = options.local_copies(dataset)
        target = _table(table, quick, rows, columns, copies, seed, device, experiments, results)
    else:
        assert runs is not None
        of_table = {"--quick": quick, "--rows": rows, "--columns": columns, "--dataset": dataset}
        options.refuse_options(of_table, "with --runs: leave it out")
        files = [search or experiments / FILE]
        target = _runs(runs, run_config or [], num_supernodes or 10, output, seed, device)
    settings = read_search(files, trials)
    tasks = plan_searches(target.plans, target.rows, settings, criterion, target.directory)
    again: dict[str, object] = {"--trials": trials, "--seed": seed or None, "--search": search}
    again |= {"--criterion": None if criterion == "validation" else criterion}
    arguments = [str(part) for pair in again.items() if pair[1] is not None for part in pair]

    def command(task: RowSearch) -> str:
        row = ["--rows", task.row, "--columns", task.column] if task.column else []
        return shlex.join([*target.command, *row, *arguments])

    with options.resumable(), flower_logs(logging.ERROR):
        failed = run_searches(tasks, target.file, target.name, jobs, typer.echo, command)
    use = shlex.join(target.use)
    typer.echo(f"Search: {target.file}; {use} runs the chosen settings, with other --seeds.")
    if failed:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Target:
    """The rows of a search.

    Attributes
    ----------
    plans, rows : columns of a table, or a comparison of runs, and the rows to search.
    directory, file, name : directory of the trials, file of the searches, and its name.
    command, use : command of the search without its options, and the command that runs the chosen
        settings.
    """

    plans: Sequence[Plan]
    rows: Sequence[str]
    directory: Path
    file: Path
    name: str
    command: Sequence[str]
    use: Sequence[str]


def _table(
    name: str,
    quick: bool,
    rows: str | None,
    columns: str | None,
    copies: dict[str, Path],
    seed: int,
    device: str,
    experiments: Path,
    results: Path,
) -> _Target:
    from fedul_flwr.experiments.result_file import ResultFile
    from fedul_flwr.experiments.search import TRIALS
    from fedul_flwr.experiments.table_file import pick, read_table
    from fedul_flwr.experiments.table_plan import Device, plan_columns

    table = read_table(experiments, name)
    size: Size = "quick" if quick else "full"
    if table.settings.benchmark:
        raise UserError(
            f"A benchmark measures {name}: there is nothing to search.", "nothing-to-search"
        )
    chosen = pick(columns, list(table.columns), "column")
    option = ["--quick"] if quick else []
    return _Target(
        plan_columns(table, chosen, size, (seed,), Device(device, copies)),
        pick(rows, table.rows(), "row"),
        TRIALS / name / size,
        ResultFile(results, name, size).searches,
        name,
        ["fedul-flwr", "tune", name, *option],
        ["fedul-flwr", "reproduce", name, *option, "--tuned"],
    )


def _runs(
    file: Path,
    run_config: list[str],
    num_supernodes: int,
    output: Path | None,
    seed: int,
    device: str,
) -> _Target:
    from fedul_flwr.config.overrides import parse_overrides
    from fedul_flwr.experiments.trial_plan import make_plan, read_runs

    folder = output or Path("runs") / f"tune-{file.stem}"
    shared = {"device": device, **parse_overrides(run_config)}
    plan = make_plan(read_runs(file), shared, (seed,), num_supernodes, folder)
    arguments = ["--runs", str(file), *(part for text in run_config for part in ("-c", text))]
    arguments += ["--num-supernodes", str(num_supernodes)]
    stored = folder / "search.json"
    return _Target(
        [plan],
        list(plan.rows),
        folder,
        stored,
        file.stem,
        ["fedul-flwr", "tune", *arguments],
        ["fedul-flwr", "compare", *arguments, "--tuned", str(stored)],
    )
