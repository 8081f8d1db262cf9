"""Compare rules for defaults on many small data sets, and print their errors as a table.

    python experiments/defaults/search.py DATA errors.jsonl --rules "before;now"

runs every rule on every set with every method and seed that ``errors.jsonl`` has no line of yet,
and then prints the file. ``DATA`` is a folder with ``mnist/train.parquet`` and the like. Rules are
below: settings by the shape of points and their number.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from data_sets import LARGE, SEARCHED, UNSEEN, DataSet, Loader
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedul_flwr as ff

Settings = Mapping[str, Any]
Rule = Callable[[tuple[int, ...], float], dict[str, Any]]
"""From the shape of a point and the mean number of points of a client to settings."""

METHODS: dict[str, Settings] = {
    "supervised": {},
    "fedul": {},
    "fedul-finetune": {"server_fraction": 0.1},
    "fedmatch": {"supervised": {"label_fraction": 0.2}},
    "xclp": {"supervised": {"label_fraction": 0.2}},
}
BASELINES = ("logistic regression", "random forest")


def _steps(points: float, least: int, most: int) -> dict[str, int]:
    """Epochs for ``least`` steps in a round, from two to ``most``."""
    epochs = -(-least // max(1, int(points // 16)))
    return {"batch_size": 16, "local_epochs": min(max(2, epochs), most)}


def _before(shape: tuple[int, ...], points: float) -> dict[str, Any]:
    """The rule until now."""
    if len(shape) == 1:
        found = {"model": "mlp", "learning_rate": 3e-3, "augment": "none"}
    elif min(shape[:2]) < 12:
        found = {"model": "cnn-small", "learning_rate": 3e-3, "augment": "none"}
    elif shape[2] == 3:
        found = {"model": "cnn4", "learning_rate": 1e-3, "augment": "flip"}
    else:
        found = {"model": "lenet", "learning_rate": 3e-3, "augment": "none"}
    large = 2 * points > 600 * 16
    steps = {"batch_size": 16, "local_epochs": 1 if large else 2}
    while large and points > 600 * steps["batch_size"]:
        steps["batch_size"] *= 2
    return {**found, **steps, "learning_rate_schedule": "constant"}


def _of(least: int = 0, most: int = 10, **changes: Any) -> Rule:
    """The rule until now with `cosine`, ``least`` steps in a round, and ``changes``."""

    def rule(shape: tuple[int, ...], points: float) -> dict[str, Any]:
        found = {**_before(shape, points), "learning_rate_schedule": "cosine"}
        if 2 * points <= 600 * 16:
            found |= _steps(points, least, most)
        return {**found, **changes}

    return rule


def _network(model: str, augment: str, least: int = 0) -> Rule:
    return _of(least, model=model, augment=augment, learning_rate=3e-3)


RULES: dict[str, Rule] = {
    "now": lambda _shape, _points: {},
    "before": _before,
    "cosine": _of(),
    "cosine, 40 steps": _of(40),
    "cosine, 40 steps, 20 epochs": _of(40, 20),
    "cosine, 100 steps, 20 epochs": _of(100, 20),
    "mlp, 0.005, 40 steps": _of(40, learning_rate=5e-3),
    "mlp, 0.01, 40 steps": _of(40, learning_rate=1e-2),
    "cnn2, affine": _network("cnn2", "affine"),
    "cnn2, affine, 4 epochs": _of(model="cnn2", augment="affine", local_epochs=4),
    "cnn2, affine, 40 steps": _network("cnn2", "affine", 40),
    "cnn2, affine, 60 steps": _network("cnn2", "affine", 60),
    "cnn6-quarter, affine, 40 steps": _network("cnn6-quarter", "affine", 40),
    "cnn6-quarter, 40 steps": _network("cnn6-quarter", "none", 40),
    "cnn6-quarter, flip": _network("cnn6-quarter", "flip"),
}
"""Candidates by name; ``now`` leaves all settings to the product."""


def error_of_baseline(name: str, data: DataSet) -> float:
    """Error in percent of a classifier that has all points and labels in one place."""
    model = (
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        if name == "logistic regression"
        else RandomForestClassifier(200, random_state=0)
    )
    train, judged = (points.inputs.reshape(len(points.labels), -1) for points in data)
    model.fit(train, data.train.labels)
    return 100.0 - 100.0 * float(model.score(judged, data.judged.labels))


def error_of_run(
    method: str, data: DataSet, settings: Settings, seed: int, arguments: argparse.Namespace
) -> float:
    """Error in percent of the round that the run's own validation points choose."""
    with tempfile.TemporaryDirectory(prefix="defaults-") as scratch:
        result = ff.simulate(
            method,
            data=tuple(data.train),
            test=tuple(data.judged),
            clients=arguments.clients,
            rounds=arguments.rounds,
            partition=arguments.partition,
            seed=seed,
            output=Path(scratch) / "run",
            engine="in-process",
            **METHODS[method],
            **settings,
        )
        return float(result.summary["test_error"])


