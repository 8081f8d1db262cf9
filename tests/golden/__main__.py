"""Record what golden runs give, or compare all of them with the recording.

``python -m tests.golden record`` writes ``recorded.json``; ``python -m tests.golden check`` runs
again and says what differs. Names of runs after the verb choose some of them; but a machine other
than the recorded one records all.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in tests, and before torch is loaded

import pytest

from fedul_flwr.results import plots
from tests.golden.runs import RECORDED, RUNS, differences, fingerprint, outcome, recording


def main(verb: str, names: list[str]) -> int:
    """Record all runs or those named, or compare them; 1 where some differ."""
    recorded = recording() if RECORDED.exists() else {}
    if verb == "record" and recorded.get("fingerprint") != fingerprint():
        names = []  # bits of one machine only
    runs = recorded.get("runs", {}) if names else {}
    different = 0
    for name in names or RUNS:
        with tempfile.TemporaryDirectory() as folder:
            now = outcome(name, Path(folder))
        if verb == "record":
            runs[name] = now
            print(name)
            continue
        bits = recorded["fingerprint"] == fingerprint()
        lines = differences(now, recorded["runs"][name], bits=bits)
        different += bool(lines)
        print(name, *lines or ["as recorded"], sep="\n    ")
    if verb == "record":
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(runs[name])}" for name in sorted(runs))
        text = f'{{"fingerprint": {json.dumps(fingerprint())},\n"runs": {{\n{rows}\n}}}}\n'
        RECORDED.write_text(text, encoding="utf-8")
    return 1 if different else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("verb", choices=("record", "check"))
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(RUNS)}; or all")
    options = parser.parse_args()
    if unknown := set(options.names) - RUNS.keys():
        parser.error(f"no such run: {', '.join(sorted(unknown))}")
    with pytest.MonkeyPatch.context() as patch:  # pictures are nine tenths of a short run's time
        patch.setattr(plots, "draw_plots", lambda run, directory: [])
        sys.exit(main(options.verb, options.names))
