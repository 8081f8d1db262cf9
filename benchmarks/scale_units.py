"""The server's processor time per client, reply, point or pair, measured at small sizes."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from benchmarks.inputs import shifted_digits
from benchmarks.metered import MeteredGrid
from benchmarks.propagation import mixture
from benchmarks.secure import compare_group
from fedul_flwr.config.run_config import resolve
from fedul_flwr.engine.in_process import run_in_process, task_identity
from fedul_flwr.federated.bases import build_base
from fedul_flwr.federated.messages import ARRAYS, METRICS
from fedul_flwr.federated.replies import check_all_bytes, check_update
from fedul_flwr.propagation.codes import SEED_BYTES, encode, neighbors_by_code
from fedul_flwr.propagation.solve import NUM_NEIGHBORS, normalized_graph, propagation_columns
from fedul_flwr.secure.encrypted_distances import backend_of
from fedul_flwr.strategies.fedmatch_parts import decode
from fedul_flwr.strategies.fedmatch_parts import encode as sparse_encode

MEGABYTE = 1e6


def processor_seconds(work: Callable[[], object], turns: int) -> float:
    """Median over ``turns`` of the processor seconds of all threads."""
    taken = []
    for _ in range(turns):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return median(taken)


def membership(quick: bool) -> dict[str, float]:
    """Seconds per client before round 1 and in rounds without it, and per small reply.

    ``prepare_down``, ``prepare_up`` and ``described`` are bytes per client, of the two messages
    before round 1 and of ``federation.json``.
    """
    few, many, rounds = (20, 60, 3) if quick else (100, 500, 6)
    part, whole = 5, 20
    _run(whole, whole, 1)  # imports
    first = _run(few, part, rounds)
    more_clients, more_replies = _run(many, part, rounds), _run(few, whole, rounds)
    found: dict[str, float] = {}
    for key in ("once", "round", "described"):
        found[key] = (more_clients[key] - first[key]) / (many - few)
    found["reply"] = (more_replies["round"] - first["round"]) / (whole - part)
    return found | {key: first[key] for key in ("prepare_down", "prepare_up")}


def _run(clients: int, sampled: int, rounds: int) -> dict[str, float]:
    """Supervised training of a tiny model; ``round`` is the median after the first."""
    grids: list[MeteredGrid] = []

    def meter(grid: Grid) -> Grid:
        grids.append(MeteredGrid(grid))
        return grids[0]

    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        flat: dict[str, Any] = {"method": "supervised", "model": "mlp", "selection": "last"}
        flat |= {"dataset": str(shifted_digits(20_000)), "points-per-client": 20, "batch-size": 0}
        flat |= {"local-epochs": 1, "num-rounds": rounds, "fraction-train": sampled / clients}
        run_in_process(
            resolve({**flat, "output": f"{scratch}/run"}, Path(scratch)), clients, wrap_grid=meter
        )
        described = len((Path(scratch) / "run" / "federation.json").read_bytes())
    (grid,) = grids
    trains = [seconds for phase, seconds in grid.seconds if phase == "train"]
    return {
        "once": sum(seconds for _, seconds in grid.seconds[1:2]) + trains[0],
        "round": median(trains[1:] or trains),
        "described": described,
        "prepare_down": grid.down["setup"] / clients,
        "prepare_up": grid.up["setup"] / clients,
    }


def aggregation(quick: bool) -> dict[str, float]:
    """Seconds per reply and MB for checking and combining; for Krum per pair of replies and MB."""
    count, values, turns = (6, 50_000, 1) if quick else (20, 250_000, 5)
    rng = np.random.default_rng(0)
    megabytes = 4 * values / MEGABYTE
    updates = [rng.normal(size=values).astype(np.float32) for _ in range(count)]
    start = ArrayRecord({"x": Array(updates[0])})
    found = {}
    with tempfile.TemporaryDirectory() as scratch, task_identity():
        for name in ("fedavg", "fedmedian", "krum"):
            flat = {"base": name, "output": f"{scratch}/{name}"}
            base = build_base(resolve(flat, Path(scratch)))
            taken = []
            for _ in range(turns):  # with new replies: some bases empty them
                replies = [_reply(update, node) for node, update in enumerate(updates)]
                began = time.process_time()
                base.aggregate_train(1, replies)
                taken.append(time.process_time() - began)
            found[name] = median(taken) / ((count**2 if name == "krum" else count) * megabytes)
        content = _reply(updates[0], 0).content

    def check() -> None:
        check_all_bytes(content)
        check_update(content, {ARRAYS: start})

    found["check"] = processor_seconds(check, 4 * turns) / megabytes
    changed = {"x": updates[1]}
    update = sparse_encode(changed, {"x": updates[0]}, 0.0)
    encoding = processor_seconds(lambda: sparse_encode(changed, {"x": updates[0]}, 0.0), turns)
    decoding = processor_seconds(lambda: decode(update.record, {"x": updates[0]}), turns)
    return found | {"encode": encoding / megabytes, "decode": decoding / megabytes}


def _reply(update: np.ndarray, node: int) -> Message:
    asked = Message(RecordDict(), node, "train")
    metrics = MetricRecord({"num-examples": 1, "loss": 1.0})
    return Message(
        RecordDict({ARRAYS: ArrayRecord({"x": Array(update)}), METRICS: metrics}), reply_to=asked
    )


def propagation(quick: bool) -> dict[str, float]:
    """Seconds per pair of points for the graph (4,096 bits), and per point and column for the
    solver; and measured values for ring-LWE's estimates."""
    size, turns = (600, 1) if quick else (4000, 3)
    codes = encode(mixture(size)[0], bytes(SEED_BYTES))
    neighbors_by_code(codes[:10], 1)  # compiles the loops
    pairs = size * (size - 1) / 2
    graph = normalized_graph(neighbors_by_code(codes, NUM_NEIGHBORS))
    columns = np.arange(0, size, 10)
    solving = processor_seconds(lambda: propagation_columns(graph, columns), turns)
    clients, points, num_bits = (3, 20, 256) if quick else (4, 100, 1024)
    began = time.process_time()
    measured = compare_group("rlwe", clients, points, num_bits)
    taken = time.process_time() - began
    estimate = backend_of("rlwe").cost([points] * clients, num_bits)
    return {
        "pair": processor_seconds(lambda: neighbors_by_code(codes, NUM_NEIGHBORS), turns) / pairs,
        "column": solving / (size * len(columns)),
        "rlwe_bytes": measured["sent"] / estimate.traffic,
        "rlwe_seconds": taken / estimate.seconds,
    }


def units(quick: bool) -> dict[str, dict[str, float]]:
    """All unit costs."""
    return {
        "membership": membership(quick),
        "aggregation": aggregation(quick),
        "propagation": propagation(quick),
    }


if __name__ == "__main__":
    print(json.dumps(units(quick=False), indent=2))
