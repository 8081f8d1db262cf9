"""The command line: ``fedul-flwr run | demo | predict | report``.

Everything but typer is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from typer.core import TyperGroup

from fedul_flwr import __version__
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from fedul_flwr.config import RunConfig
    from fedul_flwr.launcher import LocalSuperLink

_PAIR = re.compile(r"""\s*([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|\S+)(?:\s+|$)""")
_DEMO_DIRECTORY = Path("runs/demo")


class _Group(TyperGroup):
    """Turns what the user can put right into one sentence and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Group, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
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


@app.command()
def run(
    run_config: Annotated[
        list[str] | None,
        typer.Option(
            "--run-config",
            "-c",
            metavar="'KEY=VALUE …'|FILE.toml",
            help="Settings; may be repeated, the later one wins.",
        ),
    ] = None,
    num_supernodes: Annotated[int, typer.Option(min=1, help="Number of simulated clients.")] = 10,
    output: Annotated[
        Path | None, typer.Option(file_okay=False, help="Directory of the results.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(file_okay=False, help="Interrupted run to go on with.")
    ] = None,
    client_cpus: Annotated[int, typer.Option(min=1, help="CPUs a client takes.")] = 1,
    client_gpus: Annotated[
        float, typer.Option(min=0.0, help="GPUs a client takes; a fraction shares one.")
    ] = 0.0,
    keep_superlink: Annotated[
        bool, typer.Option("--keep-superlink", help="Leave the SuperLink running at the end.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Flower's log.")] = False,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Simulate in this process, for debugging.")
    ] = False,
) -> None:
    """Simulate a federation and print a summary."""
    from fedul_flwr.config import resolve

    overrides = parse_overrides(run_config or [])
    for key, path in (("output", output), ("resume", resume)):
        if path is not None:
            overrides[key] = str(path)
    config = resolve(overrides, base_dir=Path.cwd())
    if in_process:
        _run_in_process(config, num_supernodes, verbose)
    else:
        from fedul_flwr.launcher import LocalSuperLink

        typer.echo("Starting Flower's simulation …")
        with LocalSuperLink(keep=keep_superlink) as superlink:
            _run_on(superlink, config, num_supernodes, client_cpus, client_gpus, verbose)
    from fedul_flwr.results.summary import print_summary

    print_summary(Path(config.output))


@app.command()
def demo(
    num_supernodes: Annotated[int, typer.Option(min=1, help="Number of simulated clients.")] = 10,
) -> None:
    """Learn handwritten digits without labels, and compare with all labels on the same split."""
    from fedul_flwr.config import resolve
    from fedul_flwr.launcher import LocalSuperLink

    start = time.monotonic()
    outputs: dict[str, Path] = {}
    typer.echo("Starting Flower's simulation …")
    with LocalSuperLink() as superlink:
        for method in ("fedul", "supervised"):
            outputs[method] = Path.cwd() / _DEMO_DIRECTORY / method
            overrides = {"method": method, "output": str(outputs[method])}
            config = resolve(overrides, base_dir=Path.cwd())
            shutil.rmtree(outputs[method], ignore_errors=True)
            _run_on(superlink, config, num_supernodes)
    _print_demo(outputs, time.monotonic() - start)


@app.command()
def predict(
    model: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Directory of a finished run.")
    ],
    input_path: Annotated[
        Path, typer.Option("--input", exists=True, help="Images: a file or a folder.")
    ],
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="CSV file to write.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 256,
) -> None:
    """Label images with a trained model."""
    from fedul_flwr.results.predict import predict as write_predictions

    typer.echo(f"Predictions: {write_predictions(model, input_path, output, batch_size)}")


@app.command()
def report(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR…", exists=True, file_okay=False)
    ],
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="HTML file to write.")] = None,
) -> None:
    """Compare runs in one HTML page."""
    from fedul_flwr.results.report import report as write_report

    typer.echo(f"Report: {write_report(directories, output)}")


def parse_overrides(values: Sequence[str]) -> dict[str, bool | int | float | str]:
    """Read run-config settings as Flower writes them.

    Parameters
    ----------
    values
        Each either ``key=value key=value …`` with TOML values, or the path of a TOML file. Later
        ones win.

    Returns
    -------
    dict
        Flat settings, ``{"num-rounds": 5, "fedul.num-sets": 20}``.

    Raises
    ------
    UserError
        If one cannot be read.
    """
    settings: dict[str, bool | int | float | str] = {}
    for value in values:
        if value.endswith(".toml") and "=" not in value:
            settings |= _flatten(_read_toml(Path(value).expanduser()))
            continue
        position = 0
        while value[position:].strip():
            pair = _PAIR.match(value, position)
            if pair is None:
                raise UserError(
                    f"--run-config {value!r} cannot be read from {value[position:].strip()!r} on: "
                    "it takes key=value pairs or the path of a .toml file."
                )
            settings |= _flatten(_parse_pair(*pair.groups()))
            position = pair.end()
    return settings


def _parse_pair(key: str, value: str) -> dict[str, Any]:
    try:
        return tomllib.loads(f"{key} = {value}")
    except tomllib.TOMLDecodeError:
        raise UserError(
            f"Setting {key}={value} is not valid: "
            f"text needs quotes inside the shell's own, as in -c '{key}=\"{value}\"'."
        ) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a valid TOML file: {error}.") from None


