"""The command line: ``fedul-flwr run | label | demo | compare | reproduce | tune | deploy | …``.

Everything except typer is imported within the commands, so that ``--help`` is fast.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from fedul_flwr import __version__
from fedul_flwr.cli.deploy import deploy
from fedul_flwr.cli.experiments import compare, reproduce, tune
from fedul_flwr.cli.finished_model import evaluate, export, pack, predict
from fedul_flwr.cli.lists import datasets, methods, settings
from fedul_flwr.cli.options import restore_texts, with_examples, with_way_out
from fedul_flwr.cli.simulated_run import demo, label, run
from fedul_flwr.engine.shell import end_like_ctrl_c, exit_code, open_streams, stop_behind
from fedul_flwr.errors import in_one_sentence


class _Group(TyperGroup):
    """Reports errors that the user can fix in one sentence, with exit code 1."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        restore_texts(self)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _without_exit():
                return super().invoke(ctx)
        except click.UsageError as error:
            raise with_way_out(error) from None
        except (Exception, KeyboardInterrupt) as error:
            if (stop := stop_behind(error)) is not None:
                typer.echo("Stopped.", err=True)
                raise typer.Exit(exit_code(stop)) from None
            sentence = in_one_sentence(error)
            if sentence is None:
                raise
            typer.echo(f"Error: {sentence.with_code}", err=True)
            raise typer.Exit(1) from None


@contextlib.contextmanager
def _without_exit() -> Iterator[None]:
    try:
        yield
    except SystemExit as error:  # imports nothing before
        from fedul_flwr.config.base import without_exit

        with without_exit("The command"):
            raise error from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    suggest_commands=False,  # click does
    pretty_exceptions_enable=False,
    **with_examples(
        "fedul-flwr demo", "fedul-flwr methods", "fedul-flwr run -c 'method=fedul num-rounds=10'"
    ),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedul-flwr {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Federated learning from data with few labels or none."""


app.command(
    **with_examples(
        "fedul-flwr run",
        "fedul-flwr run -c 'method=fedllp num-rounds=50' --num-supernodes 20",
        "fedul-flwr run -c my-run.toml -c seed=1 --output runs/first",
        "fedul-flwr run --resume runs/first",
        "fedul-flwr run --federation consortium -c my-run.toml --output runs/ours",
    )
)(run)
app.command(
    **with_examples(
        "fedul-flwr label --output runs/labels",
        "fedul-flwr label -c labels.total=200 --model runs/first",
    )
)(label)
app.command(**with_examples("fedul-flwr demo"))(demo)
app.command(
    **with_examples(
        "fedul-flwr compare --methods fedul,fedpl,supervised --seeds 0,1,2",
        "fedul-flwr compare --runs runs.toml --measures auc,ece --output runs/rivals",
    )
)(compare)
app.command(
    **with_examples(
        "fedul-flwr reproduce --list",
        "fedul-flwr reproduce fedul/table-1 --quick",
        "fedul-flwr reproduce fedul/table-1 --quick --print Non-IID >mnist.toml",
    )
)(reproduce)
app.command(
    **with_examples(
        "fedul-flwr tune fedul/table-1 --quick --jobs 2",
        "fedul-flwr tune --runs runs.toml --trials 12",
        "fedul-flwr tune -c dataset=my-data",
    )
)(tune)
app.add_typer(deploy, name="deploy")
app.command(**with_examples("fedul-flwr methods", "fedul-flwr methods fedmatch"))(methods)
app.command(
    **with_examples(
        "fedul-flwr settings",
        "fedul-flwr settings num-rounds",
        "fedul-flwr settings fedul",
    )
)(settings)
app.command(**with_examples("fedul-flwr datasets"))(datasets)


app.command(
    **with_examples(
        "fedul-flwr pack runs/first",
        "fedul-flwr pack runs/first -o ward.zip",
    )
)(pack)
app.command(
    **with_examples(
        "fedul-flwr predict --model runs/first --input my_images/",
        "fedul-flwr predict --model model.zip --input patients.csv --id-column patient -o out.csv",
        "fedul-flwr predict --model runs/first --input my_images/ --priors estimate",
    )
)(predict)
app.command(
    **with_examples(
        "fedul-flwr evaluate --model model.zip --labels y.csv --by sex,age",
        "fedul-flwr evaluate --model model.zip --labels y.csv --positive ill --sensitivity 0.95",
    )
)(evaluate)
app.command(
    **with_examples(
        "fedul-flwr export runs/first",
        "fedul-flwr export model.zip",
        "fedul-flwr export runs/first -o digits.onnx",
    )
)(export)


@app.command(
    **with_examples(
        "fedul-flwr report runs/first",
        "fedul-flwr report runs/first runs/second --output both.html",
    )
)
def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR…",
            exists=True,
            file_okay=False,
            help="Directories of runs, or of one comparison.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="HTML file to write.")
    ] = None,
) -> None:
    """Show runs, or a comparison, in one HTML page."""
    from fedul_flwr.results.report import report as write_report

    typer.echo(f"Report: {write_report(directories, output)}")


@app.command(
    **with_examples("fedul-flwr watch runs/first", "fedul-flwr watch runs/first --every 30")
)
def watch(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="Of the run.")
    ],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
) -> None:
    """Show a run while it runs: owners, rounds, errors, seconds, what has left. Ctrl-C ends it."""
    from rich.console import Console
    from rich.live import Live

    from fedul_flwr.results.watch import watch as follow

    console = Console()
    if not console.is_terminal:
        follow(directory, every, console.print)
        return
    with Live(console=console, auto_refresh=False) as live:
        follow(directory, every, lambda shown: live.update(shown, refresh=True))


@app.command(**with_examples("fedul-flwr cache", "fedul-flwr cache --clear"))
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all of it.")] = False,
) -> None:
    """Show where decoded data are kept between runs, and how much; delete them."""
    from fedul_flwr.data.safe_files import cache_directory, clear_cache, measure_cache
    from fedul_flwr.results.facts import format_bytes

    use = clear_cache() if clear else measure_cache()
    amount = f"{use.entries} data sets and splits, {format_bytes(use.num_bytes)}"
    typer.echo(f"{'Deleted from' if clear else 'Cache in'} {cache_directory()}: {amount}")


def program() -> None:
    """Run the command line as a program, which ends at once when it is done."""
    open_streams()
    end_like_ctrl_c()
    os.environ.pop("MPLBACKEND", None)  # figures are files; matplotlib refuses names it lacks
    code = 0
    try:
        app()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    except KeyboardInterrupt as stop:  # before a command began
        code = exit_code(stop)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader may have gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    program()
