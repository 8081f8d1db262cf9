"""The command line: ``fedul-flwr run | label | demo | compare | reproduce | tune | deploy | …``.

Everything except typer is imported within the commands, so that ``--help`` is fast.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fedul_flwr import __version__
from fedul_flwr.cli.compare import compare
from fedul_flwr.cli.deploy import deploy
from fedul_flwr.cli.export_model import export
from fedul_flwr.cli.federation import Federation, run_on_federation
from fedul_flwr.cli.help import Group, with_examples, with_way_out
from fedul_flwr.cli.label import label
from fedul_flwr.cli.lists import datasets, methods, settings
from fedul_flwr.cli.options import (
    MOST_CLIENTS,
    ClientCpus,
    ClientGpus,
    EngineName,
    MessageLog,
    NumSupernodes,
    Output,
    RayAddress,
    RunConfigs,
    TrustModules,
    Verbose,
    refuse_given,
)
from fedul_flwr.cli.reproduce import reproduce
from fedul_flwr.cli.searched_run import searched
from fedul_flwr.cli.tune import tune
from fedul_flwr.config.overrides import parse_overrides
from fedul_flwr.engine.fork_server import load_early
from fedul_flwr.engine.simulate import (
    number_of_clients,
    run_here,
    simulate,
)
from fedul_flwr.errors import in_one_sentence

_DEMO_DIRECTORY = Path("runs/demo")
_DEMO_SELECTION = {"fedul": "heldout", "supervised": "validation"}
"""Methods of the demo, and the criterion of each one's best round. FedUL uses its own loss on
clients' held-out points, so that its result does not depend on any label."""


