"""Seconds from the command's start to the error of FedUL's paper on MNIST, M = 10."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from benchmarks.figures import Growth
from benchmarks.inputs import data_folder, experiment, mnist_like
from benchmarks.plain_rounds import PlainRounds
from benchmarks.report import Bar, Outcome
from fedul_flwr.config.base import Scalar
from fedul_flwr.config.run_config import resolve
from fedul_flwr.engine.flower_run import as_toml

CLIENTS, SEEDS = 5, (11, 12, 13, 14, 15)
TARGETS = {"IID": 0.78, "Non-IID": 2.98}
"""Error of FedUL in table 1 of its paper, in %: validation decides when a run has it."""
_STEPS: dict[str, Scalar] = {
    **{"validation-fraction": 0.1, "local-epochs": 1, "batch-size": 48},
    **{"optimizer": "sgd", "learning-rate": 0.1, "momentum": 0.9, "weight-decay": 1e-4},
    **{"learning-rate-schedule": "cosine", "augment": "affine"},
}
FAST: dict[str, dict[str, Scalar]] = {
    "IID": {
        **{"model": "cnn6-quarter", "points-per-client": 9000},
        **{"num-rounds": 30, "fraction-train": 0.8, **_STEPS},
    },
    "Non-IID": {
        **{"model": "cnn2", "points-per-client": 7000},
        **{"num-rounds": 24, "fraction-train": 0.4, **_STEPS},
    },
}
"""Settings that get there soon: smaller networks than the paper's 14 million weights (0.9 million
with IID, 52,314 with Non-IID), fewer points, four or two of the five clients in a round. Chosen by
hand by the seconds to the target by validation: Non-IID among some 130 settings, at last with seeds
8, 9 and 10; IID among five with seed 10."""
OURS = "our fast settings"
PAPER = "paper's settings"
LOOP = "plain float32 loop of the paper's settings"
MOST_ROUNDS = 40
LIMIT, OVER_LOOP = 75.0, 50.0
"""Bars of Non-IID: most seconds of our settings, and the loop's time over them."""


@dataclass(frozen=True)
class Way:
    """Errors of a run by seconds since its command started.

    Attributes
    ----------
    points : ``(seconds, validation error in %)`` after each round.
    reached : whether the last one is the target or less.
    """

    points: list[tuple[float, float]]
    reached: bool


def measure(quick: bool) -> Outcome:
    """Our settings by five seeds; the paper's by one, as they take long.

    A plain loop of the paper's settings learns the same numbers as our run of them: its time is the
    number of rounds times the seconds of one of its rounds.
    """
    # Who starts this in the background may ignore interrupts, and runs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    columns = ["Non-IID"] if quick or data_folder("mnist") is None else list(TARGETS)
    outcome = Outcome(
        f"time_to_error: FedUL on {mnist_like()[1]}, {CLIENTS} clients, M = 10, float32: seconds "
        "to the paper's error by validation",
        ("split, target", "side", "seeds", "reached", "mean s", "each s", "rounds"),
    )
    curves: dict[str, list[tuple[float, float]]] = {}
    for column in columns:
        target = 100.0 if quick else TARGETS[column]
        ways = {
            side: [_run({**settings, "seed": seed}, target) for seed in seeds]
            for side, (settings, seeds) in _sides(column, quick).items()
        }
        of_loop = _loop_seconds(column) if not quick else 1.0
        _report(outcome, column, target, ways, of_loop)
        curves |= {f"{column}, {side}": found[0].points for side, found in ways.items()}
        learned = enumerate(ways[PAPER][0].points, 1)
        curves[f"{column}, {LOOP}"] = [(number * of_loop, error) for number, (_, error) in learned]
    errors = {"validation error, %": curves}
    outcome.figures["curves"] = curves
    goals = {} if quick else {column: TARGETS[column] for column in columns[:1]}
    level = next(((goal, f"the paper's {goal:g} %, {one}") for one, goal in goals.items()), None)
    title, time = "Error over time, first seed", "seconds since the start"
    outcome.plots.append(Growth("time_to_error", title, time, errors, level))
    return outcome


