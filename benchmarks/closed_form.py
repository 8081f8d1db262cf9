"""Test errors of ``closed-form`` on images by filters from a sum, and by random ones."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import mean, stdev

import fedul_flwr as ff
from benchmarks.inputs import data_folder, shifted_digits
from benchmarks.report import Bar, Outcome

DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
SPLITS = {
    "IID": {"partition": "iid"},
    "Dirichlet 0.1": {"partition": "dirichlet", "dirichlet": {"alpha": 0.1, "min_points": 500}},
    "two classes": {"partition": "pathological", "pathological": {"classes_per_client": 2}},
}
MODELS = {"whitened-filters": "from a sum", "random-features": "random"}
SEEDS = range(41, 46)


def measure(quick: bool) -> Outcome:
    """Ten clients of 500 points in ten sets, class shares alone; means of runs and deviations."""
    outcome = Outcome(
        "closed_form: test errors by class shares",
        ("data, split, filters", "one message", "two messages"),
        notes=["Errors in %, mean (standard deviation) of runs of 10 clients of 500 points."],
    )
    there = {title: path for name, title in DATA.items() if (path := data_folder(name))}
    folders = there or {"digits, moved by a pixel": shifted_digits(8_000)}
    seeds, points = (SEEDS[:1], 60) if quick else (SEEDS, 500)
    by_model: dict[str, list[float]] = {model: [] for model in MODELS}
    for model, filters in MODELS.items():
        for name, folder in folders.items():
            for split, options in list(SPLITS.items())[: 1 if quick else None]:
                errors = [_errors(folder, seed, points, model, options) for seed in seeds]
                cells = [
                    f"{mean(column):.1f} ({stdev(column) if len(column) > 1 else 0:.1f})"
                    for column in zip(*errors, strict=True)
                ]
                row = (f"{name}, {split}, {filters}", *cells)
                outcome.rows.append(row)
                print("  ".join(row), flush=True)
                by_model[model] += [mean(column) for column in zip(*errors, strict=True)]
    gained = [a - b for a, b in zip(*reversed(by_model.values()), strict=True)]
    outcome.bars.append(Bar("mean gain of filters from a sum", mean(gained), 1, at_least=True))
    outcome.figures = {"errors": by_model}
    return outcome


def _errors(
    folder: Path, seed: int, points: int, model: str, options: dict[str, object]
) -> list[float]:
    """Test errors of a run after each message."""
    with tempfile.TemporaryDirectory() as directory:
        result = ff.simulate(
            "closed-form",
            str(folder),
            clients=10,
            output=Path(directory) / "run",
            engine="in-process",
            seed=seed,
            model=model,
            points_per_client=points,
            fedul={"num_sets": 10},
            **options,
        )
        return [float(error) for error in result.metrics["test_error"]]
