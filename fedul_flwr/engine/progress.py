"""Progress of a run, read from the files it writes."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from fedul_flwr.config.run_config import RunConfig


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
    config
        The run; rounds are read from ``metrics.jsonl`` in its output directory. Earlier lines
        advance the bar if the run is resumed, and are ignored otherwise.
    log_to_show
        A growing log file to print as well.
    title
        Label of the bar; by default the method and the data set.

    Attributes
    ----------
    rounds_seen
        Rounds that this run has finished so far.
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
                self._bar.update(self._task, completed=row["round"], note=self._error)
            else:
                seconds = row.get("seconds")
                took = f", {seconds:.1f} s" if isinstance(seconds, int | float) else ""
                note = f": {_error(row)}" if _error(row) else ""
                print(f"round {row['round']}/{self._total}{note}{took}", flush=True)
        if self._waiting and self._summary.exists():
            self._waiting = False
            self._show_labeled()
        if self._in_notebook is not None:
            self._in_notebook.update(self._bar)

    def _show_labeled(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=1, completed=1, note="points are labeled")
        else:
            seconds = time.monotonic() - self._began
            print(f"{self._title}: points are labeled, {seconds:.1f} s", flush=True)


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


def _error(row: dict[str, Any]) -> str:
    """The error of a round as text: the most relevant one that was measured."""
    for key, form in (
        ("test_error", "test error {:.2f} %"),
        ("validation_error", "validation error {:.2f} %"),
        ("surrogate_loss", "surrogate loss {:.4f}"),
    ):
        if isinstance(row.get(key), int | float):
            return form.format(row[key])
    return ""
