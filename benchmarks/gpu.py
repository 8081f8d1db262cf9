"""Rounds on a GPU: clients one after the other, kernel by kernel, and in lanes with recorded steps.

``python -m benchmarks gpu --output FOLDER`` takes some three minutes of one card. Each line is a
ratio of two runs of the same settings on it, one after the other, after the rounds in which steps
are recorded. Where there is no GPU, ``--quick`` shows that it works.

Only a card can show, besides speed and memory: whether each kernel of a model gives the same bits
twice (cuDNN's are chosen so; gradients of pooling are torch's), and whether two steps before a
recording are enough for all libraries to have chosen theirs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.flower_runs import Scalar
from benchmarks.inputs import EXPERIMENTS, cifar_like, mnist_like
from benchmarks.report import Bar, Outcome
from benchmarks.small_clients import pfl_seconds
from fedul_flwr.config.run_config import resolve
from fedul_flwr.experiments.table import read_table
from fedul_flwr.experiments.trial_plan import apply

EAGER, ONE, LANES, PLAIN = "kernel by kernel", "one lane", "lanes", "plain loop"
PFL_TIMES = 5.0
"""How many times as long a round of pfl-research should take."""


@dataclass(frozen=True)
class Case:
    """A run.

    Attributes
    ----------
    name : what it is.
    settings : flat, without data.
    clients : of the run.
    rounds : measured, after :attr:`before` others.
    before : rounds in which steps are recorded.
    ways : how it is run, the first one first.
    """

    name: str
    settings: dict[str, Scalar]
    clients: int
    rounds: int
    before: int = 2
    ways: tuple[str, ...] = (EAGER, LANES)


def of_table(table: str, column: str, row: str, **changed: Scalar) -> dict[str, Scalar]:
    """Settings of a row of a paper's table, at full size."""
    found = read_table(EXPERIMENTS, table).column(column)
    return {**apply(found.settings, found.rows[row]), **changed}


SMALL: dict[str, Scalar] = {
    **{"method": "supervised", "points-per-client": 50, "model": "cnn4", "batch-size": 10},
    **{"optimizer": "sgd", "learning-rate": 0.1, "local-epochs": 1, "augment": "none"},
    "precision": "float32",
}


def cases(quick: bool) -> list[Case]:
    """What is measured."""
    if quick:
        shared: dict[str, Scalar] = {"model": "mlp", "local-epochs": 1, "points-per-client": 40}
        return [
            Case("small clients", {**SMALL, **shared}, 3, 1, 1, (EAGER, LANES, PLAIN)),
            Case("fixmatch", {**shared, "method": "fixmatch", "labels.total": 60}, 3, 1, 1),
        ]
    cifar, mnist = {"dataset": str(cifar_like()[0])}, {"dataset": str(mnist_like()[0])}
    fedmatch = of_table("fedmatch/table-1", "Batch-IID labels at clients", "FedMatch", **cifar)
    semifl = of_table("semifl/cifar10", "IID", "SemiFL", **cifar)
    xclp = of_table("xclp/table-4", "IID 5000 labels at 100 clients", "FedAvg + XCLP", **cifar)
    fedul = of_table("fedul/table-1", "MNIST IID M=10", "FedUL", **mnist)
    few = {"local-epochs": 1, "server.epochs": 1}
    return [
        Case("small clients", {**SMALL, **cifar}, 50, 6, 2, (EAGER, ONE, LANES, PLAIN)),
        Case("FedMatch, table 1", fedmatch, 100, 4),
        Case("SemiFL, 1 epoch a round", {**semifl, **few}, 100, 2),
        Case("XCLP, table 4", {**xclp, "semi.labels-only-rounds": 1}, 100, 3),
        Case("FedUL, table 1", fedul, 5, 3),
    ]


def measure(quick: bool) -> Outcome:
    """All cases, each in all its ways."""
    card = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    outcome = Outcome(
        f"gpu: rounds on {card}, torch {torch.__version__}",
        ("run", "way", "median s", "over lanes", "busy %", "peak GB"),
    )
    for case in cases(quick):
        found = {way: _run(case, way) for way in case.ways}
        if case.name == "small clients" and (peer := _pfl(case, quick)):
            found["pfl-research"] = {"seconds": peer}
        lanes = median(found[LANES]["seconds"])
        for way, of_way in found.items():
            seconds = median(of_way["seconds"])
            beside = (f"{of_way[key]:.1f}" if key in of_way else "" for key in ("busy", "peak"))
            cells = (f"{seconds:.3f}", f"{seconds / lanes:.2f}", *beside)
            outcome.rows.append((case.name, way, *cells))
        if "pfl-research" in found:
            ratio = median(found["pfl-research"]["seconds"]) / lanes
            outcome.bars.append(Bar("pfl-research / lanes", ratio, PFL_TIMES, "×", True))
        outcome.figures[case.name] = found
    outcome.notes.append("seconds of a round without the first ones, in which steps are recorded")
    return outcome


def _run(case: Case, way: str) -> dict[str, Any]:
    """Seconds of rounds, percent of the time in which the GPU was busy, and its peak memory."""
    rounds = case.before + case.rounds
    settings = {**case.settings, "num-rounds": rounds, "evaluate-every": rounds}
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        output = Path(scratch) / "run"
        resolved = resolve({**settings, "output": str(output)}, Path(scratch))
        order = [json.dumps(resolved.to_flat()), str(case.clients), way, str(case.before)]
        program = [sys.executable, "-m", "benchmarks.gpu_worker", *order]
        ended = subprocess.run(program, check=False, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"{case.name}, {way}: {ended.stderr[-800:]}")
        for line in ended.stdout.splitlines():
            if line.startswith("Steps of method"):
                print(f"  {case.name}, {way}: {line}", flush=True)
        answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return answer


def _pfl(case: Case, quick: bool) -> list[float]:
    """Seconds of rounds of pfl-research, if it is installed."""
    if quick:
        return []
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        place = Path(scratch)
        settings = resolve({**case.settings, "output": str(place / "none")}, place)
        return pfl_seconds(settings, case.clients, case.rounds, 1, 1, place / "seconds")
