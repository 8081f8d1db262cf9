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
from benchmarks.report import Bar, Outcome

SIDES = ("reference", "ours")
BAR = 3.0


class Worker:
    """A fresh process of one side: the allocator and thread pool of one do not touch the other."""

    def __init__(self, kind: str, threads: int, model: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.step_worker", kind, str(threads), model],
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
    """Steps in turns of a few, so that the machine's other work hits both sides alike."""
    turns, per_turn, warm_up = (1, 2, 1) if quick else (5, 4, 4)
    model = "cnn6-quarter" if quick else "cnn6"
    name = mnist_like()[1]
    outcome = Outcome(
        f"local_step: {model}, batch 128, rotate, L1, surrogate loss (M = 10), Adam, {name}",
        ("threads", *(f"{side}, median ms" for side in SIDES), "fastest ms", "ratio", "peak MB"),
    )
    cores = os.cpu_count() or 1
    for threads in sorted({1, cores}, reverse=True):
        with ExitStack() as stack:
            reference, ours = (stack.enter_context(Worker(s, threads, model)) for s in SIDES)
            workers = dict(zip(SIDES, (reference, ours), strict=True))
            seconds: dict[str, list[float]] = {side: [] for side in SIDES}
            for worker in workers.values():
                worker.ask("steps", warm_up)
            for _ in range(turns):
                for side, worker in workers.items():
                    seconds[side] += worker.ask("steps", per_turn)
            peaks = {side: worker.ask("memory") for side, worker in workers.items()}
            if threads == 1:
                _learn(outcome, workers, quick)
        middle = {side: 1000 * median(values) for side, values in seconds.items()}
        least = {side: 1000 * min(values) for side, values in seconds.items()}
        ratio = middle["reference"] / middle["ours"]
        outcome.rows.append(
            (
                str(threads),
                *(f"{middle[side]:.1f}" for side in SIDES),
                " / ".join(f"{least[side]:.1f}" for side in SIDES),
                f"{ratio:.2f}",
                " / ".join(f"{peaks[side]:.0f}" for side in SIDES),
            )
        )
        outcome.figures[f"threads_{threads}"] = {"seconds": seconds, "peak_mb": peaks}
        if threads == cores:
            outcome.bars.append(Bar(f"speed-up with {threads} threads", ratio, BAR, "×", True))
    _whole_machine(outcome, cores, model, quick)
    return outcome


def _whole_machine(outcome: Outcome, cores: int, model: str, quick: bool) -> None:
    """Steps per second when a round's clients keep the machine busy.

    A plain loop takes clients in turn, each with all cores; ours run one per core.
    """
    turns, per_turn = (1, 2) if quick else (4, 4)
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    with ExitStack() as stack:
        reference = [stack.enter_context(Worker("reference", cores, model))]
        ours = [stack.enter_context(Worker("ours", 1, model)) for _ in range(cores)]
        for turn in range(turns + 1):
            for side, workers in zip(SIDES, (reference, ours), strict=True):
                for worker in workers:
                    worker.send("steps", per_turn)
                taken = [sum(worker.receive()) for worker in workers]
                if turn:  # the first warms up
                    rates[side].append(sum(per_turn / seconds for seconds in taken))
    middle = {side: median(values) for side, values in rates.items()}
    ratio = middle["ours"] / middle["reference"]
    outcome.notes.append(
        f"steps per second of the whole machine: {middle['reference']:.2f} one client at a time on "
        f"{cores} threads (reference), {middle['ours']:.2f} one client per core (ours)"
    )
    outcome.bars.append(
        Bar("speed-up of the whole machine, a client per core", ratio, BAR, "×", True)
    )
    outcome.figures["steps_per_second"] = rates


def _learn(outcome: Outcome, workers: dict[str, Worker], quick: bool) -> None:
    """Test errors after the same steps on the same data, both sides at a time."""
    if not data_folder("mnist"):
        outcome.notes.append("test error: not compared, random images have nothing to learn")
        return
    epochs, points, test = (1, 256, 200) if quick else (3, 3840, 10_000)
    errors: dict[str, list[float]] = {side: [] for side in SIDES}
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
