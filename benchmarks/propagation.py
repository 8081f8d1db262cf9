"""Label propagation: the solver against a dense inverse, the graph against FAISS, and at scale."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.figures import Growth
from benchmarks.report import Bar, Outcome
from fedul_flwr.arrays import Bytes, Floats, Ints
from fedul_flwr.data.class_labels import labels_from_scores
from fedul_flwr.propagation.codes import NUM_BITS, SEED_BYTES, encode, neighbors_by_code
from fedul_flwr.propagation.solve import (
    ALPHA,
    NUM_NEIGHBORS,
    normalized_graph,
    one_hot,
    propagate,
    propagation_columns,
)

NUM_CLASSES = 10
SCALES = (1000, 2000, 5000, 10_000, 20_000, 50_000)
STEPS = ("codes", "graph", "scores")
GIBIBYTE = 2**30


def measure(quick: bool) -> Outcome:
    """All sides in one process, one after the other; the run at scale in a new process."""
    size, turns, scales = (1000, 1, (500,)) if quick else (10_000, 3, SCALES)
    num_columns = size // 10
    features, classes = mixture(size)
    codes = encode(features, bytes(SEED_BYTES))
    outcome = Outcome(
        f"propagation: n = {size:,}, L = {NUM_BITS:,}, k = {NUM_NEIGHBORS}, alpha = {ALPHA}",
        ("what", "ours s", "other s", "ratio"),
    )

    def compare(what: str, ours: list[float], other: list[float], bar: float) -> None:
        ratio = median(other) / median(ours)
        cells = (f"{median(ours):.3f}", f"{median(other):.3f}", f"{ratio:.1f}")
        outcome.rows.append((what, *cells))
        outcome.bars.append(Bar(what, ratio, bar, "×", True))
        outcome.figures[what] = {"ours": ours, "other": other}

    graph = normalized_graph(neighbors_by_code(codes, NUM_NEIGHBORS))
    labels = one_hot(few_labels(classes, 20), NUM_CLASSES)
    points = np.arange(0, size, 10)
    ten = [seconds(lambda: propagate(graph, labels)) for _ in range(turns)]
    many = [seconds(lambda: propagation_columns(graph, points)) for _ in range(turns)]
    system = np.eye(size) - ALPHA * graph.toarray()
    start = time.perf_counter()
    inverse = np.linalg.inv(system)
    dense = [time.perf_counter() - start]
    compare(f"scores of {NUM_CLASSES} classes / dense inverse", ten, dense, 100)
    compare(f"influence of {num_columns:,} points / dense inverse", many, dense, 5)
    error = np.abs(propagation_columns(graph, points) - inverse[:, points]).max()
    outcome.notes.append(f"largest difference of an influence from the dense inverse: {error:.1e}")
    del system, inverse
    if importlib.util.find_spec("faiss"):
        _against_faiss(outcome, compare, codes, turns)
    else:
        outcome.notes.append("FAISS: not compared, faiss-cpu is not installed (the extra `bench`)")
    _growth(outcome, scales)
    return outcome


def _against_faiss(
    outcome: Outcome, compare: Callable[..., None], codes: Bytes, turns: int
) -> None:
    """FAISS with the faster number of threads: on a busy machine its threads wait long."""
    faiss_search(codes[:10], 1)  # imports; ours was compiled when the graph was made
    cores = os.cpu_count() or 1
    ours: list[tuple[float, float]] = []
    other: dict[int, list[tuple[float, float]]] = {1: [], cores: []}
    for _ in range(turns):
        ours.append(costs(lambda: neighbors_by_code(codes, NUM_NEIGHBORS)))
        for threads, taken in other.items():
            taken.append(costs(lambda t=threads: faiss_search(codes, NUM_NEIGHBORS, t)))
    fastest = min(other, key=lambda threads: median(wall for wall, _ in other[threads]))
    outcome.notes.append(f"FAISS: {fastest} of {cores} threads, the faster choice; ours: {cores}")
    for place, what in enumerate(("", ", processor time")):
        sides = ([cost[place] for cost in side] for side in (ours, other[fastest]))
        compare(f"neighbors by code / FAISS's IndexBinaryFlat{what}", *sides, 1)


def mixture(size: int) -> tuple[Floats, Ints]:
    """Points of ten classes, three Gaussian clusters each, in 128 dimensions."""
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 3 * NUM_CLASSES, size)
    centers = rng.normal(size=(3 * NUM_CLASSES, 128))
    features = centers[clusters] + 1.2 * rng.normal(size=(size, 128))
    return features, (clusters % NUM_CLASSES).astype(np.int64)


def few_labels(classes: Ints, every: int) -> Ints:
    """Labels of one in ``every`` points, -1 for the others."""
    return np.where(np.arange(len(classes)) % every == 0, classes, -1)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def costs(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock seconds, and processor seconds of all cores."""
    before = time.process_time()
    return seconds(work), time.process_time() - before


