"""Run a resolved configuration on this machine, and show its progress."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedul_flwr.data.cores import exclusive, refuse_cpus
from fedul_flwr.data.run_files.records import missing_in_words
from fedul_flwr.engine.shell import load_early
from fedul_flwr.errors import UserError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from fedul_flwr.config.base import Scalar
    from fedul_flwr.config.options import Clients, Labeling, Options, Simulation
    from fedul_flwr.config.run_config import RunConfig
    from fedul_flwr.run.callbacks import Callback


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show what is being waited for: a line, in a terminal one that goes at the end."""
    if not sys.stdout.isatty():
        print(text, flush=True)
        yield
        return
    from rich.console import Console

    with Console().status(text):
        yield


def data_name(config: RunConfig) -> str:
    """Name of the data: of the server's data set, or else of the folder with the clients' data."""
    named = config.dataset if config.dataset != "none" else config.client_data
    return Path(named).name or "the owners' data"


class RunProgress:
    """A progress bar over the rounds of a run; without terminal and notebook, one line per round.

    A method that does not train has no rounds: only its start and its end are shown.

    Parameters
    ----------
    config : the run; rounds are read from ``metrics.jsonl`` in its output directory. Earlier lines
        advance the bar if the run is resumed, and are ignored otherwise.
    log_to_show : a growing log file to print as well.
    title : label of the bar; by default the method and the data set.

    Attributes
    ----------
    rounds_seen : rounds that this run has finished so far.
    """

    def __init__(self, config: RunConfig, log_to_show: Path | None = None, title: str = "") -> None:
        from fedul_flwr.config.methods import find_method

        self.rounds_seen = 0
        self._total = config.num_rounds if find_method(config.method).trains else None
        self._summary = Path(config.output) / "summary.json"
        self._waiting = self._total is None and not self._summary.exists()
        self._began = time.monotonic()
        self._title = title or f"{config.method} on {data_name(config)}"
        self._metrics = _Tail(Path(config.output) / "metrics.jsonl")
        self._log = None if log_to_show is None else _Tail(log_to_show)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._in_notebook: Any = None  # a DisplayHandle of IPython
        self._error = ""
        earlier = _rounds(self._metrics.lines())
        self._first = max((row["round"] for row in earlier), default=0) if config.resume else 0
        if self._log is not None:
            self._log.lines()

    def __enter__(self) -> Self:
        if sys.stdout.isatty() or in_notebook():
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
                *([MofNCompleteColumn()] if self._total is not None else []),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}"),
            )
            note = "starting" if self._total is not None else "asking clients"
            self._task = self._bar.add_task(
                self._title, total=self._total, completed=self._first, note=note
            )
            if in_notebook():
                from IPython.display import display

                self._in_notebook = display(self._bar, display_id=True)  # type: ignore[no-untyped-call]
            else:
                self._bar.start()
        elif self._total is not None:
            print(f"{self._title}: starting, {self._total} rounds", flush=True)
        else:
            print(f"{self._title}: asking clients", flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_notebook is not None:
            self._in_notebook.update(self._bar)
        elif self._bar is not None:
            self._bar.stop()

    def poll(self) -> None:
        """Show lines written since the last call."""
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
                note = "; ".join(filter(None, (_who(row), self._error)))
                self._bar.update(self._task, completed=row["round"], note=note)
            else:
                seconds = row.get("seconds")
                took = f", {seconds:.1f} s" if isinstance(seconds, int | float) else ""
                if (waited := row.get("seconds_waiting") or 0) >= 1:
                    took += f", of it {waited:.1f} s for the evaluation of the round before"
                note = "; ".join(filter(None, (_who(row), _error(row))))
                note = f": {note}" if note else ""
                print(f"round {row['round']}/{self._total}{note}{took}", flush=True)
        if self._waiting and self._summary.exists():
            self._waiting = False
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, total=1, completed=1, note="points are labeled")
            else:
                seconds = time.monotonic() - self._began
                print(f"{self._title}: points are labeled, {seconds:.1f} s", flush=True)
        if self._in_notebook is not None:
            self._in_notebook.update(self._bar)


def in_notebook() -> bool:
    """Whether this is a notebook; its bar is a display that is replaced, which needs no widgets."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


class _Tail:
    """Reads complete new lines of a file that may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def lines(self) -> list[str]:
        try:
            if not self._path.is_file():
                return []
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._position:  # the file was replaced
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
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("round"), int):
            rows.append(row)
    return rows


