"""A round of many small clients: ours, pfl-research, and a plain torch loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import torch

from benchmarks.figures import Sides
from benchmarks.flower_runs import Scalar, run_ours
from benchmarks.inputs import cifar_like
from benchmarks.plain_rounds import PlainRounds
from benchmarks.report import Bar, Outcome, best
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.learning.device import fast_bfloat16

CHECKOUT = Path(__file__).parents[1]
PFL = CHECKOUT / ".venv-pfl"
"""Environment in which ``make bench`` installs pfl, which needs older packages than Flower."""
OURS, PEER, PLAIN = "ours", "pfl-research", "plain loop"


def measure(quick: bool) -> Outcome:
    """Sides in turns; for every loop the best of several ways to use the cores."""
    clients, turns, rounds = (2, 1, 1) if quick else (50, 2, 6)
    model, (folder, name) = ("mlp", ("digits", "digits")) if quick else ("cnn4", cifar_like())
    cores = os.cpu_count() or 1
    shared: dict[str, Scalar] = {
        **{"method": "supervised", "dataset": str(folder), "points-per-client": 50},
        **{"model": model, "optimizer": "sgd", "learning-rate": 0.1, "batch-size": 10},
        **{"local-epochs": 1, "num-rounds": rounds + 1, "evaluate-every": rounds + 1},
        **{"precision": "float32", "augment": "none"},  # as the others
    }
    forms = {"1 thread": (1, 1), f"{cores} threads": (1, cores), f"{cores} processes": (cores, 1)}
    if quick:
        forms = {"1 thread": (1, 1)}
    taken: dict[str, list[float]] = {}
    for _ in range(turns):
        with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
            place = Path(scratch)
            for precision in _precisions(quick):
                own = {**shared, "precision": precision}
                run = run_ours(own, place / precision, clients)
                taken.setdefault(f"{OURS}, {precision}", []).extend(run.seconds())
            settings = resolve({**shared, "output": f"{place}/none"}, place)
            for form, (processes, threads) in forms.items():
                if found := pfl_seconds(
                    settings, clients, rounds, processes, threads, place / "seconds"
                ):
                    taken.setdefault(f"{PEER}, {form}", []).extend(found)
                with PlainRounds("tensors", settings, clients, processes, threads) as plain:
                    plain.seconds(1)  # warms up
                    taken.setdefault(f"{PLAIN}, {form}", []).extend(plain.seconds(rounds))
    return _judge(taken, clients, f"{model}, {name}")


def _precisions(quick: bool) -> list[str]:
    """float32, which the others use; and the default, if it is bfloat16."""
    both = not quick and fast_bfloat16(torch.device("cpu"))
    return ["float32", "auto"] if both else ["float32"]


def pfl_seconds(
    settings: RunConfig, clients: int, rounds: int, processes: int, threads: int, output: Path
) -> list[float]:
    """Seconds of pfl's rounds but the first; empty if it is not installed or fails."""
    if not (PFL / "pfl").exists():
        return []
    launch = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    task = [json.dumps(settings.to_flat()), clients, rounds, threads, output]
    ended = subprocess.run(
        [
            *(sys.executable, *(launch if processes > 1 else [])),
            *("-m", "benchmarks.pfl_worker", *map(str, task)),
        ],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            # Last on the path: it only provides packages that are missing elsewhere.
            "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(PFL)]),
        },
        stdout=subprocess.DEVNULL,
        check=False,
    )
    found: list[float] = [] if ended.returncode else json.loads(output.read_text())
    return found


def _judge(taken: dict[str, list[float]], clients: int, what: str) -> Outcome:
    outcome = Outcome(
        f"small_clients: a round of {clients} clients of 50 points, batch 10, one epoch, SGD, "
        f"{what}",
        ("side", "rounds", "median s", "fastest – slowest s", "over ours"),
    )
    ours = f"{OURS}, float32"
    for side, seconds in taken.items():
        ratio = median(seconds) / median(taken[ours])
        spread = f"{min(seconds):.2f} – {max(seconds):.2f}"
        cells = (str(len(seconds)), f"{median(seconds):.2f}", spread, f"{ratio:.2f}")
        outcome.rows.append((side, *cells))
    plain = best(taken, PLAIN)
    forms = {kind: sum(side.startswith(kind) for side in taken) for kind in (PEER, PLAIN)}
    if forms[PEER]:
        peer = best(taken, PEER)
        ratio = median(taken[peer]) / median(taken[ours])
        outcome.bars.append(Bar(f"{peer} (its best) / ours, float32 both", ratio, 1.5, "×", True))
    if forms[PEER] < forms[PLAIN]:
        outcome.notes.append(
            f"{PEER}: compared in {forms[PEER]} of {forms[PLAIN]} ways to use the cores; in the "
            "others it failed, or it is not in .venv-pfl (make bench)"
        )
    ratio = median(taken[ours]) / median(taken[plain])
    outcome.notes.append(f"ours / {plain} (its best), float32 both: {ratio:.2f}×")
    outcome.figures["round_seconds"] = taken
    outcome.plots.append(
        Sides("small_clients", f"A round of {clients} clients of 50 images ({what})", taken)
    )
    return outcome