class _Group(Group):
    """Reports errors that the user can fix in one sentence, with exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(130) from None
        except click.UsageError as error:
            raise with_way_out(error) from None
        except BrokenPipeError:  # the reader of our output has gone
            raise
        except Exception as error:
            sentence = in_one_sentence(error)
            if sentence is None:
                raise
            typer.echo(f"Error: {sentence}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="fedul-flwr demo\nfedul-flwr methods\nfedul-flwr run -c 'method=fedul num-rounds=10'",
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


@app.command(
    **with_examples(
        "fedul-flwr run",
        "fedul-flwr run -c 'method=fedllp num-rounds=50' --num-supernodes 20",
        "fedul-flwr run -c my-run.toml -c seed=1 --output runs/first",
        "fedul-flwr run --tune 12 -c dataset=my-data --output runs/best",
        "fedul-flwr run --resume runs/first",
        "fedul-flwr run --federation consortium -c my-run.toml --output runs/ours",
    )
)
def run(
    run_config: RunConfigs = None,
    num_supernodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_CLIENTS,
            help="Number of simulated clients, 10 by default; --resume knows it.",
        ),
    ] = None,
    output: Output = None,
    resume: Annotated[
        Path | None, typer.Option(file_okay=False, help="Interrupted run to go on with.")
    ] = None,
    client_cpus: ClientCpus = 1,
    client_gpus: ClientGpus = 0.0,
    keep_superlink: Annotated[
        bool, typer.Option("--keep-superlink", help="Leave the SuperLink running at the end.")
    ] = False,
    verbose: Verbose = False,
    engine: EngineName = "processes",
    ray_address: RayAddress = "",
    message_log: MessageLog = None,
    federation: Federation = None,
    tune: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="TRIALS",
            help="First search settings with so many trials, by validation labels; 12 are usual.",
        ),
    ] = None,
) -> None:
    """Simulate a federation, or run on a deployed one, and print a summary."""
    if engine == "processes" and federation is None:
        load_early()
    from fedul_flwr.config.run_config import resolve

    overrides = parse_overrides(run_config or [])
    for key, path in (("output", output), ("resume", resume)):
        if path is not None:
            overrides[key] = str(path)
    if federation is not None:
        of_simulations = {
            "--num-supernodes": num_supernodes,
            "--client-cpus": client_cpus != 1,
            "--client-gpus": client_gpus,
            "--keep-superlink": keep_superlink,
            "--engine": engine != "processes",
            "--ray-address": ray_address,
            "--message-log": message_log,
            "--tune": tune,
        }
        refuse_given(of_simulations, "with --federation: leave it out")
        run_on_federation(federation, overrides, verbose)
        return
    if tune is not None:
        refuse_given({"--resume": overrides.get("resume")}, "with --tune: leave it out")
    config = resolve(overrides, base_dir=Path.cwd())
    clients = number_of_clients(config, num_supernodes)
    if tune is not None:
        overrides |= searched(config, overrides, clients, tune)
        config = resolve(overrides, base_dir=Path.cwd())
    if config.resume and "num-rounds" in overrides:
        config = config.model_copy(update={"num_rounds": int(overrides["num-rounds"])})
    place = simulate(
        config,
        clients,
        client_cpus,
        client_gpus,
        verbose,
        named=bool(config.resume or overrides.get("output")),
        engine=engine,
        keep_superlink=keep_superlink,
        ray_address=ray_address,
        message_log=message_log,
    )
    from fedul_flwr.results.printed_summary import print_summary

    print_summary(place)


app.command(
    **with_examples(
        "fedul-flwr label --output runs/labels",
        "fedul-flwr label -c labels.total=200 --model runs/first",
    )
)(label)


@app.command(**with_examples("fedul-flwr demo"))
def demo(
    num_supernodes: NumSupernodes = 10,
) -> None:
    """Learn handwritten digits without labels, and compare with all labels on the same split."""
    load_early()
    from fedul_flwr.config.run_config import resolve
    from fedul_flwr.results.run_claim import refuse_held

    start = time.monotonic()
    outputs: dict[str, Path] = {}
    for method, selection in _DEMO_SELECTION.items():
        outputs[method] = Path.cwd() / _DEMO_DIRECTORY / method
        refuse_held(outputs[method])
        shutil.rmtree(outputs[method], ignore_errors=True)
        output = str(outputs[method])
        overrides = {"method": method, "selection": selection, "output": output}
        config = resolve(overrides, base_dir=Path.cwd())
        run_here(config, num_supernodes)
    from fedul_flwr.results.printed_summary import print_comparison

    print_comparison(outputs, time.monotonic() - start)


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


@app.command(
    **with_examples(
        "fedul-flwr predict --model runs/first --input my_images/",
        "fedul-flwr predict --model runs/first --input my_images/ --priors estimate",
    )
)
def predict(
    model: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Directory of a finished run.")
    ],
    input_path: Annotated[
        Path, typer.Option("--input", exists=True, help="Images: a file or a folder.")
    ],
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="CSV file to write.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 256,
    priors: Annotated[
        str | None,
        typer.Option(
            metavar="P1,P2,…|estimate",
            help="Class priors of these images: re-weigh for K numbers, or for an estimate.",
        ),
    ] = None,
    trust_modules: TrustModules = False,
) -> None:
    """Label images with a trained model."""
    from fedul_flwr.results.prediction_file import write_predictions

    path = write_predictions(
        model, input_path, output, batch_size, priors, trust_modules=trust_modules
    )
    typer.echo(f"Predictions: {path}")


app.command(
    **with_examples(
        "fedul-flwr export runs/first",
        "fedul-flwr export runs/first --format torchscript -o digits.torchscript",
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
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="HTML file to write.")] = None,
) -> None:
    """Show runs, or a comparison, in one HTML page."""
    from fedul_flwr.results.report import report as write_report

    typer.echo(f"Report: {write_report(directories, output)}")


@app.command(**with_examples("fedul-flwr cache", "fedul-flwr cache --clear"))
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all of it.")] = False,
) -> None:
    """Show where decoded data are kept between runs, and how much; delete them."""
    from fedul_flwr.data.cache import cache_directory, clear_cache, measure_cache
    from fedul_flwr.results.plots import format_bytes

    found = clear_cache() if clear else measure_cache()
    amount = f"{found.entries} data sets and splits, {format_bytes(found.num_bytes)}"
    typer.echo(f"{'Deleted from' if clear else 'Cache in'} {cache_directory()}: {amount}")


def program() -> None:
    """Run the command line as a program, which ends at once when it is done.

    To take down a Python that has loaded torch, matplotlib and scikit-learn takes a second.
    """
    code = 0
    try:
        app()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader may have gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    program()
