"""``python -m benchmarks [names …] [--quick]``: print results, and write ``runs/bench/``."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path

from benchmarks.report import machine

NAMES = (
    "local_step",
    "engines",
    "time_to_error",
    "fedul_round",
    "small_clients",
    "many_clients",
    "round_memory",
    "method_cost",
    "propagation",
    "sparse_updates",
    "matching_step",
    "secure",
    "secure_sum",
    "deployed_round",
    "closed_form",
    "known_error",
    "owners_differ",
    "scale",
    "gpu",
)
RESULTS = Path(__file__).parents[1] / "runs" / "bench" / "latest.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all")
    parser.add_argument("--quick", action="store_true", help="few repetitions: does it run?")
    parser.add_argument("--output", type=Path, default=RESULTS.parent, help="folder of results")
    arguments = parser.parse_args()
    names, written = arguments.names or NAMES, arguments.output / RESULTS.name
    if unknown := sorted(set(names) - set(NAMES)):
        parser.error(f"{unknown[0]} is none of {', '.join(NAMES)}")
    header = machine()
    print(", ".join(f"{key} {value}" for key, value in header.items()), flush=True)
    if arguments.quick:
        print("--quick: too few repetitions to judge a bar by")
    results: dict[str, object] = {
        "machine": header,
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "quick": arguments.quick,
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in names:
        outcome = importlib.import_module(f"benchmarks.{name}").measure(arguments.quick)
        outcome.show()
        for path in outcome.draw(arguments.output):
            print(f"  drawn: {path}")
        results[name] = outcome.as_json()
        # After each benchmark, so that stopping a long run loses only the current one.
        written.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\nWritten to {written}")


if __name__ == "__main__":
    main()
