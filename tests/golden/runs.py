"""Short runs of every method, and the numbers and digests that each of them gives.

``recorded.json`` has those of one machine. Bits hold there alone: other processors add in another
order. So numbers are compared within a tolerance, and digests where the fingerprint is the recorded
one.
"""

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from typer.testing import CliRunner

from fedul_flwr.cli.main import app
from fedul_flwr.results.predict import load_model

RECORDED = Path(__file__).with_name("recorded.json")
SMALL = (
    'dataset="digits" model="mlp" num-rounds=2 local-epochs=1 seed=7 precision="float64" '
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
    "xclp-predict": (
        f'{NOT_TRAINED} labels.total=200 method="xclp-predict" xclp.codes-seed="run"'
        " labels.new-fraction=0.2"
    ),
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
    "calibrated": f'{SMALL} method="supervised" calibration="validation"',
}
"""Settings of each run, in TOML."""

IN_CI = (
    *("fedul", "fedul-heldout", "fedul-local", "fedul-scaffold", "fedul-fednova", "fedul-fedadam"),
    *("fedul-heads", "closed-form", "plateau", "personal-head", "sum-fedul", "dp"),
    *("xclp", "xclp-secure", "fixmatch", "fedmatch-server", "semifl", "fedsiam"),
    *("sage", "cbafed", "proxyfl"),
)
"""Runs that tests repeat: each idea once."""
NOT_COMPARED = (
    "seconds",
    "bytes_",
    "percent_",
    "model_bytes",
    "measures",
    "seed",
    "round",
    "auc",
    "ece",
)
"""How names of entries begin that are times, traffic, said by others, too, or that jump where two
outputs of a model change places."""
RELATIVE, ONE_POINT = 1e-5, 1.0
"""By how much a number may move between machines, as a share of it; and a percentage of points, of
which there are at least 144.

Measured on all runs, with PyTorch's code for AVX-512 and one thread, for AVX2 and two threads, and
for no vectors at all, with BLAS likewise: in double precision nothing moved by more than 1.2e-6.
In single precision some moved by a hundredth: a sum that is 0 but for rounding decides a ReLU, and
Adam makes a whole step of a gradient that is. So runs that train do so in double precision.
"""


class RunFailedError(Exception):
    """A run that has ended with an error, which the text has."""


def recording() -> dict[str, Any]:
    """What ``recorded.json`` has: the ``fingerprint`` of a machine, and outcomes of ``runs``."""
    recorded: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return recorded


