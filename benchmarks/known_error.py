"""The error that class shares tell beside that of test points, over data sets and splits."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from statistics import mean

import fedul_flwr as ff
from benchmarks.inputs import data_folder, shifted_digits
from benchmarks.report import Bar, Outcome

DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
SPLITS = {
    "IID": {"partition": "iid"},
    "Dirichlet 0.1": {"partition": "dirichlet", "dirichlet": {"alpha": 0.1}},
    "two classes": {"partition": "pathological", "pathological": {"classes_per_client": 2}},
}
CLIENTS, POINTS, SETS = 10, 500, 10
SEEDS = range(31, 34)


def measure(quick: bool) -> Outcome:
    """Runs of ``closed-form`` at its defaults: both heads are judged, by no label and by 10,000."""
    outcome = Outcome(
        "known_error: from class shares, beside that of test points",
        ("data, split, message", "known", "± 95 %", "test", "mean distance", "covered"),
        notes=[f"{CLIENTS} clients of {POINTS} points in {SETS} sets; errors in %, means of runs."],
    )
    distances: list[float] = []
    covered: list[bool] = []
    there = {title: path for name, title in DATA.items() if (path := data_folder(name))}
    folders = there or {"digits, moved by a pixel": shifted_digits(8_000)}
    for name, folder in folders.items():
        for split, options in list(SPLITS.items())[: 1 if quick else None]:
            seeds, size = (SEEDS[:1], (3, 100)) if quick else (SEEDS, (CLIENTS, POINTS))
            runs = [_run(folder, seed, size, options) for seed in seeds]
            for number, message in enumerate(("one message", "two")):
                known, deviation, test, inside = zip(
                    *(_judged(lines[number]) for lines in runs), strict=True
                )
                apart = [abs(a - b) for a, b in zip(known, test, strict=True)]
                row = mean(known), 1.96 * mean(deviation), mean(test), mean(apart)
                of_row = f"{sum(inside)} of {len(inside)}"
                label = f"{name}, {split}, {message}"
                outcome.rows.append((label, *(f"{value:.2f}" for value in row), of_row))
                distances.append(mean(apart))
                covered += inside
    outcome.bars += [
        Bar("mean distance from the test error", mean(distances), 0.7, " points"),
        Bar("largest mean distance of a row", max(distances), 1.5, " points"),
        Bar("test errors in the interval", 100 * mean(covered), 90, " %", at_least=True),
    ]
    outcome.figures = {"distances": distances}
    return outcome


def _run(
    folder: Path, seed: int, size: tuple[int, int], options: dict[str, object]
) -> list[dict[str, float]]:
    """The two lines of ``metrics.jsonl`` of a run."""
    with tempfile.TemporaryDirectory() as directory:
        result = ff.simulate(
            "closed-form",
            str(folder),
            clients=size[0],
            output=Path(directory) / "run",
            engine="in-process",
            seed=seed,
            points_per_client=size[1],
            fedul={"num_sets": SETS},
            **options,
        )
        return [dict(line) for line in result.metrics.to_dict("records")]


def _judged(line: dict[str, float]) -> tuple[float, float, float, bool]:
    """Known error, its standard error, test error, and whether the interval has the latter, with
    what 10,000 test points leave open."""
    known, deviation, test = (
        float(line[key]) for key in ("known_error", "known_error_deviation", "test_error")
    )
    open_ = math.sqrt(test * (100 - test) / 10_000)
    return known, deviation, test, abs(known - test) < 1.96 * math.hypot(deviation, open_)