def _flatten(table: dict[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    flat: dict[str, bool | int | float | str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            flat[prefix + key] = value
        else:
            raise UserError(
                f"Setting {prefix}{key} = {value!r} must be true, false, a number or text."
            )
    return flat


def _run_on(
    superlink: LocalSuperLink,
    config: RunConfig,
    num_supernodes: int,
    client_cpus: int = 1,
    client_gpus: float = 0.0,
    verbose: bool = False,
) -> None:
    """Run on a SuperLink; raise a UserError that says why and where the log is if it fails."""
    from fedul_flwr.launcher import app_directory, run_app

    output = Path(config.output)
    is_new = not output.exists()
    log = output / "flower.log"
    if not config.resume:
        log.unlink(missing_ok=True)
    error_file = output / "error.txt"
    error_before = _stamp(error_file)
    with RunProgress(config, log_to_show=log if verbose else None) as progress:
        outcome = run_app(
            superlink,
            app_directory(),
            config.to_flat(),
            num_supernodes=num_supernodes,
            client_cpus=client_cpus,
            client_gpus=client_gpus,
            on_poll=progress.poll,
            log_file=log,
        )
    if outcome.succeeded:
        return
    reason = outcome.details
    if _stamp(error_file) not in (None, error_before):
        reason = error_file.read_text(encoding="utf-8").strip() or reason
    if is_new and not progress.rounds_seen:
        _keep_only(output, {log.name, error_file.name})
    raise UserError(f"{reason}\nThe log of the run is {log}.")


def _run_in_process(config: RunConfig, num_supernodes: int, verbose: bool) -> None:
    from fedul_flwr.simulation import run_in_process

    if verbose:
        import logging

        logging.basicConfig(level=logging.INFO)
    finished = threading.Event()
    with RunProgress(config) as progress:

        def poll() -> None:
            while not finished.wait(0.2):
                progress.poll()

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            run_in_process(config, num_supernodes)
        finally:
            finished.set()
            thread.join()
            progress.poll()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _keep_only(directory: Path, names: set[str]) -> None:
    """Clear a directory that this very run made, so that it does not look like a result."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in names:
            path.unlink(missing_ok=True)


class RunProgress:
    """One bar over the rounds of a run, or one line a round where stdout is no terminal.

    Parameters
    ----------
    config
        The run; rounds are read from ``metrics.jsonl`` in its output directory. Lines that are
        there already fill the bar if the run is resumed and count for nothing otherwise.
    log_to_show
        A growing log file to print as well.

    Attributes
    ----------
    rounds_seen
        Rounds that this run has finished so far.
    """

    def __init__(self, config: RunConfig, log_to_show: Path | None = None) -> None:
        self.rounds_seen = 0
        self._total = config.num_rounds
        self._title = f"{config.method} on {Path(config.dataset).name}"
        self._metrics = _Tail(Path(config.output) / "metrics.jsonl")
        self._log = None if log_to_show is None else _Tail(log_to_show)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._error = ""
        earlier = _rounds(self._metrics.lines())
        self._first = max((row["round"] for row in earlier), default=0) if config.resume else 0
        if self._log is not None:
            self._log.lines()

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
            )

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self._task = self._bar.add_task(
                self._title, total=self._total, completed=self._first, note="starting"
            )
            self._bar.start()
        else:
            print(f"{self._title}: starting, {self._total} rounds", flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def poll(self) -> None:
        """Show what was written since the last call."""
        for line in self._log.lines() if self._log else ():
            if self._bar is not None:
                self._bar.console.print(line, markup=False, highlight=False)
            else:
                print(line, flush=True)
        for row in _rounds(self._metrics.lines()):
            self._error = _error(row) or self._error
            if row["round"] < 1:  # the model before any training
                continue
            self.rounds_seen += 1
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=row["round"], note=self._error)
            else:
                seconds = row.get("seconds")
                took = f", {seconds:.1f} s" if isinstance(seconds, int | float) else ""
                note = f": {_error(row)}" if _error(row) else ""
                print(f"round {row['round']}/{self._total}{note}{took}", flush=True)


class _Tail:
    """Whole lines appended to a file that need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def lines(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._position:  # written anew
                    self._position = 0
                file.seek(self._position)
                content = file.read()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]  # the last line may be half written
        self._position += len(whole)
        return whole.decode("utf-8", errors="replace").splitlines()


def _rounds(lines: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("round"), int):
            rows.append(row)
    return rows


def _error(row: dict[str, Any]) -> str:
    """The most telling figure of a round."""
    for key, form in (
        ("test_error", "test error {:.2f} %"),
        ("validation_error", "validation error {:.2f} %"),
        ("surrogate_loss", "surrogate loss {:.4f}"),
    ):
        if isinstance(row.get(key), int | float):
            return form.format(row[key])
    return ""


def _print_demo(outputs: dict[str, Path], seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedul_flwr.results.records import number, read_run

    told = {"fedul": ("FedUL", "none, class priors only"), "supervised": ("supervised", "all")}
    table = Table(title="Handwritten digits, same clients and split")
    for name in ("method", "labels used", "test error", "rounds"):
        table.add_column(name, justify="right" if name in ("test error", "rounds") else "left")
    for method, output in outputs.items():
        result = read_run(output)
        steps, errors = result.series("test_error")
        at_best = dict(zip(steps, errors, strict=True)).get(result.best_round() or 0)
        error = number((result.summary or {}).get("test_error"))
        error = next((e for e in (error, at_best, *errors[-1:]) if e is not None), None)
        shown = "not measured" if error is None else f"{error:.2f} %"
        table.add_row(*told[method], shown, str(max(steps, default=0)))
    console = Console()
    console.print(table)
    for method, output in outputs.items():
        made = [n for n in ("model.safetensors", "metrics.jsonl", "plots") if (output / n).exists()]
        console.print(f"{told[method][0]}: {output}", soft_wrap=True, highlight=False)
        console.print(f"  {', '.join(made)}", soft_wrap=True, highlight=False)
    console.print(f"Total time: {seconds:.0f} s")


if __name__ == "__main__":
    app()
