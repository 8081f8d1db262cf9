"""Cells of the papers' tables at full size on a GPU, in any time that there is.

    python experiments/gpu.py --minutes 10 --jobs 10 --dataset uoft-cs/cifar10=data/cifar10

Runs are started in the order of ``PLAN``, so many at a time. After the minutes all are stopped; the
same command, minutes or weeks later, resumes them, and goes on to the next ones. What has finished
is added to ``results/`` with its card, arithmetic and commit, and ``make docs`` shows it. Each run
is a process of its own, with its own folder of results below ``runs/gpu``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
STOPS = 60
"""Seconds that a run has to stop after its round, before it is ended."""


class Part(NamedTuple):
    """Columns and rows of a table (all of them if empty), and seeds: the first one of all first."""

    table: str
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    seeds: Sequence[int] = (0, 1, 2)


XCLP = [f"{split} {labels} labels at 100 clients"
        for labels, split in product((5000, 1000), ("IID", "Non-IID"))]  # fmt: skip
MNIST = [f"MNIST {split} M={sets}" for sets, split in product((20, 40), ("IID", "Non-IID"))]
PLAN = [
    Part("fedmatch/table-1"),
    Part("semifl/cifar10", ["IID"]),
    Part("xclp/table-4", XCLP, seeds=[0]),
    Part("fedul/table-1", MNIST),
    *(Part(f"fedmatch/{name}") for name in ("table-5", "table-6", "figure-6ab", "figure-9")),
    Part("xclp/table-5", seeds=[0]),
    *(Part(f"reference/{name}", seeds=[0]) for name in ("sets", "server", "clients")),
]


class Cell(NamedTuple):
    """One run."""

    table: str
    column: str
    row: str
    seed: int
    quick: bool

    @property
    def folder(self) -> Path:
        """Its own folder of results."""
        name = "/".join(map(str, (self.column, self.row, self.seed, self.quick)))
        return Path("runs", "gpu", self.table, hashlib.sha256(name.encode()).hexdigest()[:16])

    def line(self) -> dict[str, Any] | None:
        """Its line of the table of runs, if it has finished."""
        file = self.folder / f"{self.table}.jsonl"
        text = file.read_text().strip() if file.exists() else ""
        return dict(json.loads(text)) if text else None

    def start(self, options: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start or resume it; what it prints is in its folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        cell = ["--columns", self.column, "--rows", self.row, "--seeds", str(self.seed)]
        cell += ["--quick"] if self.quick else []
        command = [sys.executable, "-m", "fedul_flwr.cli", "reproduce", self.table, *cell]
        command += ["--engine", "in-process", "--results", str(self.folder), *options]
        with (self.folder / "output.txt").open("wb") as output:
            return subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )


def cells(plan: Sequence[Part], experiments: Path, quick: bool) -> Iterator[Cell]:
    """The runs of a plan in their order; a column has not all rows of its table."""
    from fedul_flwr.experiments.table import read_table

    for part in plan:
        table = read_table(experiments, part.table)
        columns = part.columns or table.names
        for seed, column in product(part.seeds, columns):
            for row in table.column(column, "quick" if quick else "full").rows:
                if not part.rows or row in part.rows:
                    yield Cell(part.table, column, row, seed, quick)


def run(todo: Iterator[Cell], jobs: int, until: float, options: Sequence[str]) -> None:
    """Run cells, ``jobs`` at a time, until the clock (:func:`time.monotonic`) shows ``until``."""
    running: dict[Cell, subprocess.Popen[bytes]] = {}
    try:
        while time.monotonic() < until:
            for cell, process in [*running.items()]:
                if process.poll() is not None:
                    del running[cell]
                    line = cell.line()
                    text = f"{line['test_error']:.2f} % error" if line else "failed, see "
                    text += "" if line else str(cell.folder / "output.txt")
                    print(f"{cell.table}, {cell.column}, {cell.row}, seed {cell.seed}: {text}")
            while len(running) < jobs and (cell := next(todo, None)) is not None:
                running[cell] = cell.start(options)
            if not running:
                return
            time.sleep(0.2)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            try:
                process.wait(STOPS)
            except subprocess.TimeoutExpired:
                process.kill()


def collect(finished: Sequence[Cell], results: Path, commit: str | None) -> int:
    """Add finished runs to the tables of runs; how many. ``commit`` is of code without history."""
    from fedul_flwr.experiments.runs_file import store_runs

    lines: dict[str, list[dict[str, Any]]] = {}
    for cell in finished:
        if (line := cell.line()) is not None:
            line["commit"] = line["commit"] or commit
            lines.setdefault(cell.table, []).append(line)
    for table, new in lines.items():
        store_runs(results / f"{table}.jsonl", new)
    return sum(map(len, lines.values()))


def main(arguments: Sequence[str] | None = None, plan: Sequence[Part] = PLAN) -> None:
    """Run what fits into the time, and collect what has finished."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--jobs", type=int, default=8, help="runs at a time")
    parser.add_argument("--device", default="cuda", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--dataset", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--quick", action="store_true", help="the small size, to try the script")
    parser.add_argument("--commit", help="commit of this code, if its folder has no history")
    parser.add_argument("--experiments", type=Path, default=HERE)
    asked = parser.parse_args(arguments)
    until = time.monotonic() + 60 * asked.minutes
    options = ["--device", asked.device, "--experiments", str(asked.experiments)]
    options += [word for pair in asked.dataset for word in ("--dataset", pair)]
    everything = [*cells(plan, asked.experiments, asked.quick)]
    todo = [cell for cell in everything if cell.line() is None]
    print(f"{len(everything) - len(todo)} of {len(everything)} runs have finished before.")
    run(iter(todo), asked.jobs, until, options)
    count = collect(everything, asked.results, asked.commit)
    print(f"{count} of {len(everything)} runs are in {asked.results}.")


if __name__ == "__main__":
    main()
