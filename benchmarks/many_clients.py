"""Cost of a message to a client beyond Flower's own cost, for 10 to 1,000 virtual clients."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from benchmarks.figures import Growth
from benchmarks.flower_runs import Scalar, run_noop, run_ours
from benchmarks.inputs import shifted_digits
from benchmarks.report import Bar, Outcome

COUNTS = (10, 100, 500, 1000)
JUDGED = (100, 500)
POINTS_PER_CLIENT = 100
LIMIT = 20.0
SIDES = ("no-op", "ours")


def measure(quick: bool) -> Outcome:
    """Rounds with one small step per client, and rounds of an app without work, in turns."""
    counts, rounds = ((4,), 2) if quick else (COUNTS, 4)
    judged = counts if quick else JUDGED
    # A fifth is for validation.
    folder = shifted_digits(2 * POINTS_PER_CLIENT * max(counts))
    outcome = Outcome(
        f"many_clients: all in every round, digits (shifted copies), {POINTS_PER_CLIENT} points, "
        "mlp, one step",
        (
            "clients",
            "app",
            "rounds",
            "median round s",
            "fastest – slowest s",
            "ms per message",
            "peak MB",
        ),
    )
    seconds: dict[str, dict[int, list[float]]] = {side: {} for side in SIDES}
    memory: dict[str, dict[int, float]] = {side: {} for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        for count in counts:
            place = Path(scratch) / str(count)
            noop, watch = run_noop(rounds, place / "noop", count)
            seconds["no-op"][count], memory["no-op"][count] = noop, watch.memory
            run = run_ours(_overrides(folder, rounds), place / "ours", count, "ray")
            seconds["ours"][count], memory["ours"][count] = run.seconds(), run.watch.memory
    for count in counts:
        cost = {side: 1000 * median(seconds[side][count]) / count for side in SIDES}
        for side in SIDES:
            taken = seconds[side][count]
            spread = f"{min(taken):.2f} – {max(taken):.2f}"
            cells = (str(len(taken)), f"{median(taken):.2f}", spread)
            peak = f"{memory[side][count]:,.0f}"
            outcome.rows.append((f"{count:,}", side, *cells, f"{cost[side]:.1f}", peak))
        if count in judged:
            above = cost["ours"] - cost["no-op"]
            outcome.bars.append(
                Bar(f"{count} clients, a message of ours above no-op", above, LIMIT, " ms")
            )
    outcome.notes.append(
        "peak MB: server, Ray and all actors together, shared pages once (PSS), every 5 s"
    )
    outcome.plots.append(
        Growth(
            "clients",
            "A round of clients with next to no work, on Flower's Ray simulation",
            "clients",
            {
                "median seconds of a round": {
                    side: [(count, median(seconds[side][count])) for count in counts]
                    for side in SIDES
                },
                "peak megabytes, all processes": {
                    side: list(memory[side].items()) for side in SIDES
                },
            },
        )
    )
    outcome.figures = {"round_seconds": seconds, "peak_mb": memory}
    return outcome


def _overrides(dataset: Path, rounds: int) -> dict[str, Scalar]:
    return {
        "dataset": str(dataset),
        "model": "mlp",
        "num-rounds": rounds,
        "evaluate-every": rounds,
        "local-epochs": 1,
        "batch-size": 0,
        "points-per-client": POINTS_PER_CLIENT,
    }