def _who(row: dict[str, Any]) -> str:
    """How many owners a round has learned from, and who was missing; empty in a simulation."""
    if "members" not in row:
        return ""
    return f"{row['clients']} of {row['members']} owners{missing_in_words(row)}"


def _error(row: dict[str, Any]) -> str:
    """The error of a round as text: the most relevant one that was measured."""
    for key, form in (
        ("test_error", "test error {:.2f} %"),
        ("validation_error", "validation error {:.2f} %"),
        ("surrogate_loss", "surrogate loss {:.4f}"),
    ):
        if isinstance(row.get(key), int | float):
            chance = row.get("surrogate_chance") if key == "surrogate_loss" else None
            return form.format(row[key]) + (f" (chance {chance:.4f})" if chance else "")
    return ""


def number_of_clients(config: RunConfig, how: Clients) -> int:
    """Number of simulated clients: that of the run to resume, else that of ``how``."""
    from fedul_flwr.data.run_files.run import Run

    recorded = Run.read(Path(config.resume)).data.num_clients if config.resume else None
    if recorded is not None and how.clients not in (None, recorded):
        raise UserError(
            f"{how.clients} clients: the run in {config.resume} has {recorded}, and goes on with "
            "as many: leave their number out.",
            "number-of-clients",
            option="--num-supernodes",
        )
    return recorded or how.number


def plan_rounds(config: RunConfig, num_rounds: int) -> RunConfig:
    """Write a changed number of rounds into the directory of the run to resume.

    Flower passes every setting to the server app, defaults included, so the server app cannot tell
    whether the number of rounds was set.
    """
    from fedul_flwr.data.run_files.run import Run
    from fedul_flwr.data.run_files.store import locked

    with locked(Path(config.output), "command"):
        run = Run.read(Path(config.output))
        run.store(settings={**run.settings, "num-rounds": num_rounds})
    return config.model_copy(update={"num_rounds": num_rounds})


def resolved(overrides: Mapping[str, Scalar], how: Options) -> tuple[RunConfig, bool]:
    """Settings of a run with the paths of ``how``, and whether the user has named its output."""
    from fedul_flwr.config.run_config import resolve

    paths = {key: getattr(how, key, None) for key in ("output", "resume")}
    flat = {**overrides, **{key: str(path) for key, path in paths.items() if path}}
    config = resolve(flat, Path.cwd())
    if config.resume and "num-rounds" in flat:
        config = config.model_copy(update={"num_rounds": int(flat["num-rounds"])})
    return config, bool(config.resume or flat.get("output"))


def simulate(
    overrides: Mapping[str, Scalar],
    how: Simulation,
    callbacks: Sequence[Callback] = (),
    go_on: str = "fedul-flwr run --resume {}",
) -> Path:
    """Run a simulation with flat settings; the directory of its results.

    An output that the user has not named gets a suffix where it exists.

    Parameters
    ----------
    go_on : how a run is resumed that is stopped; with its directory it is printed then.
    """
    if how.engine == "processes":
        load_early()
    from fedul_flwr.config.run_config import LAST_MODEL
    from fedul_flwr.data.run_files.store import lock_directory, locked, require_unlocked
    from fedul_flwr.run.tracking import refuse_missing

    config, is_named = resolved(overrides, how)
    refuse_missing(config.tracking)
    how = how.model_copy(update={"clients": number_of_clients(config, how)})
    if callbacks and how.engine == "ray":
        raise UserError(
            "callbacks: with engine = 'ray' the server runs in another process, which cannot take "
            "an object: write callback='my_module:Mine'.",
            "argument-without-effect",
        )
    require_unlocked(Path(config.output))
    check_machines(how)
    with waiting(f"Loading {data_name(config)} …"):
        chosen = check_start(config, how.number)
    if chosen:
        print(chosen, flush=True)
    if not is_named:
        config = config.model_copy(update={"output": str(lock_directory(Path(config.output)))})
    with locked(Path(config.output), "command"):
        pass
    if config.resume:
        config = plan_rounds(config, config.num_rounds)
    try:
        run_here(config, how, callbacks=callbacks)
    except KeyboardInterrupt:
        if (Path(config.output) / LAST_MODEL).is_file():
            print(f"{go_on.format(config.output)} goes on from here.", file=sys.stderr)
        raise
    return Path(config.output)