def search(arguments: argparse.Namespace, sets: Mapping[str, Loader]) -> None:
    """Append a line to the file for every run that it lacks."""
    file: Path = arguments.file
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(line["set"], line["method"], line["rule"], line["seed"]) for line in lines}
    for name, load in sets.items():
        try:
            data = load(arguments.data)
        except (FileNotFoundError, ImportError) as error:
            print(f"left out: {name} ({error})")
            continue
        shape = data.train.inputs.shape[1:]
        points = 0.8 * len(data.train.labels) / arguments.clients
        runs = product(arguments.seeds, arguments.rules, arguments.methods)
        wanted = [
            *((None, baseline, 0) for baseline in BASELINES),
            *((method, rule, seed) for seed, rule, method in runs),
        ]
        for method, rule, seed in wanted:
            if (name, method or "supervised", rule, seed) in done:
                continue
            began = time.monotonic()
            try:
                if method is None:
                    error = error_of_baseline(rule, data)
                else:
                    settings = RULES[rule](shape, points)
                    error = error_of_run(method, data, settings, seed, arguments)
            except ff.UserError as problem:
                print(f"left out: {name}, {method}, {rule}: {problem}")
                continue
            line = {"set": name, "method": method or "supervised", "rule": rule, "seed": seed}
            line |= {"error": error, "seconds": time.monotonic() - began}
            with file.open("a") as stream:
                stream.write(json.dumps(line) + "\n")


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Means over seeds in Markdown, error and seconds of a run: a row for each method and set, a
    column for each rule."""
    found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for line in lines:
        figures = line["error"], line["seconds"]
        found[line["method"], line["set"]][line["rule"]].append(figures)
    rules = list(dict.fromkeys(rule for cells in found.values() for rule in cells))
    text = ["| method | set | " + " | ".join(rules) + " |", "|---|---|" + "---:|" * len(rules)]
    for (method, name), cells in sorted(found.items(), key=lambda item: item[0][0]):
        means = {rule: map(mean, zip(*runs, strict=True)) for rule, runs in cells.items()}
        errors = [
            "{:.1f} ({:.0f} s)".format(*means[rule]) if rule in means else "" for rule in rules
        ]
        text.append(f"| {method} | {name} | " + " | ".join(errors) + " |")
    return "\n".join(text)


def main() -> None:
    """Parse the command line, run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder with mnist/train.parquet and the like")
    parser.add_argument("file", type=Path, help="results, a line of JSON for each run")
    listed = {"type": lambda text: text.split(";")}
    parser.add_argument("--rules", **listed, default=["before"], help="names, separated by ;")
    parser.add_argument("--methods", **listed, default=["supervised", "fedul"])
    parser.add_argument("--sets", **listed, default=list(SEARCHED))
    parser.add_argument("--seeds", type=lambda text: [int(s) for s in text.split(",")], default=[0])
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--partition", default="iid")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    known = SEARCHED | LARGE | UNSEEN
    search(arguments, {name: known[name] for name in arguments.sets})
    print(table(json.loads(line) for line in arguments.file.read_text().splitlines()))


if __name__ == "__main__":
    main()
