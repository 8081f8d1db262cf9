"""Options that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedul_flwr.cli.help import complete_assignment
from fedul_flwr.config.user_files import user_path
from fedul_flwr.engine.simulate import Engine
from fedul_flwr.errors import UserError

RunConfigs = Annotated[
    list[str] | None,
    typer.Option(
        "--run-config",
        "-c",
        metavar="'KEY=VALUE …'|FILE",
        help="Settings; may be repeated, the later one wins. fedul-flwr settings lists them.",
        autocompletion=complete_assignment,
    ),
]
MOST_CLIENTS = 1_000_000
NumSupernodes = Annotated[
    int, typer.Option(min=1, max=MOST_CLIENTS, help="Number of simulated clients.")
]
Output = Annotated[Path | None, typer.Option(file_okay=False, help="Directory of the results.")]
ClientCpus = Annotated[int, typer.Option(min=1, help="CPUs that a client uses.")]
ClientGpus = Annotated[
    float, typer.Option(min=0.0, help="GPUs that a client uses; a fraction shares a GPU.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Flower's log.")]
EngineName = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="What runs the clients: a pool of processes, Flower's Ray backend (as flwr run), or "
        "this process alone. The numbers are the same.",
    ),
]
RayAddress = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT|auto",
        help="Ray cluster that runs the clients; needs --engine ray, and folders for data and "
        "output that all its machines reach.",
    ),
]
MessageLog = Annotated[
    Path | None,
    typer.Option(
        "--message-log",
        file_okay=False,
        help="New directory for a record of all messages; needs --engine in-process. Messages that "
        "secure aggregation does not hide, such as updates, are readable: for simulations only.",
    ),
]
TrustModules = Annotated[
    bool, typer.Option("--trust-modules", help="Run the modules that somebody else's run names.")
]
Seeds = Annotated[str, typer.Option(help="Seeds of every run, separated by commas.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Use the small size for two cores, not the paper's size.")
]
Rows = Annotated[str | None, typer.Option(help="Only these rows, separated by commas.")]
Columns = Annotated[str | None, typer.Option(help="Only these columns, separated by commas.")]
Datasets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        metavar="NAME=PATH",
        help="Local copy of a data set, as ylecun/mnist=data/mnist; may be repeated.",
    ),
]
DeviceName = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Device that trains the models.")
]
Results = Annotated[Path, typer.Option(file_okay=False, help="Folder of the stored results.")]
Experiments = Annotated[
    Path,
    typer.Option(
        file_okay=False,
        help="Folder of the tables' files.",
        show_default="those that come with fedul-flwr",
    ),
]
RESULTS = Path("results")
_PACKAGE = Path(__file__).resolve().parents[1]
_IN_WHEEL = _PACKAGE / "paper_tables"
EXPERIMENTS = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent / "experiments"
"""The papers' tables: in a wheel inside the package, in a checkout beside it."""


def local_copies(options: list[str] | None) -> dict[str, Path]:
    """Paths of local copies of data sets by name, from options ``ylecun/mnist=data/mnist``."""
    copies = {}
    for value in options or []:
        name, sign, path = value.partition("=")
        if not (name and sign and path):
            raise UserError(
                f"--dataset {value!r} must be NAME=PATH, as in ylecun/mnist=data/mnist.",
                "option-not-allowed",
                option="--dataset",
            )
        user_path(path)  # refuses what no folder can be called
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise UserError(
                f"--dataset {value!r}: {folder} is not a folder.",
                "folder-missing",
                option="--dataset",
            )
        copies[name] = folder
    return copies


def refuse_options(options: Mapping[str, object], where: str) -> None:
    """Refuse options that were given and have no effect.

    Parameters
    ----------
    options : value by option; an option without an effect must be empty.
    where : end of the message, such as ``with --print: leave it out``.
    """
    for option, value in options.items():
        if value:
            raise UserError(
                f"{option} has no effect {where}.", "option-without-effect", option=option
            )


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """After Ctrl-C, print that the same command resumes."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("The same command resumes from here.", err=True)
        raise
