"""What a message to a client costs above Flower's own cost, with 200 virtual clients on Ray."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from benchmarks.flower_runs import Scalar, run_noop, run_ours
from benchmarks.inputs import shifted_digits
from benchmarks.report import Bar, Outcome

NUM_CLIENTS = 200
NUM_POINTS = 20_000
LIMIT = 20.0


def measure(quick: bool) -> Outcome:
    """Rounds of one small step per client, and of no step at all, in turns."""
    clients, turns, rounds = (20, 1, 3) if quick else (NUM_CLIENTS, 2, 6)
    overrides: dict[str, Scalar] = {
        "dataset": str(shifted_digits(NUM_POINTS)),
        "model": "mlp",
        "num-rounds": rounds,
        "local-epochs": 1,
        "batch-size": 0,
        "points-per-client": 80,
    }
    ours: list[float] = []
    noop: list[float] = []
    fit: list[float] = []
    evaluation: list[float] = []
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        for turn in range(turns):
            run = run_ours(overrides, Path(scratch) / f"ours{turn}", clients)
            ours += run.periods
            fit += [line["seconds_fit"] for line in run.lines[1:]]
            evaluation += [line["seconds_evaluation"] for line in run.lines]
            noop += run_noop(rounds, Path(scratch) / f"noop{turn}", clients)
    outcome = Outcome(
        f"message_cost: {clients} clients in every round, digits (shifted copies), mlp, one step",
        ("app", "rounds", "median round s", "fastest s", "ms per message"),
    )
    cost = {name: 1000 * median(s) / clients for name, s in (("ours", ours), ("no-op", noop))}
    for name, seconds in (("no-op", noop), ("ours", ours)):
        outcome.rows.append(
            (
                name,
                str(len(seconds)),
                f"{median(seconds):.2f}",
                f"{min(seconds):.2f}",
                f"{cost[name]:.2f}",
            )
        )
    outcome.bars.append(Bar("ours above no-op", cost["ours"] - cost["no-op"], LIMIT, " ms"))
    outcome.notes += [
        f"ours / no-op: {cost['ours'] / cost['no-op']:.2f}×",
        f"some client trains during {median(fit):.2f} s of a median round",
        f"evaluation at the server, beside the next round: median {median(evaluation):.2f} s",
    ]
    outcome.figures = {
        "round_seconds": {"ours": ours, "no-op": noop},
        "seconds_fit": fit,
        "seconds_evaluation": evaluation,
    }
    return outcome
