"""The summary of finished runs as printed lines."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedul_flwr.data.run_files import store
from fedul_flwr.data.run_files.records import read_run
from fedul_flwr.results.facts import facts, percent

if TYPE_CHECKING:  # imported where it is used: this module is imported at every start
    from rich.table import Table

_GAP, _LEAST = 4, 20
"""Columns between a name and its value, and the least that a value has in a terminal."""


def print_summary(directory: Path) -> None:
    """Print the results of a finished run and its directory."""
    for line in _in_lines(summary_rows(directory)):
        print(line)
    for warning in store.RunDirectory(directory).read_json(store.SUMMARY).get("warnings", ()):
        print(f"Warning: {warning}")


def summary_rows(directory: Path) -> dict[str, str]:
    """The facts of a finished run, and its files."""
    run = read_run(directory)
    clients, plots = directory / "clients", directory / "plots"
    rows = facts(run)
    if run.trains:
        rows |= {
            "model": str(directory / store.BEST_MODEL),
            "metrics": str(directory / store.METRICS),
        }
    else:
        here = f"{clients}/*/labels.csv" if clients.exists() else "where each client runs"
        rows |= {"labels": here}
    return rows | ({"plots": str(plots)} if run.trains or any(plots.glob("*.png")) else {})


def _in_lines(rows: Mapping[str, str]) -> Iterator[str]:
    """Names and values beside each other.

    Values wrap at the width of a terminal, and elsewhere have one line each. Paths are never cut.
    """
    beside = max(map(len, rows), default=0) + _GAP
    width = shutil.get_terminal_size().columns - beside - 2
    wrapper = textwrap.TextWrapper(
        max(width, _LEAST), break_long_words=False, break_on_hyphens=False
    )
    for name, value in rows.items():
        first, *others = (wrapper.wrap(value) if sys.stdout.isatty() else [value]) or [""]
        yield f"  {name:<{beside}}{first}"
        yield from (" " * (beside + 2) + line for line in others)


def print_wide(table: Table, *lines: str) -> None:
    """Print a table, wider than the terminal if it must be, and lines of text below it."""
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False, markup=False)
    # A line that wraps can still be read; a path that is cut off cannot.
    unlimited = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(table, options=unlimited).maximum)
    with console.capture() as printed:
        console.print(table)
    for row in printed.get().splitlines():
        print(row.rstrip())  # in a narrower terminal spaces at the end would be empty lines
    for line in lines:
        console.print(line)


def print_comparison(outputs: Mapping[str, Path], seconds: float) -> None:
    """Print a table of the demo's finished runs by their methods, and the time of all."""
    from rich.table import Table

    labels = {"fedul": "none, class priors of sets", "supervised": "all (the ceiling)"}
    criteria = {"heldout": "held-out loss", "validation": "validation labels"}
    table = Table(title="Handwritten digits: same clients, same points")
    for name in ("method", "labels used", "test error", "best round", "chosen by"):
        table.add_column(name, justify="right" if name in ("test error", "best round") else "left")
    lines = []
    for method, output in outputs.items():
        summary = store.RunDirectory(output).read_json(store.SUMMARY)
        best = f"{summary['best_round']} of {summary['rounds']}"
        chosen_by = criteria[summary["selection"]]
        table.add_row(method, labels[method], percent(summary["test_error"]), best, chosen_by)
        lines += [f"{method}: {output}", f"  {store.BEST_MODEL}, {store.METRICS}, plots/"]
    print_wide(table, *lines, f"Total time: {seconds:.0f} s")
