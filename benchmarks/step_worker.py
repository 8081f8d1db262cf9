"""One side of ``local_step`` in a process: ``step_worker.py KIND THREADS MODEL DATASET``.

KIND is ``reference``, or ``ours`` with a value of setting ``precision``, as in ``ours:auto``.

Answers commands on stdin, one line each: ``steps N`` with the seconds of N steps, ``learn SEED
EPOCHS POINTS TEST`` with the test error after training from scratch, ``memory`` with the peak.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import reference_loop
from fedul_flwr.config.method_settings import UnlabeledSetSettings
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.sources import load_source
from fedul_flwr.data.split import GeneratedSets, generate_sets
from fedul_flwr.data.types import Source
from fedul_flwr.learning.batches import point_batches
from fedul_flwr.learning.device import retain_freed_memory
from fedul_flwr.learning.local import predict_logits, train_local
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.task import Task, on_logits
from fedul_flwr.models import build_model
from fedul_flwr.surrogate import SurrogateLoss

Loss = Callable[[Tensor, Tensor], Tensor]
BATCH = reference_loop.BATCH_SIZE


class Side:
    """One client with ten unlabeled sets, and its model."""

    def __init__(self, kind: str, model: str, dataset: str) -> None:
        self.kind, _, precision = kind.partition(":")
        self.architecture = model
        self.source: Source = load_source(dataset)
        if self.kind == "ours":
            retain_freed_memory()
        self.plan = LocalPlan(
            batch_size=BATCH,
            learning_rate=reference_loop.LEARNING_RATE,
            l1=reference_loop.L1,
            augment="rotate",
            precision=precision,
        )
        self.start(seed=0, num_points=12_000)

    def start(self, seed: int, num_points: int) -> None:
        """Create a new model, and the client for ``seed``."""
        train = self.source.train
        chosen = stream(seed, "bench").permutation(len(train))[:num_points]
        settings = UnlabeledSetSettings(overlap="shared")
        labels = np.asarray(train.labels)
        self.sets: GeneratedSets = generate_sets(
            labels, chosen.astype(np.int64), self.source.num_classes, 0, settings, seed
        )
        self.model = build_model(
            self.architecture, self.source.input_shape, self.source.num_classes, seed
        )
        self.rng = stream(seed, "local")
        torch.manual_seed(seed)

    def loss(self) -> nn.Module:
        sizes = torch.from_numpy(np.bincount(self.sets.sets, minlength=len(self.sets.priors)))
        priors = torch.from_numpy(self.sets.priors)
        if self.kind == "ours":
            return SurrogateLoss(priors, sizes)
        return reference_loop.SurrogateLoss(priors, sizes)

    def train(self, count: int, loss: Loss, epochs: int = 1) -> None:
        """Train for ``epochs`` on the first ``count`` points, with a new Adam optimizer."""
        images = self.source.train.inputs
        order = np.random.default_rng(1).permutation(len(self.sets.points))[:count]
        points, sets = self.sets.points[order], self.sets.sets[order]
        if self.kind == "reference":
            reference_loop.train(self.model, images, points, sets, loss, epochs)
            return
        plan = replace(self.plan, local_epochs=epochs)
        batches = point_batches(images, points, sets, plan)
        train_local(self.model, Task(batches, on_logits(loss)), plan, self.rng)

    def steps(self, count: int) -> list[float]:
        """Seconds between losses of ``count`` steps: backward, update, batch, forward."""
        inner, calls = self.loss(), []

        def loss(logits: Tensor, sets: Tensor) -> Tensor:
            calls.append(time.perf_counter())
            value: Tensor = inner(logits, sets)
            return value

        self.train((count + 1) * BATCH, loss)
        return np.diff(calls).tolist()

    def learn(self, seed: int, epochs: int, num_points: int, num_test: int) -> float:
        """Test error in percent after training from scratch."""
        self.start(seed, num_points)
        self.train(num_points, self.loss(), epochs)
        test = self.source.test
        points, labels = np.arange(min(num_test, len(test))), np.asarray(test.labels)
        if self.kind == "reference":
            return reference_loop.error(self.model, test.inputs, points, labels)
        guess = predict_logits(self.model, test.inputs, points, self.plan).argmax(dim=1)
        return float(100 * np.mean(guess.numpy() != labels[points]))


def main() -> None:
    kind, threads, model, dataset = sys.argv[1:]
    torch.set_num_threads(int(threads))
    side = Side(kind, model, dataset)
    actions: dict[str, Callable[..., Any]] = {
        "steps": side.steps,
        "learn": side.learn,
        "memory": lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    for line in sys.stdin:
        name, *arguments = line.split()
        print(json.dumps(actions[name](*map(int, arguments))), flush=True)


if __name__ == "__main__":
    main()
