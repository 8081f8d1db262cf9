"""Short runs of every method, compared bit for bit with those of an earlier commit.

``python -m tests.golden record`` writes digests of models, metrics and labels to
``build/golden.json``; ``python -m tests.golden check`` runs again and names what differs. Names of
runs after the verb choose some of them; ``--engine processes`` before the names runs them in a
pool. Digests hold on one machine with one version of torch.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from typer.testing import CliRunner

from fedul_flwr.cli.main import app

STORED = Path(__file__).parents[2] / "build" / "golden.json"
TIMES = (
    "seconds",
    "seconds_fit",
    "seconds_waiting",
    "seconds_evaluation",
    "seconds-fit",
    "seconds-evaluation",
)
LATER = (
    "test_balanced_error",
    "validation_balanced_error",
    "validation_prior_error",
    "confident_share",
    "masked_share",
    "update_norm",
    "released_down_percent",
)
"""Keys that lines of metrics have got since digests were first recorded."""
SMALL = (
    'dataset="digits" model="mlp" num-rounds=2 local-epochs=1 seed=7 precision="float32" '
    'batch-size=16 learning-rate=3e-3 learning-rate-schedule="constant"'
)
SETS = f"{SMALL} fedul.num-sets=12 batch-size=32"
LABELS = f"{SMALL} labels.total=200"
STAGES = f"{LABELS} semi.labels-only-rounds=1"
RUNS: dict[str, str] = {
    "fedul": f'{SETS} method="fedul"',
    "fedul-heldout": f'{SETS} method="fedul" selection="heldout" fedul.heldout-fraction=0.2',
    "fedul-adam": f'{SETS} method="fedul" optimizer="adam" learning-rate=1e-3',
    "fedul-local": f'{SETS} method="fedul" base="local" evaluate="local"',
    "fedul-scaffold": f'{SETS} method="fedul" base="scaffold" optimizer="sgd" learning-rate=0.05',
    "fedul-fednova": f'{SETS} method="fedul" base="fednova" optimizer="sgd" momentum=0.9',
    "fedul-fedprox": f'{SETS} method="fedul" base="fedprox"',
    "fedul-fedadam": f'{SETS} method="fedul" base="fedadam" fraction-train=0.5',
    "fedul-krum": f'{SETS} method="fedul" base="krum"',
    "fedul-finetune": f'{SETS} method="fedul-finetune" server-fraction=0.1',
    "fedul-mix": f'{SETS} method="fedul-mix" server-fraction=0.1',
    "fedul-consistency": f'{SETS} method="fedul-consistency"',
    "fedul-assign": f'{SETS} method="fedul-assign"',
    "fedpl": f'{SETS} method="fedpl"',
    "fedllp": f'{SETS} method="fedllp"',
    "fedllp-vat": f'{SETS} method="fedllp-vat"',
    "server-only": f'{SETS} method="server-only" server-fraction=0.1',
    "supervised": f'{SETS} method="supervised"',
    "plateau": f'{SETS} method="fedul" num-rounds=3 learning-rate-schedule="plateau"',
    "xclp": f'{STAGES} method="xclp" xclp.codes-seed="run"',
    "xclp-secure": f'{STAGES} method="xclp" xclp.codes-seed="run" xclp.secure="rlwe"',
    "xclp-predict": f'{LABELS} method="xclp-predict" xclp.codes-seed="run" labels.new-fraction=0.2',
    "labels-only": f'{LABELS} method="labels-only"',
    "local-lp": f'{STAGES} method="local-lp"',
    "pseudo-label": f'{STAGES} method="pseudo-label"',
    "fedsem": f'{STAGES} method="fedsem"',
    "fedsiam": f'{STAGES} method="fedsiam"',
    "fedmatch": f'{LABELS} method="fedmatch" num-rounds=3',
    "fedmatch-server": f'{SMALL} method="fedmatch" scenario.labels-at="server" server-fraction=0.1',
    "fedmatch-after": (
        f'{SMALL} method="fedmatch" scenario.labels-at="server" server-fraction=0.1'
        ' server.when="after"'
    ),
    "uda": f'{LABELS} method="uda"',
    "fixmatch": f'{LABELS} method="fixmatch"',
    "fixmatch-after": (
        f'{SMALL} method="fixmatch" scenario.labels-at="server" server-fraction=0.1'
        ' server.when="after"'
    ),
    "fixmatch-weak": f'{LABELS} method="fixmatch" views.weak=true augment="rotate"',
    "sage": f'{LABELS} method="sage" sage.threshold=0.2 learning-rate=0.01',
    "semifl": (
        f'{SMALL} method="semifl" scenario.labels-at="server" server-fraction=0.1 num-rounds=3'
        ' semifl.threshold=0.3 optimizer="sgd" momentum=0.9 learning-rate=0.03 base="fedavgm"'
    ),
    "semifl-adaptive": (
        f'{SMALL} method="semifl" scenario.labels-at="server" server-fraction=0.1 model="cnn2"'
        ' semifl.threshold="adaptive" semifl.mix-weight=0.0 semifl.learning-status=true'
        ' semifl.sharpness=0.1 optimizer="sgd" momentum=0.9 augment="rotate"'
    ),
    "all-labels": f'{SMALL} method="all-labels"',
    "given-labels": f'{LABELS} method="given-labels"',
}


def digest(directory: Path) -> dict[str, str]:
    """SHA-256 of what a run leaves: models by array, metrics without times, labels."""
    digests: dict[str, str] = {}
    for path in sorted(directory.rglob("*.safetensors")):
        text = hashlib.sha256()
        for name, array in sorted(load_file(path).items()):
            text.update(name.encode() + str(array.shape).encode() + array.tobytes())
        digests[str(path.relative_to(directory))] = text.hexdigest()
    for path in sorted(directory.rglob("*.npz")):
        text = hashlib.sha256()
        with np.load(path, allow_pickle=False) as archive:
            for name in sorted(archive.files):
                text.update(name.encode() + archive[name].tobytes())
        digests[str(path.relative_to(directory))] = text.hexdigest()
    for path in sorted(directory.rglob("*.csv")):
        digests[str(path.relative_to(directory))] = hashlib.sha256(path.read_bytes()).hexdigest()
    log = directory / "metrics.jsonl"
    if log.is_file():
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        plain = [
            {key: line[key] for key in sorted(line) if key not in TIMES + LATER} for line in lines
        ]
        digests[log.name] = hashlib.sha256(json.dumps(plain).encode()).hexdigest()
    return digests


def main(verb: str, names: list[str], engine: str = "in-process") -> int:
    """Run all, or those named; 1 where a run fails or, with ``check``, gives other bits."""
    stored = json.loads(STORED.read_text()) if STORED.is_file() else {}
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names or RUNS:
            output = Path(folder) / name
            arguments = ["run", "-c", RUNS[name], "--num-supernodes", "5", "--engine", engine]
            result = CliRunner().invoke(app, [*arguments, "--output", str(output)])
            if result.exit_code:
                bad += 1
                print(f"{name}: FAILED {result.output[-600:]} {result.exception!r}")
                continue
            got = digest(output)
            if verb == "record":
                stored[name] = got
                print(f"{name}: {len(got)} files")
            elif got != stored[name]:
                bad += 1
                other = [
                    k for k in sorted({*got, *stored[name]}) if got.get(k) != stored[name].get(k)
                ]
                print(f"{name}: DIFFERENT in {', '.join(other)}")
    if verb == "record":
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text(json.dumps(stored, indent=1, sort_keys=True))
    print(f"{len(names or RUNS)} runs, {bad} failed or different")
    return 1 if bad else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("verb", choices=("record", "check"))
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(RUNS)}; or all")
    parser.add_argument("--engine", default="in-process", help="in-process or processes")
    options = parser.parse_args()
    if unknown := set(options.names) - RUNS.keys():
        parser.error(f"no such run: {', '.join(sorted(unknown))}")
    sys.exit(main(options.verb, options.names, options.engine))
