"""FedUL's round on MNIST through Flower, and the same round as a plain loop without Flower."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks.figures import Sides
from benchmarks.flower_runs import Rounds, largest, run_ours
from benchmarks.inputs import experiment, mnist_like
from benchmarks.plain_rounds import PlainRounds
from benchmarks.report import Bar, Outcome, arithmetic, best
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.run.server_data import open_server_data

NUM_CLIENTS = 5
SECONDS, OVERHEAD, SHARE, MEMORY = 21.0, 10.0, 10.0, 450.0
OURS, EVALUATED = "ours", "ours, evaluated every round"
LOOPS = {"ours": "our clients in a plain loop", "image by image": "plain float32 loop"}


def measure(quick: bool) -> Outcome:
    """The paper's MNIST Non-IID experiment; sides in turns.

    Evaluation on the server's 22,000 images runs during the next round and uses clients' cores.
    Therefore the round that is compared with plain loops has no evaluation.
    """
    turns, rounds = (1, 1) if quick else (2, 2)
    cores = 1 if quick else os.cpu_count() or 1
    dataset, name = ("digits", "digits") if quick else mnist_like()
    shared = experiment("fedul/table-1", "MNIST Non-IID M=10")
    shared |= {"dataset": str(dataset), "num-rounds": rounds + 1}
    if quick:
        shared |= {"model": "cnn-small", "points-per-client": 200}
    forms = {f"{cores} processes": (cores, 1), f"{cores} threads": (1, cores)}
    if quick:
        forms.popitem()
    taken: dict[str, list[float]] = {}
    runs: list[Rounds] = []
    settings = resolve({**shared, "output": "none"}, Path.cwd())
    for _ in range(turns):
        with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
            place = Path(scratch)
            for side, every in ((OURS, rounds + 1), (EVALUATED, 1))[: 1 if quick else 2]:
                run = run_ours({**shared, "evaluate-every": every}, place / str(every), NUM_CLIENTS)
                taken.setdefault(side, []).extend(run.seconds())
                runs.append(run)
        _add_loops(taken, "ours", settings, forms, warm_up=1, rounds=rounds)
    # A round of the slow loop is long: one round, after a few steps to warm up, is enough.
    _add_loops(taken, "image by image", settings, forms, warm_up=0, rounds=1)
    shape = open_server_data(settings).shape.input_shape
    what = f"{shared['model']}, {name}, ours in {arithmetic(shared['model'], shape)}"
    return _judge(taken, runs, cores, what)


def _add_loops(
    taken: dict[str, list[float]],
    kind: str,
    settings: RunConfig,
    forms: Mapping[str, tuple[int, int]],
    *,
    warm_up: int,
    rounds: int,
) -> None:
    """Add seconds of ``rounds`` of a plain loop in each form, after ``warm_up`` unmeasured ones."""
    for form, (processes, threads) in forms.items():
        with PlainRounds(kind, settings, NUM_CLIENTS, processes, threads) as plain:
            plain.seconds(warm_up)
            taken.setdefault(f"{LOOPS[kind]}, {form}", []).extend(plain.seconds(rounds))


def _judge(taken: dict[str, list[float]], runs: list[Rounds], cores: int, what: str) -> Outcome:
    outcome = Outcome(
        f"fedul_round: {NUM_CLIENTS} clients, batch 128, majority, M = 10 shared, Adam, {what}",
        ("side", "rounds", "median s", "fastest – slowest s", "over ours"),
    )
    ours = median(taken[OURS])
    for side, seconds in taken.items():
        spread = f"{min(seconds):.2f} – {max(seconds):.2f}"
        cells = (str(len(seconds)), f"{median(seconds):.2f}", spread)
        outcome.rows.append((side, *cells, f"{median(seconds) / ours:.2f}"))
    same = f"{LOOPS['ours']}, {cores} processes"
    added = 100 * (ours / median(taken[same]) - 1)
    plain = best(taken, LOOPS["image by image"])
    outcome.bars += [
        *(
            Bar(side, median(taken[side]), SECONDS, " s")
            for side in (OURS, EVALUATED)
            if side in taken
        ),
        Bar(f"what Flower and the pool add to {same}", added, OVERHEAD, " %"),
        Bar("share of the round outside clients' training", *_share_outside(runs[0]), " %"),
        Bar("largest client process, its own (USS)", largest(runs, "uss"), MEMORY, " MB"),
    ]
    outcome.notes += [
        f"{plain} (its best) / ours: {median(taken[plain]) / ours:.2f}×",
        f"{best(taken, LOOPS['ours'])} is the best of our clients in a plain loop",
        f"largest client process, resident: {largest(runs, 'rss'):.0f} MB",
        f"all processes together (PSS): {max(r.watch.memory for r in runs):,.0f} MB",
    ]
    outcome.figures = {"round_seconds": taken, "rounds": [run.lines for run in runs]}
    outcome.plots.append(
        Sides(
            "fedul_round", f"A FedUL round of {NUM_CLIENTS} clients ({what})", taken, limit=SECONDS
        )
    )
    return outcome


def _share_outside(run: Rounds) -> tuple[float, float]:
    """Percent of a round outside of training (median without the first), and the limit."""
    shares = [100 * (1 - line["seconds_fit"] / line["seconds"]) for line in run.lines[1:]]
    return median(shares), SHARE
