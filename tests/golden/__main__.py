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
from typing import get_args

import numpy as np
from safetensors.numpy import load_file
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.experiments.table import Size, table_names
from fedul_flwr.results.predict import load_model
from tests.golden import readers
from tests.support.paper_tables import EXPERIMENTS, row_settings, table

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
    "teacher_steps",
)
"""Keys that lines of metrics have got since digests were first recorded."""
SMALL = (
    'dataset="digits" model="mlp" num-rounds=2 local-epochs=1 seed=7 precision="float32" '
    'batch-size=16 learning-rate=3e-3 learning-rate-schedule="constant"'
)
NOT_TRAINED = 'dataset="digits" model="mlp" seed=7 precision="float32"'
SETS = f"{SMALL} fedul.num-sets=12 batch-size=32"
LABELS = f"{SMALL} labels.total=200"
SUM = 'secure-sum="on"'
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
    "cbafed": f'{STAGES} method="cbafed" cbafed.threshold=0.2 num-rounds=7',
    "proxyfl": (
        f'{LABELS} method="proxyfl" model="mlp+projections" proxyfl.threshold=0.2'
        " proxyfl.row-epochs=5 learning-rate=0.01"
    ),
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
    "sum-fedul": f'{SETS} method="fedul" {SUM} test-prior="sets"',
    "sum-fixmatch": f'{LABELS} method="fixmatch" {SUM} model="cnn2"',
    "sum-scaffold": f'{SETS} method="fedul" {SUM} base="scaffold" optimizer="sgd"',
    "sum-adam": f'{SETS} method="fedul" {SUM} base="fedadam" fraction-train=0.8',
    "closed-form": f'{NOT_TRAINED} fedul.num-sets=12 method="closed-form"',
    "closed-form-labels": f'{NOT_TRAINED} labels.total=200 method="closed-form-labels"',
    "fedul-heads": f'{SETS} method="fedul-heads" closed-form.sum="plaintext"',
    # Noise of the operating system, too little to change a bit.
    "dp": f'{SETS} method="fedul" dp.clipping="server" dp.noise-multiplier=1e-30',
    "personal-head": f'{LABELS} method="fixmatch" personal="head"',
    "personal-norm": f'{SETS} method="fedul" personal="norm" model="cnn2"',
    "wine": f'{SMALL} dataset="wine" method="supervised" standardize="federation"',
    "wine-sum": f'{SMALL} dataset="wine" method="supervised" standardize-sum="masked"',
    "wine-owner": f'{SMALL} dataset="wine" method="supervised" standardize="owner"',
    "csv-mean": f'{SMALL} dataset="{{data}}" method="supervised" missing="mean"',
    "csv-median": f'{SMALL} dataset="{{data}}" method="supervised" missing="median"',
    "csv-frequent": f'{SMALL} dataset="{{data}}" method="fedul" missing="most-frequent"',
    "features": f'{SMALL} method="supervised" features="tests.golden.features:rows"',
    "calibrated": f'{SMALL} method="supervised" calibration="temperature"',
    "tables": "",
    "readers-made": "",
    "readers-found": "",
}
"""Settings of each run; ``tables`` are all flat settings of the papers' tables."""


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
            {key: line[key] for key in sorted(line) if _counts(key, line[key])} for line in lines
        ]
        digests[log.name] = hashlib.sha256(json.dumps(plain).encode()).hexdigest()
    return digests


def _counts(key: str, value: object) -> bool:
    """Whether a value of a line must stay the same: not times, traffic and lists of numbers."""
    is_traffic = key.startswith(("bytes_", "percent_"))
    numbers = isinstance(value, list) and not any(isinstance(one, str) for one in value)
    return not (key in TIMES + LATER or is_traffic or numbers)


def write_csv(folder: Path) -> Path:
    """A data set of CSV files with decimal commas, gaps, categories and codes."""
    rng = np.random.default_rng(3)
    for split, count in (("train", 240), ("test", 60)):
        lines = ["age;dose;sex;ward;smoker;label"]
        for row in range(count):
            kind = int(rng.integers(3))
            age = "" if row % 11 == 3 else str(30 + 10 * kind + int(rng.integers(9)))
            dose = "NA" if row % 13 == 4 else f"{kind + rng.random():.3f}0".replace(".", ",")
            sex = "" if row % 17 == 5 else "fm"[int(rng.integers(2))]
            smoker = ("True", "False", "unknown")[int(rng.integers(3))]
            lines.append(f"{age};{dose};{sex};0{kind}{int(rng.integers(3))};{smoker};class {kind}")
        (folder / f"{split}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def predictions(directory: Path, folder: Path) -> dict[str, str]:
    """Digest of what the packed model predicts for some of its test points, if it can be packed."""
    packed = CliRunner().invoke(app, ["pack", str(directory), "-o", str(folder / "model.zip")])
    if packed.exit_code:
        return {}
    model = load_model(folder / "model.zip", trust_modules=True)
    shape = (30, *model.input_shape)
    rng = np.random.default_rng(1)
    points = rng.integers(0, 256, shape) if len(shape) > 2 else rng.normal(size=shape) * 50
    kind = np.uint8 if len(shape) > 2 else np.float32
    answers = model.predict_proba(points.astype(kind)).astype(np.float32)
    return {"predictions": hashlib.sha256(answers.tobytes()).hexdigest()}


def tables() -> dict[str, str]:
    """Digests of the flat settings of all rows and columns of each table, at both sizes."""
    digests = {}
    for name in table_names(EXPERIMENTS):
        found = table(name)
        for size in get_args(Size):
            flat = {
                f"{column} / {row}": row_settings(name, column, row, size)
                for column in (() if found.benchmark else found.names)
                for row in found.column(column, size).rows
            }
            text = json.dumps(flat, sort_keys=True)
            digests[f"{name} {size}"] = hashlib.sha256(text.encode()).hexdigest()
    return digests


def main(verb: str, names: list[str], engine: str = "in-process") -> int:
    """Run all, or those named; 1 where a run fails or, with ``check``, gives other bits."""
    stored = json.loads(STORED.read_text()) if STORED.is_file() else {}
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        write_csv(data)
        for name in names or RUNS:
            output = Path(folder) / name
            settings = RUNS[name].replace("{data}", str(data))
            arguments = ["run", "-c", settings, "--num-supernodes", "5", "--engine", engine]
            if settings:
                result = CliRunner().invoke(app, [*arguments, "--output", str(output)])
                if result.exit_code:
                    bad += 1
                    print(f"{name}: FAILED {result.output[-600:]} {result.exception!r}")
                    continue
            if settings:
                got = digest(output) | predictions(output, Path(folder))
            elif name == "tables":
                got = tables()
            else:
                read = readers.outcomes(name.removeprefix("readers-"))
                got = {file: readers.digest(outcome) for file, outcome in read.items()}
            if verb == "record":
                stored[name] = got
                STORED.parent.mkdir(
                    exist_ok=True
                )  # at once: a run that is cut off keeps the others
                STORED.write_text(json.dumps(stored, indent=1, sort_keys=True))
                print(f"{name}: {len(got)} files")
            elif got != stored[name]:
                bad += 1
                other = [
                    k for k in sorted({*got, *stored[name]}) if got.get(k) != stored[name].get(k)
                ]
                print(f"{name}: DIFFERENT in {', '.join(other)}")
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
