"""What class shares tell of a model without labels, beside labeled points."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import fedul_flwr as ff
from benchmarks.inputs import data_folder, shifted_digits
from benchmarks.report import Bar, Outcome
from fedul_flwr.data.sources import load_source
from fedul_flwr.results.predict import load_model

DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
SPLITS = {
    "IID": {"partition": "iid"},
    "Dirichlet 0.1": {"partition": "dirichlet", "dirichlet": {"alpha": 0.1, "min_points": 500}},
    "two classes": {"partition": "pathological", "pathological": {"classes_per_client": 2}},
}
CLIENTS, POINTS, SETS = 10, 500, 10
SEEDS = range(31, 35)


METHODS: dict[str, dict[str, Any]] = {
    "closed-form": {},
    "fedul": {"rounds": 15, "selection": "shares"},
}
COVERAGE, POINTS_PREDICTED = 0.9, 5_000


def measure(quick: bool) -> Outcome:
    """Runs of ``closed-form`` and ``fedul`` at their defaults, judged by no label and by many:
    error (validation points), calibration and sets of classes (test points), owners that fit."""
    outcome = Outcome(
        "known_error: from class shares, beside that of labeled points",
        (
            *("data, split, model", "known", "± 95 %", "true", "mean distance", "covered"),
            *("ECE", "calibrated", "least and mean coverage", "classes", "far owners"),
        ),
        notes=[
            f"{CLIENTS} clients of {POINTS} points in {SETS} sets; errors and ECE in %, means of "
            f"runs; sets of {100 * COVERAGE:.0f} % on {POINTS_PREDICTED:,} test points, the least "
            "coverage of a class."
        ],
    )
    distances: list[float] = []
    covered: list[bool] = []
    far: list[int] = []
    there = {title: path for name, title in DATA.items() if (path := data_folder(name))}
    folders = there or {"digits, moved by a pixel": shifted_digits(8_000)}
    for name, folder in folders.items():
        for split, options in list(SPLITS.items())[: 1 if quick else None]:
            seeds, size = (SEEDS[:1], (3, 100)) if quick else (SEEDS, (CLIENTS, POINTS))
            for method in list(METHODS)[: 1 if quick else None]:
                some = seeds if method == "closed-form" else seeds[:1]  # which takes minutes
                runs = [_run(method, folder, seed, size, options) for seed in some]
                for number in range(len(runs[0]["lines"])):
                    lines = [run["lines"][number] for run in runs]
                    known, deviation, true, inside = zip(*map(_judged, lines), strict=True)
                    apart = [abs(a - b) for a, b in zip(known, true, strict=True)]
                    label = f"{name}, {split}, {method}"
                    last = number == len(runs[0]["lines"]) - 1
                    label += f", message {number + 1}" if method == "closed-form" else ""
                    row = mean(known), 1.96 * mean(deviation), mean(true), mean(apart)
                    of_row = f"{sum(inside)} of {len(inside)}"
                    more = _of_model(runs) if last else ("",) * 5
                    outcome.rows.append((label, *(f"{v:.2f}" for v in row), of_row, *more))
                    distances.append(mean(apart))
                    covered += inside
                far += [run["misfits"] for run in runs]
    outcome.bars += [
        Bar("mean distance from the true error", mean(distances), 0.7, " points"),
        Bar("largest mean distance of a row", max(distances), 1.5, " points"),
        Bar("true errors in the interval", 100 * mean(covered), 90, " %", at_least=True),
        Bar("owners of these runs that are far", sum(far), 0.05 * len(far) * CLIENTS, ""),
    ]
    outcome.figures = {"distances": distances}
    return outcome


def _of_model(runs: list[dict[str, Any]]) -> tuple[str, ...]:
    """Of the models that runs keep: calibration, sets, and owners that do not fit."""
    return (
        f"{mean(run['before'] for run in runs):.1f}",
        f"{mean(run['after'] for run in runs):.1f}",
        " ".join(
            f"{100 * value:.1f}"
            for value in (min(r["least"] for r in runs), mean(r["covers"] for r in runs))
        ),
        f"{mean(run['classes'] for run in runs):.2f}",
        f"{sum(run['misfits'] for run in runs)} of {len(runs) * CLIENTS}",
    )


def _run(
    method: str, folder: Path, seed: int, size: tuple[int, int], options: dict[str, object]
) -> dict[str, Any]:
    """The lines of ``metrics.jsonl`` that are judged, and how good probabilities and sets are."""
    with tempfile.TemporaryDirectory() as directory:
        result = ff.simulate(
            method,
            str(folder),
            clients=size[0],
            output=Path(directory) / "run",
            engine="in-process",
            seed=seed,
            points_per_client=size[1],
            fedul={"num_sets": SETS},
            **METHODS[method],
            **options,
        )
        lines = [dict(line) for line in result.metrics.to_dict("records")]
        about = result.summary
        if method != "closed-form":
            lines = [lines[about["best_round"] - 1]]
        predictor, test = load_model(result.directory), load_source(str(folder)).test
        inputs, labels = test.inputs[:POINTS_PREDICTED], np.array(test.labels[:POINTS_PREDICTED])
        sets = predictor.sets_of(predictor.predict_proba(inputs), COVERAGE)
        inside = sets[np.arange(len(labels)), labels]
        return {
            "lines": lines,
            "before": about["measures"]["unscaled"]["ece"],
            "after": about["ece"],
            "least": min(inside[labels == k].mean() for k in np.unique(labels)),
            "covers": inside.mean(),
            "classes": sets.sum(axis=1).mean(),
            "misfits": about["misfits"],
        }


def _judged(line: dict[str, float]) -> tuple[float, float, float, bool]:
    """Known error, its standard error, the error on validation points, which are drawn as those of
    the clients are, and whether the interval has the latter, with what 10,000 points leave open."""
    known, deviation, true = (
        float(line[key])
        for key in ("known_error", "known_error_deviation", "validation_prior_error")
    )
    open_ = math.sqrt(true * (100 - true) / 10_000)
    return known, deviation, true, abs(known - true) < 1.96 * math.hypot(deviation, open_)