def fingerprint() -> dict[str, Any]:
    """What bits depend on: libraries, vector instructions, threads."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = [platform.processor()]
    of_kind = ("vendor_id", "cpu family", "model", "flags", "Features")
    kind = sorted({line for line in lines if line.startswith(of_kind)})
    return {
        **{name: version(name) for name in ("torch", "numpy", "scipy")},
        "libc": " ".join(platform.libc_ver()),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "processor": _digest("\n".join(kind).encode()),
        "threads": torch.get_num_threads(),
    }


def outcome(name: str, folder: Path, more: str = "") -> dict[str, Any]:
    """What a run gives: ``numbers`` by name, and ``digests`` of its files.

    The numbers are those of all rounds and of the summary, and of each array of the last model, and
    of predictions, the norm and the sum; the latter over the root of the number of its terms, so
    that it is no larger than the norm.

    Parameters
    ----------
    folder : an empty one, for the run's files.
    more : further settings, which replace those of the run.
    """
    settings, output = RUNS[name], folder / "run"
    if "{data}" in settings:
        settings = settings.replace("{data}", str(write_csv(folder)))
    arguments = ["run", "-c", settings, *(("-c", more) if more else ()), "--output", str(output)]
    result = CliRunner().invoke(
        app, [*arguments, "--num-supernodes", "5", "--engine", "in-process"]
    )
    if result.exit_code:
        raise RunFailedError(f"{name}: {result.output[-600:]} {result.exception!r}")
    numbers: dict[str, float] = {}
    log = output / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.is_file() else []
    for line in map(json.loads, lines):
        numbers |= _numbers(line, f"round {line['round']} ")
    numbers |= _numbers(json.loads((output / "summary.json").read_text()), "summary ")
    digests = {"numbers": _digest(json.dumps(numbers, sort_keys=True).encode())}
    arrays = _arrays(output)
    probabilities = _probabilities(output, folder)
    arrays |= {} if probabilities is None else {"predictions": probabilities}
    for array_name, array in arrays.items():
        file = array_name.partition(" ")[0].partition("/")[0]
        content = f"{digests.get(file)}{array_name}{array.dtype}{array.shape}".encode()
        digests[file] = _digest(content + array.tobytes())
        if file in ("last.safetensors", "predictions") and array.size:
            wide = array.astype(np.float64)
            numbers[f"{array_name} norm"] = float(np.linalg.norm(wide))
            numbers[f"{array_name} sum"] = float(wide.sum()) / math.sqrt(wide.size)
    rounded = {name: float(f"{value:.9g}") for name, value in numbers.items()}
    return {"numbers": rounded, "digests": digests}


def differences(now: Mapping[str, Any], then: Mapping[str, Any], *, bits: bool) -> list[str]:
    """How two outcomes of a run differ, a line each; with ``bits`` also files of other bits."""
    numbers, recorded = now["numbers"], then["numbers"]
    lines = [
        f"{name}: {numbers.get(name)}, recorded {recorded.get(name)}"
        for name in sorted(numbers.keys() | recorded.keys())
        if not (name in numbers and name in recorded and _equal(name, numbers, recorded))
    ]
    files, of_then = now["digests"], then["digests"]
    others = [file for file in sorted(files | of_then) if files.get(file) != of_then.get(file)]
    return lines + [f"{file}: other bits" for file in others if bits]


def _equal(name: str, numbers: Mapping[str, float], recorded: Mapping[str, float]) -> bool:
    of_array, _, kind = name.rpartition(" ")
    limit = ONE_POINT if kind.endswith(("error", "accuracy")) else 0.0
    if kind == "sum":  # positive and negative terms may cancel
        limit = RELATIVE * recorded[f"{of_array} norm"]
    return math.isclose(numbers[name], recorded[name], rel_tol=RELATIVE, abs_tol=limit)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _numbers(entries: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Finite numbers among entries and in tables inside them."""
    numbers: dict[str, float] = {}
    for name, value in entries.items():
        if name.startswith(NOT_COMPARED):
            continue
        if isinstance(value, Mapping):
            numbers |= _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and math.isfinite(value):
            numbers[prefix + name] = value
    return numbers


def _arrays(output: Path) -> dict[str, NDArray[Any]]:
    """All arrays that a run leaves, by file and name, and the content of its tables."""
    arrays: dict[str, NDArray[Any]] = {}
    for path in sorted(output.rglob("*.*")):
        file = str(path.relative_to(output))
        if path.suffix == ".safetensors":
            arrays |= {f"{file} {name}": a for name, a in sorted(load_file(path).items())}
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                arrays |= {f"{file} {name}": archive[name] for name in sorted(archive.files)}
        elif path.suffix == ".csv":
            arrays[file] = np.frombuffer(path.read_bytes(), np.uint8)
    return arrays


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


def _probabilities(output: Path, folder: Path) -> NDArray[np.float32] | None:
    """What the packed model predicts for random points, if it can be packed."""
    packed = CliRunner().invoke(app, ["pack", str(output), "-o", str(folder / "model.zip")])
    if packed.exit_code:
        return None
    model = load_model(folder / "model.zip", trust_modules=True)
    shape = (30, *model.input_shape)
    rng = np.random.default_rng(1)
    points = rng.integers(0, 256, shape) if len(shape) > 2 else rng.normal(size=shape) * 50
    kind = np.uint8 if len(shape) > 2 else np.float32
    return model.predict_proba(points.astype(kind)).astype(np.float32)
