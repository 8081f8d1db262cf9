"""Training that is replaced: it writes the files of a run, with the errors that a test asks for."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.experiments.compare_files import compare
from fedul_flwr.experiments.compare_table import Compared
from fedul_flwr.experiments.trial_plan import Plan

ERRORS = {("fedul", 0): 3.0, ("fedul", 1): 4.0, ("supervised", 0): 1.0, ("supervised", 1): 1.5}
"""Test error in percent by method and seed."""


class FakeTraining:
    """Writes the files of a run; ``failing`` maps a method and seed to the error that it raises."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.titles: list[str] = []
        self.configs: list[RunConfig] = []
        self.said: list[str] = []
        self.failing: dict[tuple[str, int], BaseException] = {}

    def __call__(self, _: Any, config: RunConfig, title: str) -> None:
        key = (config.method, config.seed)
        self.started.append(key)
        self.titles.append(title)
        self.configs.append(config)
        directory = Path(config.output)
        directory.mkdir(parents=True, exist_ok=True)
        settings = config.to_flat() | {"selection": "validation"}
        done = 1 if key in self.failing else config.num_rounds
        lines = [
            {"round": step + 1, "test_error": ERRORS[key] + done - 1 - step} for step in range(done)
        ]
        (directory / "config.json").write_text(json.dumps({"settings": settings, "data": {}}))
        (directory / "last.safetensors").touch()
        (directory / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
        if key in self.failing:
            raise self.failing[key]
        summary = {
            "num_clients": 4,
            "rounds": done,
            "best_round": done,
            "test_error": ERRORS[key],
            "seconds_total": 20.0,
            "seconds_per_round": 9.0,
            "bytes_up": 1_500_000,
            "bytes_down": 3_000_000,
            "percent_up": 50.0,
            "percent_down": 100.0,
            "balanced_accuracy": 90 - ERRORS[key],
            "auc": 0.9 + config.seed / 100,
        }
        (directory / "summary.json").write_text(json.dumps(summary))

    def run(self, plan: Plan) -> Compared:
        self.started.clear()
        return compare(plan, self, self.said.append)


Error = Callable[[float, int], float]


class FakeSearchTraining:
    """Trains with ``error(learning rate, round)``; rate 0 stands for the row's own settings."""

    def __init__(self) -> None:
        self.error: Error = lambda rate, step: 100 * rate
        self.error_of_seed: dict[int, Error] = {}
        self.validation_loss: Callable[[float], float] = lambda rate: 1.0
        self.interrupted_at: tuple[float, int] | None = None
        self.failing: set[float] = set()
        self.broken: set[float] = set()
        """Rates whose weights are NaN after round 1, so that round 2 fails."""
        self.infinite: dict[float, str] = {}
        """A loss of a round that is infinite from round 2 on, by rate; all else is good."""
        self.started: list[tuple[float, bool, int]] = []
        """Rate, whether it resumed, and the last round that it reached."""
        self.configs: list[RunConfig] = []

    def __call__(self, config: RunConfig, clients: int, *, callbacks: Any) -> None:
        directory = Path(config.output)
        directory.mkdir(parents=True, exist_ok=True)
        metrics = directory / "metrics.jsonl"
        old = metrics.read_text().splitlines() if config.resume else []
        lines = [json.loads(line) for line in old]
        rate = 0.0 if config.learning_rate == 3e-3 else config.learning_rate
        self.configs.append(config)
        self.started.append((rate, bool(config.resume), len(lines)))
        (directory / "config.json").write_text(
            json.dumps({"settings": config.to_flat(), "data": {}})
        )
        (callback,) = callbacks
        callback.begin(lines)
        for step in range(len(lines) + 1, config.num_rounds + 1):
            if self.interrupted_at == (rate, step):
                raise KeyboardInterrupt
            if rate in self.failing or (rate in self.broken and step > 1):
                raise RuntimeError("no memory")
            error_of = self.error_of_seed.get(config.seed, self.error)
            error = error_of(rate, step) if config.is_evaluated(step) else None
            line = {
                "round": step,
                "validation_error": error,
                "loss": error if error is not None and math.isnan(error) else 1.0,
                "validation_loss": self.validation_loss(rate),
                "test_error": -1000.0 * rate,
                "seconds": 2.0,
            }
            if rate in self.infinite and step > 1:
                line[self.infinite[rate]] = math.inf
            lines.append(line)
            metrics.write_text("".join(json.dumps(one) + "\n" for one in lines))
            weight = np.array([math.nan if rate in self.broken else 1.0])
            Run(path=directory).save_model("last.safetensors", {"weight": weight}, line)
            self.started[-1] = (rate, bool(config.resume), step)
            callback.recorded(lines)
        (directory / "summary.json").write_text("{}")