def _sides(column: str, quick: bool) -> dict[str, tuple[dict[str, Scalar], tuple[int, ...]]]:
    """Settings and seeds by side."""
    shared: dict[str, Scalar] = {"dataset": str(mnist_like()[0]), "precision": "float32"}
    shared |= {"evaluate-every": 1, "measure-test-error": False}
    paper = {**experiment("fedul/table-1", f"MNIST {column} M=10"), **shared}
    if quick:
        small = {"dataset": "digits", "model": "mlp", "num-rounds": 2, "points-per-client": 200}
        return {
            OURS: ({**paper, **FAST[column], **small}, SEEDS[:1]),
            PAPER: ({**paper, **small}, SEEDS[:1]),
        }
    ours = {**paper, **FAST[column]}
    paper["num-rounds"] = MOST_ROUNDS
    return {OURS: (ours, SEEDS), PAPER: (paper, SEEDS[:1])}


def _run(settings: Mapping[str, Scalar], target: float) -> Way:
    """Start the command, and end it once a round has the target's error."""
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        output, file = Path(scratch) / "run", Path(scratch) / "run.toml"
        file.write_text(as_toml({**settings, "output": str(output)}))
        began = time.monotonic()
        program = subprocess.Popen(
            [
                *(sys.executable, "-m", "fedul_flwr.cli", "run", "-c", str(file)),
                *("--num-supernodes", str(CLIENTS)),
            ],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        points: list[tuple[float, float]] = []
        while not (points and points[-1][1] <= target):
            ended = program.poll() is not None
            lines = _lines(output / "metrics.jsonl")
            if len(lines) > len(points):
                points.append((time.monotonic() - began, lines[len(points)]["validation_error"]))
            elif ended:
                break
            else:
                time.sleep(0.1)
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGINT)
        if program.wait() not in (0, 130):
            raise RuntimeError(f"the run ended with exit code {program.returncode}")
    return Way(points, bool(points) and points[-1][1] <= target)


def _lines(file: Path) -> list[dict[str, float]]:
    """Whole lines of ``metrics.jsonl`` from round 1 on."""
    text = file.read_text() if file.exists() else ""
    found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in found if line["round"] > 0]


def _loop_seconds(column: str) -> float:
    """Seconds of a round of the plain loop, in its best form."""
    shared = experiment("fedul/table-1", f"MNIST {column} M=10") | {"dataset": str(mnist_like()[0])}
    settings = resolve({**shared, "precision": "float32", "output": "none"}, Path.cwd())
    cores = os.cpu_count() or 1
    found = []
    for processes, threads in ((cores, 1), (1, cores)):
        with PlainRounds("image by image", settings, CLIENTS, processes, threads) as plain:
            found += plain.seconds(1)
    return min(found)


def _report(
    outcome: Outcome, column: str, target: float, ways: Mapping[str, list[Way]], of_loop: float
) -> None:
    for side, found in ways.items():
        took = [way.points[-1][0] for way in found]
        each = ", ".join(f"{seconds:.0f}" for seconds in took)
        rounds = ", ".join(str(len(way.points)) for way in found)
        reached = f"{sum(way.reached for way in found)} of {len(found)}"
        cells = (str(len(found)), reached, f"{mean(took):.0f}", each, rounds)
        outcome.rows.append((f"{column}, {target:g} %", side, *cells))
    needed = len(ways[PAPER][0].points)
    sign = "" if ways[PAPER][0].reached else "> "
    loop = needed * of_loop
    cells = ("1", f"{sign}{needed} rounds", f"{sign}{loop:.0f}", f"{of_loop:.1f} a round")
    outcome.rows.append((f"{column}, {target:g} %", LOOP, *cells, str(needed)))
    if column != "Non-IID":
        return
    ours = [way.points[-1][0] if way.reached else math.inf for way in ways[OURS]]
    outcome.bars.append(Bar(f"{OURS}, to {target:g} %, slowest seed", max(ours), LIMIT, " s"))
    over = loop / median(ours)
    outcome.bars.append(Bar(f"loop over {OURS}, median seed", over, OVER_LOOP, "×", True))
