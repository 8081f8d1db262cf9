"""The command line's ``tune``; see :mod:`fedul_flwr.experiments`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedul_flwr.cli.options import RunConfigs
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from fedul_flwr.experiments.criterion import Name
    from fedul_flwr.experiments.search_plan import StudyPlan
    from fedul_flwr.experiments.search_space import Search


def tune(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="As fedul/table-1; see reproduce --list.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The table at a size for two cores.")
    ] = False,
    rows: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    columns: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="Local copy of a data set; may be repeated."),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Instead of TABLE: TOML file of runs, as in compare."),
    ] = None,
    run_config: RunConfigs = None,
    num_supernodes: Annotated[
        int | None, typer.Option(min=1, help="With --runs: number of simulated clients; 10.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="With --runs: directory of trials and search.json."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials of every row; the search file has 12.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search and of all its trials.")] = 0,
    criterion: Annotated[
        Literal["validation", "heldout"],
        typer.Option(help="Validation error, or held-out loss where no label is allowed."),
    ] = "validation",
    search: Annotated[
        Path | None, typer.Option(dir_okay=False, help="In place of the table's searches.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Rows that are searched side by side.")] = 1,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="What models are trained on.")
    ] = "auto",
    results: Annotated[Path, typer.Option(file_okay=False, help="Where results are kept.")] = Path(
        "results"
    ),
    experiments: Annotated[
        Path, typer.Option(file_okay=False, help="Where tables are described.")
    ] = Path("experiments"),
) -> None:
    """Search settings for every row of a table, by the same trials and never by test error."""
    if (table is None) == (runs is None):
        raise UserError("tune takes either TABLE or --runs FILE.")
    from fedul_flwr.experiments.row_search import quiet
    from fedul_flwr.experiments.run_searches import refuse_missing, run_searches
    from fedul_flwr.experiments.search_space import FILE, read_search, search_files

    refuse_missing()
    quiet()
    of_runs = {"-c": run_config, "--num-supernodes": num_supernodes, "--output": output}
    of_table = {"--quick": quick, "--rows": rows, "--columns": columns, "--dataset": dataset}
    if table is not None:
        _refuse(of_runs, table)
        found = read_search([search] if search else search_files(experiments, table), trials)
        target = _table(
            table, quick, rows, columns, dataset or [], found, criterion, seed, device,
            experiments, results,
        )  # fmt: skip
    else:
        assert runs is not None
        _refuse(of_table, "--runs")
        found = read_search([search or experiments / FILE], trials)
        target = _runs(
            runs, run_config or [], num_supernodes or 10, output, found, criterion, seed, device
        )
    again: dict[str, object] = {"--trials": trials, "--seed": seed or None, "--search": search}
    again |= {"--criterion": None if criterion == "validation" else criterion}
    options = [str(part) for pair in again.items() if pair[1] is not None for part in pair]
    try:
        failed = run_searches(
            target.plans, target.file, target.name, jobs, typer.echo,
            lambda plan: shlex.join([*target.words(plan), *options]),
        )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("The same command goes on from here.", err=True)
        raise
    used = shlex.join(target.used)
    typer.echo(f"Search: {target.file}; {used} takes what it chose, with other --seeds.")
    if failed:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Target:
    """Target of a search: its studies, their folder and name, the command that runs them (for a
    table followed by row and column), and the command that uses the chosen settings."""

    plans: Sequence[StudyPlan]
    file: Path
    name: str
    command: Sequence[str]
    used: Sequence[str]

    def words(self, plan: StudyPlan) -> list[str]:
        """The command that searches one row."""
        of_row = ["--rows", plan.task.row, "--columns", plan.task.column]
        return [*self.command, *(of_row if plan.task.column else [])]


def _table(
    name: str,
    quick: bool,
    rows: str | None,
    columns: str | None,
    dataset: list[str],
    search: Search,
    criterion: Name,
    seed: int,
    device: str,
    experiments: Path,
    results: Path,
) -> _Target:
    from fedul_flwr.cli.reproduce import datasets
    from fedul_flwr.experiments import table_file as tables
    from fedul_flwr.experiments.search_file import searches_file
    from fedul_flwr.experiments.search_plan import TRIALS, plan_table
    from fedul_flwr.experiments.table_plan import Machine, plan_columns

    table = tables.read_table(experiments, name)
    if table.settings.benchmark:
        raise UserError(f"A benchmark measures {name}: there is nothing to search.")
    size: tables.Size = "quick" if quick else "full"
    chosen_rows = tables.pick(rows, table.rows(), "row")
    chosen_columns = tables.pick(columns, list(table.columns), "column")
    machine = Machine(experiments, datasets(dataset), device)
    of_columns = plan_columns(table, chosen_columns, size, (seed,), machine)
    plans = plan_table(of_columns, chosen_rows, search, criterion, TRIALS / name / size)
    of_size = ["--quick"] if quick else []
    return _Target(
        plans,
        searches_file(results, name, size),
        name,
        ["fedul-flwr", "tune", name, *of_size],
        ["fedul-flwr", "reproduce", name, *of_size, "--tuned"],
    )


def _runs(
    file: Path,
    run_config: list[str],
    num_supernodes: int,
    output: Path | None,
    search: Search,
    criterion: Name,
    seed: int,
    device: str,
) -> _Target:
    from fedul_flwr.config.overrides import parse_overrides
    from fedul_flwr.experiments.search_plan import plan_runs
    from fedul_flwr.experiments.trial_plan import make_plan, read_runs

    place = output or Path("runs") / f"tune-{file.stem}"
    shared = {"device": device, **parse_overrides(run_config)}
    plan = make_plan(read_runs(file), shared, (seed,), num_supernodes, place)
    plans = plan_runs(plan, search, criterion, place)
    given = ["--runs", str(file), *(part for text in run_config for part in ("-c", text))]
    given += ["--num-supernodes", str(num_supernodes)]
    kept = place / "search.json"
    return _Target(
        plans,
        kept,
        file.stem,
        ["fedul-flwr", "tune", *given],
        ["fedul-flwr", "compare", *given, "--tuned", str(kept)],
    )


def _refuse(options: Mapping[str, Any], what: str) -> None:
    for option, given in options.items():
        if given:
            raise UserError(f"{option} has no effect with {what}: leave it out.")
