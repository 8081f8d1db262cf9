"""What a round costs beside its clients' training, and how much memory a client's process takes."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from statistics import median

from benchmarks.flower_runs import run_ours
from benchmarks.inputs import mnist_like
from benchmarks.report import Bar, Outcome

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "fedul" / "mnist-noniid-m10.toml"
NUM_CLIENTS = 5
SHARE, MEMORY = 10.0, 700.0


def measure(quick: bool) -> Outcome:
    """A few rounds of the paper's MNIST Non-IID experiment on Ray."""
    settings = tomllib.loads(EXPERIMENT.read_text())
    table = settings.pop("fedul")
    dataset, name = mnist_like()
    overrides = {
        **settings,
        **{f"fedul.{key}": value for key, value in table.items()},
        "dataset": str(dataset),
        "num-rounds": 3,
        "points-per-client": 512 if quick else 0,
    }
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        run = run_ours(overrides, Path(scratch) / "run", NUM_CLIENTS)
    outcome = Outcome(
        f"round_overhead: {NUM_CLIENTS} clients, cnn6, batch 128, majority, M = 10 shared, {name}",
        ("round", "seconds", "in fit", "beside fit", "model to model", "beside fit", "evaluation"),
    )
    shares, whole_shares = [], []
    # The first round also tells clients what they need, and has no model before it.
    for line, period in zip(run.lines, [None, *run.periods], strict=True):
        seconds, fit = line["seconds"], line["seconds_fit"]
        share = 100 * (1 - fit / seconds)
        cells = [f"{seconds:.2f}", f"{fit:.2f}", f"{share:.1f} %", "", ""]
        if period is not None:
            whole = 100 * (1 - fit / period)
            cells[3:] = [f"{period:.2f}", f"{whole:.1f} %"]
            shares.append(share)
            whole_shares.append(whole)
        outcome.rows.append((str(line["round"]), *cells, f"{line['seconds_evaluation']:.2f}"))
    outcome.bars += [
        Bar("median without the first round, of the round's seconds", median(shares), SHARE, " %"),
        Bar("the same, from model on disk to model on disk", median(whole_shares), SHARE, " %"),
        Bar(
            "largest client process, resident",
            max(peak["rss"] for peak in run.watch.peaks.values()),
            MEMORY,
            " MB",
        ),
    ]
    for pid, peak in run.watch.peaks.items():
        outcome.notes.append(
            f"client process {pid}: at most {peak['rss']:.0f} MB resident (RSS), "
            f"{peak['uss']:.0f} MB its own (USS)"
        )
    outcome.notes.append("Evaluation runs beside the next round; its seconds are not added.")
    outcome.figures = {
        "rounds": run.lines,
        "periods": run.periods,
        "actors_mb": list(run.watch.peaks.values()),
    }
    return outcome