def check_machines(how: Simulation) -> None:
    """Refuse CPUs that this machine lacks, and a Ray cluster that is not used or not there."""
    if how.ray_address:
        if how.engine != "ray":
            option = "--ray-address"
            raise UserError(f"{option} needs --engine ray.", "option-without-effect", option=option)
        from fedul_flwr.engine.flower_simulation import refuse_silent_cluster

        refuse_silent_cluster(how.ray_address)
    elif how.engine != "in-process":  # a cluster may have larger machines
        refuse_cpus(how.client_cpus)


LABELING = "xclp-predict"
"""The method by which clients label their points if no other one is named."""


def label_points(overrides: Mapping[str, Scalar], how: Labeling) -> Path:
    """Let clients label their points, without training; the directory of the results."""
    from fedul_flwr.config.methods import find_method
    from fedul_flwr.config.user_files import user_path

    overrides = {"method": LABELING, **overrides}
    method = str(overrides["method"])
    if find_method(method).trains:
        raise UserError(
            f"Setting method = {method!r} trains a model: use fedul-flwr run.",
            "method-mismatch",
            setting="method",
        )
    if how.model is not None:
        from fedul_flwr.run.resolve_settings import with_model

        overrides = with_model(overrides, user_path(how.model))
    return simulate(overrides, how)


def check_start(config: RunConfig, num_supernodes: int) -> str:
    """Refuse a run that cannot begin: :func:`fedul_flwr.run.labeling.check_start`."""
    from fedul_flwr.run.labeling import check_start  # torch takes seconds to load

    with exclusive():
        return check_start(config, num_supernodes)


def run_here(
    config: RunConfig, how: Simulation, title: str = "", callbacks: Sequence[Callback] = ()
) -> None:
    """Run, and show progress; other threads' runs wait."""
    import logging

    from fedul_flwr.data.run_files.store import LOCKS, locked
    from fedul_flwr.engine.shell import flower_logs

    output = Path(config.output)
    log = output / "flower.log"

    def run() -> None:
        count, each = how.number, (how.client_cpus, how.client_gpus)
        if how.engine == "in-process":
            from fedul_flwr.engine.in_process import run_in_process

            run_in_process(config, count, callbacks=callbacks)
        elif how.engine == "ray":
            from fedul_flwr.engine.flower_simulation import run_on_ray

            error = output / "error.txt"
            before = stamp(error)
            if reason := run_on_ray(config, count, *each, how.ray_address, log):
                raise failure(reason, error, before, log, "fedul-flwr run --resume")
        else:
            from fedul_flwr.engine.processes import run_in_processes

            run_in_processes(config, count, *each, callbacks)

    with exclusive(), locked(output, "command") as check:
        is_new = [path.name for path in output.iterdir()] == [LOCKS]
        if not config.resume:
            log.unlink(missing_ok=True)
        shown = logging.INFO if how.verbose else logging.ERROR
        # Ray's clients write the log in other processes.
        tail = log if how.verbose and how.engine == "ray" else None
        with flower_logs(shown, log), RunProgress(config, tail, title) as progress:
            try:
                with _polled(progress):
                    run()
            except UserError:
                check()
                if is_new and not progress.rounds_seen:
                    _remove_others(output, {log.name, "error.txt", LOCKS})
                raise


def stamp(path: Path) -> tuple[int, int] | None:
    """Time of change and size of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def failure(
    why: str, error: Path, before: tuple[int, int] | None, log: Path, command: str
) -> UserError:
    """The error that tells why a run failed."""
    from fedul_flwr.config.run_config import LAST_MODEL

    reason = UserError(why, "run-failed")
    if (error.parent / LAST_MODEL).exists():  # a server app that was killed says nothing itself
        again = f"{command} {error.parent} continues after the last complete round."
        reason = UserError(f"{why}\n{again}", "run-failed")
    if stamp(error) not in (None, before):
        text = error.read_text(encoding="utf-8", errors="replace").strip()
        reason = UserError.from_text(text) if text else reason
    return UserError(f"{reason}\nThe log of the run is {log}.", reason.code)


@contextmanager
def _polled(progress: RunProgress) -> Iterator[None]:
    """Context in which a thread shows the progress."""
    finished = threading.Event()

    def poll() -> None:
        while not finished.wait(0.2):
            progress.poll()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
        progress.poll()


def _remove_others(directory: Path, names: set[str]) -> None:
    """Clear a directory that the failed run created, so that it is not taken for a result."""
    for path in directory.iterdir():
        if path.name in names:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
