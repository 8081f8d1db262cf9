"""Time of FedMatch's step on unlabeled images, relative to a supervised step."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import torch

from benchmarks.report import Bar, Outcome
from fedul_flwr.data.types import UNLABELED
from fedul_flwr.learning.batches import matching_batches
from fedul_flwr.learning.device import move_model, retain_freed_memory
from fedul_flwr.learning.disjoint import Decomposed, DisjointLoss, Penalties, train_disjoint
from fedul_flwr.learning.helpers import InterClientConsistency
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.learning.parts import decompose
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.pseudo_labels import scaled_cross_entropy
from fedul_flwr.models import build_model
from fedul_flwr.strategies.fedmatch import FedMatchSettings

MODELS = ("resnet9", "resnet9-quarter")
SHAPE, NUM_CLASSES, BATCH = (32, 32, 3), 10, 100
SUPERVISED, JUDGED = "supervised", "two helpers, all confident"
KINDS: dict[str, tuple[int, float]] = {
    SUPERVISED: (0, 0.0),
    JUDGED: (2, 0.0),
    "two helpers, none confident": (2, 1.0),
    "no helper, all confident": (0, 0.0),
}
"""Helpers and threshold of every kind of step: with 1 no point of a new model is confident."""
BAR = 3.0


class Client:
    """A client that does one kind of step on 100 random images."""

    def __init__(self, model: str, kind: str) -> None:
        self._plan = LocalPlan(
            batch_size=BATCH,
            optimizer="sgd",
            learning_rate=1e-3,
            weight_decay=1e-4,
            precision="auto",
        )
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (BATCH, *SHAPE), dtype=np.uint8)
        labels = rng.integers(0, NUM_CLASSES, BATCH)
        if kind != SUPERVISED:
            labels[:] = UNLABELED
        self._batches = matching_batches(images, np.arange(BATCH), labels, self._plan, BATCH)
        helpers, threshold = KINDS[kind]
        self._consistency = InterClientConsistency(
            [self._model(model, seed) for seed in range(1, 1 + helpers)],
            weight=1e-2,
            threshold=threshold,
        )
        own = self._model(model, 0)
        self._decomposed = Decomposed(own, decompose(dump_arrays(own), (), 0.2))
        self._rng = rng

    def _model(self, name: str, seed: int) -> torch.nn.Module:
        fresh = build_model(name, SHAPE, NUM_CLASSES, seed)
        return move_model(fresh, self._plan.device, self._plan.precision)

    def seconds(self) -> float:
        """Seconds of one step: batch, forward, backward, update."""
        options = FedMatchSettings()
        began = time.perf_counter()
        train_disjoint(
            self._decomposed,
            self._batches,
            DisjointLoss(
                scaled_cross_entropy(10.0),
                self._consistency,
                Penalties(options.l2_weight, options.l1_weight),
            ),
            self._plan,
            self._rng,
        )
        return time.perf_counter() - began


def measure(quick: bool) -> Outcome:
    """Kinds of steps in turns, so that other load on the machine affects all equally."""
    turns, models = (1, MODELS[1:]) if quick else (7, MODELS)
    retain_freed_memory()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a client has
    outcome = Outcome(
        f"matching_step: {BATCH} images of 32 x 32 x 3, RandAugment, SGD, 1 thread",
        ("model", "step", "median ms", "fastest ms", "ratio"),
    )
    for model in models:
        clients = {kind: Client(model, kind) for kind in KINDS}
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for turn in range(turns + 1):
            for kind, client in clients.items():
                taken = client.seconds()
                if turn:  # the first warms up
                    seconds[kind].append(taken)
        plain = median(seconds[SUPERVISED])
        for kind, values in seconds.items():
            times = (f"{1000 * median(values):.1f}", f"{1000 * min(values):.1f}")
            outcome.rows.append((model, kind, *times, f"{median(values) / plain:.2f}"))
        name = f"{model}, two helpers / supervised"
        outcome.bars.append(Bar(name, median(seconds[JUDGED]) / plain, BAR, "×"))
        outcome.figures[model] = seconds
    torch.set_num_threads(threads)
    return outcome
