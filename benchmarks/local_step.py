"""Seconds of one local training step, against a plain float32 loop, at equal accuracy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

from benchmarks.inputs import data_folder, mnist_like
from benchmarks.report import Bar, Outcome, arithmetic

REFERENCE, OURS, FLOAT32 = "reference", "ours", "ours, float32"
KINDS = {REFERENCE: "reference", OURS: "ours:auto", FLOAT32: "ours:float32"}
"""Argument of every side's worker."""
BAR = 3.0


class Worker:
    """A new process for one side, so that sides do not share allocator and thread pool."""

    def __init__(self, side: str, threads: int, model: str, dataset: str) -> None:
        task = [KINDS[side], str(threads), model, dataset]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.step_worker", *task],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self, *words: object) -> None:
        assert self._process.stdin
        print(*words, file=self._process.stdin, flush=True)

    def receive(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"benchmarks.step_worker ended with {self._process.wait()}")
        return json.loads(line)

    def ask(self, *words: object) -> Any:
        self.send(*words)
        return self.receive()


def measure(quick: bool) -> Outcome:
    """Sides take turns of a few steps, so that other load on the machine affects all equally."""
    turns, per_turn, warm_up = (1, 2, 1) if quick else (5, 4, 4)
    model, (dataset, name) = (
        ("cnn-small", ("digits", "digits")) if quick else ("cnn6", mnist_like())
    )
    task = (model, str(dataset))
    cores = 1 if quick else os.cpu_count() or 1
    default = arithmetic(model, (8, 8, 1) if quick else (28, 28, 1))
    sides = (REFERENCE, OURS) if default == "float32" else (REFERENCE, OURS, FLOAT32)
    outcome = Outcome(
        f"local_step: {model}, batch 128, rotate, L1, surrogate loss (M = 10), Adam, {name}; "
        f"reference in float32, ours in {default}",
        ("threads", "side", "steps", "median ms", "fastest – slowest ms", "speed-up", "peak MB"),
    )
    for threads in sorted({1, cores}, reverse=True):
        with ExitStack() as stack:
            workers = {side: stack.enter_context(Worker(side, threads, *task)) for side in sides}
            seconds: dict[str, list[float]] = {side: [] for side in sides}
            for worker in workers.values():
                worker.ask("steps", warm_up)
            for _ in range(turns):
                for side, worker in workers.items():
                    seconds[side] += worker.ask("steps", per_turn)
            peaks = {side: worker.ask("memory") for side, worker in workers.items()}
            if threads == 1:
                _whole_machine(outcome, cores, workers, task, quick)
                _learn(outcome, workers, quick)
        ratios = {side: median(seconds[REFERENCE]) / median(seconds[side]) for side in sides}
        for side, taken in seconds.items():
            spread = f"{1000 * min(taken):.1f} – {1000 * max(taken):.1f}"
            cells = (str(len(taken)), f"{1000 * median(taken):.1f}", spread)
            row = (str(threads), side, *cells, f"{ratios[side]:.2f}", f"{peaks[side]:.0f}")
            outcome.rows.append(row)
        outcome.figures[f"threads_{threads}"] = {"seconds": seconds, "peak_mb": peaks}
        if threads == cores:
            what = f"speed-up with {threads} threads"
            outcome.bars.append(Bar(what, ratios[OURS], BAR, "×", True))
    return outcome


def _whole_machine(
    outcome: Outcome, cores: int, single: dict[str, Worker], task: tuple[str, str], quick: bool
) -> None:
    """Steps per second when the clients of a round use all cores.

    A plain loop trains clients one after the other with all cores; ours runs one per core. The
    workers of one thread, ``single``, wait meanwhile, but are all there is on one core.
    """
    turns, per_turn = (1, 2) if quick else (4, 4)
    rates: dict[str, list[float]] = {side: [] for side in single}
    with ExitStack() as stack:
        teams = {side: [worker] for side, worker in single.items()}
        for side in single if cores > 1 else ():
            threads, count = (cores, 1) if side == REFERENCE else (1, cores)
            teams[side] = [stack.enter_context(Worker(side, threads, *task)) for _ in range(count)]
        for turn in range(turns + 1):
            for side, workers in teams.items():
                for worker in workers:
                    worker.send("steps", per_turn)
                taken = [sum(worker.receive()) for worker in workers]
                if turn:  # the first warms up
                    rates[side].append(sum(per_turn / seconds for seconds in taken))
    found = [
        f"{side} {median(values):.2f} ({min(values):.2f} – {max(values):.2f}, {len(values)} turns)"
        for side, values in rates.items()
    ]
    outcome.notes.append(
        f"steps per second of the whole machine, reference one client at a time on {cores} "
        f"threads, ours one client per core: {'; '.join(found)}"
    )
    ratio = median(rates[OURS]) / median(rates[REFERENCE])
    outcome.bars.append(
        Bar("speed-up of the whole machine, a client per core", ratio, BAR, "×", True)
    )
    outcome.figures["steps_per_second"] = rates


def _learn(outcome: Outcome, workers: dict[str, Worker], quick: bool) -> None:
    """Test errors after the same steps on the same data, all sides in parallel."""
    if not quick and not data_folder("mnist"):
        outcome.notes.append("test error: not compared, random images have nothing to learn")
        return
    epochs, points, test = (1, 256, 200) if quick else (3, 3840, 10_000)
    errors: dict[str, list[float]] = {side: [] for side in workers}
    for seed in range(2):
        for worker in workers.values():
            worker.send("learn", seed, epochs, points, test)
        for side, worker in workers.items():
            errors[side].append(worker.receive())
    for side, values in errors.items():
        text = ", ".join(f"{value:.2f} %" for value in values)
        outcome.notes.append(
            f"test error of {side} after {epochs * (points // 128)} steps on {points} points, "
            f"2 seeds: {text}"
        )
    outcome.figures["test_error"] = errors
