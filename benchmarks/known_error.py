"""What class shares tell of a model without labels, beside labeled points."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

import fedul_flwr as ff
from benchmarks.inputs import data_folder, shifted_digits, some_of
from benchmarks.report import Bar, Outcome
from fedul_flwr.arrays import Floats
from fedul_flwr.data.sources import load_source
from fedul_flwr.federated.stages.known_error import KnowsError
from fedul_flwr.learning.calibration import (
    coverage_by_margin,
    margins_for,
    near_the_top,
    prediction_sets,
)
from fedul_flwr.results.predict import load_model

IMAGES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
FEATURES, XRAYS = "CIFAR-10 features", "chest X-rays"
SPLITS = {
    "IID": {"partition": "iid"},
    "Dirichlet 0.1": {"partition": "dirichlet", "dirichlet": {"alpha": 0.1, "min_points": 500}},
    "two classes": {"partition": "pathological", "pathological": {"classes_per_client": 2}},
}
CLIENTS, POINTS, SETS = 10, 500, 10
SEEDS = {"closed-form": range(31, 36), "fedul": range(31, 34)}
METHODS: dict[str, dict[str, Any]] = {
    # A refinement more than by default, to choose from.
    "closed-form": {"closed_form": {"refinements": 2}},
    "fedul": {"rounds": 15, "evaluate_every": 3, "model": "cnn2", "learning_rate": 0.1},
}
COVERAGE, POINTS_PREDICTED = 0.9, 5_000
EXTRACTOR = "efficientnet-lite0@128"
VALIDATION = 0.2
"""Share of points whose labels judge, and choose nothing."""


class Run(NamedTuple):
    """What is judged of a run.

    Attributes
    ----------
    lines : of the rounds with a known error: it and its standard error, the errors on validation
        and test points, and the standard error of the former by their number.
    ece : expected calibration error of the model kept on test points, without and with its
        temperature.
    coverage : ``(K,)``, of sets on test points by class.
    sizes : mean number of classes in sets, and in sets by as many labels as there are points.
    misfits : owners whose points are said to differ.
    clients : owners.
    """

    lines: list[dict[str, float]]
    ece: tuple[float, float]
    coverage: Floats
    sizes: tuple[float, float]
    misfits: int
    clients: int


class Choice(NamedTuple):
    """Test errors of what is chosen of a run's models: by class shares, by the labels of
    validation points, and the least."""

    shares: float
    labels: float
    best: float


def measure(quick: bool) -> Outcome:
    """Runs of ``closed-form`` and ``fedul``, judged by no label and by many: error (validation
    points), choice of the round, calibration and sets of classes (test points), owners that fit,
    and what all of it costs."""
    number = "1" if quick else " or ".join(str(len(of)) for of in SEEDS.values())
    outcome = Outcome(
        "known_error: from class shares, beside that of labeled points",
        (
            *("data, split, model", "known", "± 95 %", "true", "mean distance", "covered"),
            *("ECE", "calibrated", "least class, mean", "classes, by labels", "far owners"),
        ),
        notes=[
            f"{CLIENTS} clients of {POINTS} points in {SETS} sets; errors and ECE in %, means of "
            f"{number} runs; sets of {100 * COVERAGE:.0f} % on up to {POINTS_PREDICTED:,} test "
            "points, coverage by class as a mean of runs."
        ],
    )
    of_methods: dict[str, list[tuple[str, list[Run]]]] = {method: [] for method in METHODS}
    for title, folder, split, options in _columns(quick):
        for method in list(METHODS)[: 1 if quick else None]:
            runs = [
                _run(method, folder, seed, options, quick=quick)
                for seed in SEEDS[method][: 1 if quick else None]
            ]
            of_methods[method].append((f"{title}, {split}, {method}", runs))
            for row in _rows(*of_methods[method][-1], by_message=method == "closed-form"):
                outcome.rows.append(row)
                print(*row, sep=" | ", flush=True)  # it takes an hour
    for method, columns in of_methods.items():
        if columns:
            outcome.bars += _bars(method, columns)
            outcome.figures[method] = {
                label: [list(_choice(run)) for run in runs] for label, runs in columns
            }
    outcome.bars += _costs(next(iter(_columns(quick=True)))[1], quick=quick)
    return outcome


def _columns(quick: bool) -> Iterator[tuple[str, Path, str, dict[str, Any]]]:
    """Title, folder, split and settings of each column: those of the reference table of sets."""
    there = {title: path for name, title in IMAGES.items() if (path := data_folder(name))}
    if not there:
        there = {"digits, moved by a pixel": shifted_digits(8_000)}
    shared = {"clients": CLIENTS, "points_per_client": POINTS, "fedul": {"num_sets": SETS}}
    splits = list(SPLITS.items())[: 1 if quick else None]
    for title, path in list(there.items())[: 1 if quick else None]:
        for split, options in splits:
            yield title, path, split, {**shared, **options}
    if not quick and (cifar := data_folder("cifar10")):
        of_features = {"features": EXTRACTOR, **shared}
        for split, options in splits:
            yield FEATURES, some_of(cifar, 20_000, 2_000), split, {**of_features, **options}
    if not quick and (xrays := data_folder("covid_xray_224")):
        of_xrays = {"clients": 5, "image_size": 32, "fedul": {"num_sets": 6}, "partition": "iid"}
        yield XRAYS, xrays, "IID", of_xrays


def _run(method: str, folder: Path, seed: int, options: dict[str, Any], *, quick: bool) -> Run:
    """A run that chooses by known errors, and what is judged of it."""
    settings = {
        **METHODS[method],
        **options,
        "selection": "shares",
        "validation_fraction": VALIDATION,
    }
    if "features" in settings and method == "fedul":
        settings["model"] = "mlp"
    if quick:
        settings |= {"clients": 3, "points_per_client": 100}
    with tempfile.TemporaryDirectory() as directory:
        result = ff.simulate(
            method,
            str(folder),
            output=Path(directory) / "run",
            engine="in-process",
            seed=seed,
            **settings,
        )
        lines = [
            dict(line) | {"open": _standard_error(line["validation_prior_error"], str(folder))}
            for line in result.metrics.to_dict("records")
        ]
        about = result.summary
        return Run(
            [line for line in lines if not math.isnan(line.get("known_error", math.nan))],
            (about["measures"]["unscaled"]["ece"], about["ece"]),
            *_sets(result),
            about["misfits"],
            settings["clients"],
        )


def _sets(result: Any) -> tuple[Floats, tuple[float, float]]:
    """Coverage by class of sets, and their size beside those by labels of other test points."""
    predictor = load_model(result.directory)
    setup = result.settings
    source = load_source(str(setup["dataset"]), image_size=int(setup["image-size"]))
    inputs, labels = source.test.inputs[:POINTS_PREDICTED], np.array(source.test.labels)
    labels = labels[: len(inputs)]
    probabilities = predictor.predict_proba(inputs)
    sets = predictor.sets_of(probabilities, COVERAGE)
    inside = sets[np.arange(len(labels)), labels]
    classes = probabilities.shape[1]
    coverage = np.array([inside[labels == k].mean() for k in range(classes)])
    # Margins by labels of half of the points make sets of the other half.
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(probabilities), -1e3) * predictor.temperature
    half, one_hot = np.arange(len(labels)) % 2 == 0, np.eye(classes)[labels]
    shares = one_hot[half]
    said = shares.T @ np.eye(classes)[logits[half].argmax(axis=1)]
    curves = coverage_by_margin(shares.T @ shares, said, near_the_top(shares, logits[half]))
    by_labels = prediction_sets(logits[~half], margins_for(curves, COVERAGE))
    return coverage, tuple(float(of.sum(axis=1).mean()) for of in (sets[~half], by_labels))


def _rows(label: str, runs: list[Run], *, by_message: bool) -> Iterator[tuple[str, ...]]:
    """A row for each message of closed forms, or one of the round that is kept."""
    if by_message:
        of_rows = [[run.lines[at] for run in runs] for at in range(len(runs[0].lines))]
    else:
        of_rows = [[min(run.lines, key=_known) for run in runs]]
    for at, lines in enumerate(of_rows):
        known, deviation, true, inside = zip(*map(_judged, lines), strict=True)
        row = mean(known), 1.96 * mean(deviation), mean(true), mean(_distances(lines))
        more = _of_models(runs) if at == len(of_rows) - 1 else ("",) * 5
        name = f"{label}, message {at + 1}" if by_message else label
        yield (name, *(f"{v:.2f}" for v in row), f"{sum(inside)} of {len(inside)}", *more)


def _of_models(runs: list[Run]) -> tuple[str, ...]:
    """Of the models that runs keep: calibration, sets, and owners that do not fit."""
    coverage = 100 * np.mean([run.coverage for run in runs], axis=0)
    return (
        *(f"{mean(run.ece[at] for run in runs):.1f}" for at in (0, 1)),
        f"{coverage.min():.1f}, {coverage.mean():.1f}",
        ", ".join(f"{mean(run.sizes[at] for run in runs):.2f}" for at in (0, 1)),
        f"{sum(run.misfits for run in runs)} of {sum(run.clients for run in runs)}",
    )


def _bars(method: str, columns: list[tuple[str, list[Run]]]) -> list[Bar]:
    """How near known errors are, and what is chosen by them, over all columns of a method."""
    closed = method == "closed-form"
    distances, covered = [], []
    for _, runs in columns:
        of_rows = zip(*(run.lines for run in runs), strict=True)
        if not closed:  # the rounds that are kept
            of_rows = [tuple(min(run.lines, key=_known) for run in runs)]
        for lines in list(of_rows)[:2]:  # the messages that closed forms have by default
            distances.append(mean(_distances(lines)))
            covered += [_judged(line)[3] for line in lines]
    every = [run for _, runs in columns for run in runs]
    choices = [_choice(run) for run in every]
    regret = [choice.shares - choice.best for choice in choices]
    beside = [choice.shares - choice.labels for choice in choices]
    share = 100 * sum(covered) / len(covered)
    least = [float(np.mean([r.coverage for r in runs], axis=0).min()) for _, runs in columns]
    ratios = [mean(run.sizes[0] for run in r) / mean(run.sizes[1] for run in r) for _, r in columns]
    far = sum(run.misfits for run in every) / sum(run.clients for run in every)
    bars = [
        Bar(f"{method}: mean distance from the true error", mean(distances), 0.7, " points"),
        Bar(f"{method}: largest mean distance of a row", max(distances), 1.5, " points"),
        Bar(f"{method}: {len(covered)} intervals with the true error", share, 90, " %", True),
        Bar(f"{method}: regret of the round by class shares", mean(regret), 0.5, " points"),
        Bar(f"{method}: the same less that by labels", mean(beside), 0.2, " points"),
        Bar(f"{method}: owners without fault that are named", 100 * far, 5, " %"),
    ]
    if closed:
        bars += [
            Bar("least coverage of a class in a column", 100 * min(least), 88, " %", True),
            Bar("size of sets over that by labels, largest", max(ratios), 1.3),
        ]
    return bars


def _choice(run: Run) -> Choice:
    """Of the rounds with a known error, in test errors."""
    chosen = (min(run.lines, key=key) for key in (_known, _true, _test))
    return Choice(*map(_test, chosen))


def _known(line: dict[str, float]) -> float:
    return float(line["known_error"])


def _true(line: dict[str, float]) -> float:
    return float(line["validation_prior_error"])


def _test(line: dict[str, float]) -> float:
    return float(line["test_error"])


def _distances(lines: Sequence[dict[str, float]]) -> list[float]:
    return [abs(_known(line) - _true(line)) for line in lines]


def _judged(line: dict[str, float]) -> tuple[float, float, float, bool]:
    """Known error, its standard error, the error on validation points, which are drawn as those of
    the clients are, and whether the interval has the latter, with what their number leaves open."""
    known, true, deviation = _known(line), _true(line), float(line["known_error_deviation"])
    return known, deviation, true, abs(known - true) < 1.96 * math.hypot(deviation, line["open"])


def _standard_error(error: float, dataset: str) -> float:
    """Of an error on validation points, in percentage points."""
    points = VALIDATION * len(load_source(dataset).train.labels)
    return math.sqrt(error * (100 - error) / points)


def _costs(folder: Path, *, quick: bool) -> list[Bar]:
    """Seconds and bytes of a closed form with known errors over one without, by turns."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    sent: dict[bool, float] = {}
    is_on: Any = KnowsError.is_on
    for turn in range(2 if quick else 6):
        known = bool(turn % 2)
        KnowsError.is_on = is_on if known else lambda _: False
        try:
            with tempfile.TemporaryDirectory() as directory:
                start = time.perf_counter()
                result = ff.simulate(
                    "closed-form",
                    str(folder),
                    clients=CLIENTS,
                    points_per_client=100 if quick else POINTS,
                    fedul={"num_sets": SETS},
                    output=Path(directory) / "run",
                    engine="in-process",
                    seed=turn // 2,
                )
                seconds[known].append(time.perf_counter() - start)
                lines = result.metrics
                sent[known] = float((lines["bytes_up"] + lines["bytes_down"]).sum())
        finally:
            KnowsError.is_on = is_on
    more = 100 * (min(seconds[True]) / min(seconds[False]) - 1)
    bytes_more = 100 * (sent[True] / sent[False] - 1)
    return [
        Bar("seconds that it adds to a closed form", more, 3, " %"),
        Bar("bytes that it adds", bytes_more, 2, " %"),
    ]
