"""Peak memory of a round of many clients with a large model, shared pages counted once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.flower_runs import MEGABYTE, Scalar, run_ours
from benchmarks.inputs import MADE, write_npz
from benchmarks.report import Bar, Outcome
from benchmarks.scale import model_bytes
from fedul_flwr.config.options import Engine

CLIENTS, LIMIT = 500, 1.5
POINTS_PER_CLIENT = 4
ENGINES: tuple[Engine, ...] = ("processes", "in-process")
GIGABYTE = 1e9


def measure(quick: bool) -> Outcome:
    """One round of ResNet-9 with one small step per client, in the pool and in one process."""
    clients = 12 if quick else CLIENTS
    outcome = Outcome(
        f"round_memory: a mean of {clients} clients, ResNet-9, {POINTS_PER_CLIENT} random images "
        "each, one step",
        ("engine", "replies GB", "server's peak GB", "all processes' GB", "round s"),
    )
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2 * POINTS_PER_CLIENT * clients, 32, 32, 3), dtype=np.uint8)
    train = images, rng.integers(0, 10, len(images))
    test = images[:40], train[1][:40]
    folder = write_npz(MADE / f"random-{len(images)}", train, test)
    settings: dict[str, Scalar] = {
        **{"dataset": str(folder), "method": "supervised", "model": "resnet9", "num-rounds": 1},
        **{"local-epochs": 1, "batch-size": 0, "points-per-client": POINTS_PER_CLIENT},
        **{"selection": "last", "precision": "float32"},
    }
    replies = clients * model_bytes() / GIGABYTE
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        for engine in ENGINES:
            run = run_ours(settings, Path(scratch) / engine, clients, engine)
            peak, together = (
                amount * MEGABYTE / GIGABYTE for amount in (run.watch.server, run.watch.memory)
            )
            cells = (f"{value:.2f}" for value in (replies, peak, together))
            outcome.rows.append((engine, *cells, f"{run.lines[0]['seconds']:.0f}"))
            outcome.bars.append(Bar(f"the server's peak, {engine}", peak, LIMIT, " GB"))
            outcome.figures[engine] = {"peak_gb": peak, "all_gb": together, "replies_gb": replies}
    return outcome
