"""The engines beside each other: time to the first round, time of a run, and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.figures import Sides
from benchmarks.flower_runs import Rounds, Scalar, largest, run_ours
from benchmarks.inputs import experiment, mnist_like, shifted_digits
from benchmarks.report import Bar, Outcome
from fedul_flwr.config.options import Engine

ENGINES: tuple[Engine, ...] = ("processes", "ray", "in-process")
CLIENTS, MANY, POINTS = 10, 1000, 50
FIRST: dict[Engine, float] = {"processes": 4.0}
"""Most seconds to the first round's line."""
PYTHON_FIRST = 6.0
"""Most seconds from a Python program's start to its first round, in process, empty cache."""
PROGRAM = """
import fedul_flwr as ff
ff.simulate("fedul", clients={clients}, rounds=1, output={output!r}, engine="in-process")
"""
OVER_RAY, TOGETHER = 2.5, 2500.0
OWN = {"cnn6": 450.0, "cnn-small": 150.0}


def measure(quick: bool) -> Outcome:
    """The same runs by each engine in turns; then the memory of three runs of the pool."""
    turns, rounds = (1, 2) if quick else (3, 30)
    engines = ENGINES[::2] if quick else ENGINES
    runs: dict[Engine, list[Rounds]] = {engine: [] for engine in engines}
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        for turn in range(turns):
            for engine in engines:
                place = Path(scratch) / f"{engine}-{turn}"
                runs[engine].append(run_ours({"num-rounds": rounds}, place, CLIENTS, engine))
        python = [_python_first(Path(scratch) / f"python-{turn}") for turn in range(turns)]
        memory = {} if quick else _memory(Path(scratch))
    outcome = _judge(runs, memory, rounds)
    first = median(python)
    cells = (str(turns), f"{first:.1f}", "–", f"{min(python):.1f} – {max(python):.1f}", "–")
    outcome.rows.append(("ff.simulate in process, empty cache: to the first round", *cells))
    outcome.bars.append(Bar("import fedul_flwr to the first round", first, PYTHON_FIRST, " s"))
    return outcome


def _python_first(place: Path) -> float:
    """Seconds from the start of a Python program to the line about its first round."""
    program = PROGRAM.format(clients=CLIENTS, output=str(place / "run"))
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        env={**os.environ, "FEDUL_CACHE": str(place / "cache")},
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("round "):
                took = time.monotonic() - started
    if running.returncode:
        raise RuntimeError("the Python program has failed")
    return took


def _memory(place: Path) -> dict[str, Rounds]:
    """Runs whose memory counts, by what they are."""
    paper: dict[str, Scalar] = experiment("fedul/table-1", "MNIST Non-IID M=10")
    paper |= {"dataset": str(mnist_like()[0]), "num-rounds": 2, "points-per-client": 2000}
    folder = shifted_digits(2 * POINTS * MANY)
    many: dict[str, Scalar] = {"method": "supervised", "dataset": str(folder), "num-rounds": 2}
    many["points-per-client"] = POINTS
    return {
        "cnn6": run_ours(paper, place / "cnn6", 5),
        "cnn-small": run_ours({"num-rounds": 10}, place / "small", CLIENTS),
        "many": run_ours(many, place / "many", MANY),
    }


def _judge(runs: dict[Engine, list[Rounds]], memory: dict[str, Rounds], rounds: int) -> Outcome:
    outcome = Outcome(
        f"engines: {rounds} rounds of FedUL on digits, {CLIENTS} clients, the command's defaults",
        ("engine", "runs", "first round after s", "whole run s", "fastest – slowest s", "peak MB"),
    )
    whole: dict[str, list[float]] = {}
    for engine, found in runs.items():
        whole[engine] = [run.whole for run in found]
        first = median(run.first for run in found)
        spread = f"{min(whole[engine]):.1f} – {max(whole[engine]):.1f}"
        peak = f"{max(run.watch.memory for run in found):,.0f}"
        cells = (str(len(found)), f"{first:.1f}", f"{median(whole[engine]):.1f}", spread, peak)
        outcome.rows.append((engine, *cells))
        if engine in FIRST:
            name = f"--engine {engine}: command to first round's line"
            outcome.bars.append(Bar(name, first, FIRST[engine], " s"))
    if "ray" in whole:
        ratio = median(whole["ray"]) / median(whole["processes"])
        outcome.bars.append(Bar("whole run, Ray over processes", ratio, OVER_RAY, "×", True))
    if memory:
        together = memory["many"].watch.memory
        own = {model: largest([memory[model]], "uss") for model in OWN}
        outcome.bars += [
            *(Bar(f"largest own memory (USS), {m}", own[m], OWN[m], " MB") for m in OWN),
            Bar(f"{MANY:,} clients on digits, all processes (PSS)", together, TOGETHER, " MB"),
        ]
    outcome.figures = {"whole": whole, "first": {e: [r.first for r in f] for e, f in runs.items()}}
    outcome.plots.append(
        Sides("engines", f"{rounds} rounds of FedUL on digits by each engine", whole)
    )
    return outcome