def faiss_search(codes: Bytes, k: int, threads: int = 1) -> Any:
    """Exhaustive search of the k nearest points, and the point itself."""
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    return index.search(codes, k + 1)


def _growth(outcome: Outcome, sizes: Sequence[int]) -> None:
    """From features to labels, each size in a new process, to measure its peak memory."""
    found = {size: _at_scale(size) for size in sizes}
    totals = {size: sum(one["seconds"].values()) for size, one in found.items()}
    for size, one in found.items():
        steps = ", ".join(f"{step} {taken:.1f} s" for step, taken in one["seconds"].items())
        outcome.notes.append(
            f"n = {size:,}, 1 % labeled: {steps}; peak {one['peak'] / GIBIBYTE:.2f} GiB; "
            f"{100 * one['accuracy']:.1f} % of the unlabeled labeled rightly"
        )
    size = max(sizes)
    peak = found[size]["peak"] / GIBIBYTE
    outcome.bars.append(Bar(f"features to labels, n = {size:,}", totals[size], 180, " s"))
    outcome.bars.append(Bar(f"peak memory, n = {size:,}", peak, 4, " GiB"))
    outcome.figures["at scale"] = found
    steps_of = {step: [(n, one["seconds"][step]) for n, one in found.items()] for step in STEPS}
    outcome.plots.append(
        Growth(
            "points",
            "Label propagation from features to labels",
            "points",
            {
                "seconds": {"all": list(totals.items()), **steps_of},
                "peak GiB": {"all": [(n, one["peak"] / GIBIBYTE) for n, one in found.items()]},
            },
        )
    )


def _at_scale(size: int) -> dict[str, Any]:
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.propagation", str(size)],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def run_at_scale(size: int) -> dict[str, Any]:
    """Seconds of every step, peak memory in bytes, accuracy on the unlabeled points."""
    features, classes = mixture(size)
    labels = few_labels(classes, 100)
    times: dict[str, float] = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        times[step] = time.perf_counter() - start
        return result

    small = encode(features[:100], bytes(SEED_BYTES))
    neighbors_by_code(small, NUM_NEIGHBORS)  # compiles, which takes equally long for every size
    codes = timed("codes", lambda: encode(features, bytes(SEED_BYTES)))
    graph = timed("graph", lambda: normalized_graph(neighbors_by_code(codes, NUM_NEIGHBORS)))
    scores = timed("scores", lambda: propagate(graph, one_hot(labels, NUM_CLASSES)))
    found = timed("labels", lambda: labels_from_scores(scores, labels))
    right = (found.labels == classes)[labels == -1].mean()
    return {"seconds": times, "peak": peak_memory(), "accuracy": float(right)}


def peak_memory() -> int:
    """Peak memory in bytes. Not ``ru_maxrss``, which includes the parent's memory at the start."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    print(json.dumps(run_at_scale(int(sys.argv[1]))))
