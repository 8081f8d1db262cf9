"""Cost of a round on Flower's deployment engine, where every message starts a new process."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.inputs import DIGITS, write_wards
from benchmarks.report import Bar, Outcome
from tests.support.deployment import Deployment, consortium

OWNERS = 3
LIMIT = 8.0
NOOP_APP = Path(__file__).parent / "noop_app"


def measure(quick: bool) -> Outcome:
    """Rounds of FedUL and of an app without work, in turns, on one SuperLink with TLS and keys."""
    turns, rounds = (1, 3) if quick else (2, 6)
    ours: list[float] = []
    work: list[float] = []
    noop: list[float] = []
    first: list[float] = []
    with tempfile.TemporaryDirectory(prefix="fedul-bench-") as scratch:
        place = Path(scratch)
        with consortium(place, OWNERS) as deployment:
            for client, ward in enumerate(write_wards(place / "wards", OWNERS)):
                deployment.start_node(client, ward)
            for turn in range(turns):
                lines = run_fedul(deployment, place / f"ours-{turn}", rounds)
                first.append(lines[0]["seconds"])
                ours += [line["seconds"] for line in lines[1:]]
                work += [line["seconds_fit"] for line in lines[1:]]
                noop += run_noop(deployment, place / f"noop-{turn}", rounds)
    added = [whole - part for whole, part in zip(ours, work, strict=True)]
    outcome = Outcome(
        f"deployed_round: {OWNERS} SuperNodes with TLS and keys on this machine, digits, cnn-small",
        ("app", "rounds", "median round s", "fastest s"),
    )
    for name, seconds in (("no-op", noop), ("FedUL", ours), ("FedUL without training", added)):
        outcome.rows.append(
            (name, str(len(seconds)), f"{median(seconds):.2f}", f"{min(seconds):.2f}")
        )
    outcome.bars.append(Bar("FedUL's round above its training", median(added), LIMIT, " s"))
    outcome.notes += [
        f"above Flower's own no-op round: {median(added) - median(noop):.2f} s",
        f"some client trains during {median(work):.2f} s of a median round",
        f"first round, before which clients are prepared: {median(first):.1f} s",
    ]
    outcome.figures = {"ours": ours, "training": work, "no-op": noop, "first": first}
    return outcome


def run_fedul(deployment: Deployment, output: Path, rounds: int) -> list[dict[str, float]]:
    """Run FedUL; returns the lines of ``metrics.jsonl``."""
    config = f'method="fedul" num-rounds={rounds} selection="last" output="{output}" {DIGITS}'
    said = deployment.wait(deployment.submit(config))
    if not (output / "summary.json").exists():
        raise RuntimeError(f"the run failed:\n{said}")
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def run_noop(deployment: Deployment, output: Path, rounds: int) -> list[float]:
    """Run the app without work; returns seconds of its rounds, without the first one."""
    config = f'num-rounds={rounds} num-clients={OWNERS} output="{output}"'
    said = deployment.wait(deployment.submit(config, NOOP_APP))
    if not output.exists():
        raise RuntimeError(f"the run failed:\n{said}")
    ends = [float(line.split()[1]) for line in output.read_text().splitlines()]
    return [after - before for before, after in pairwise(ends)][1:]
