"""A method whose both sides draw from the generators of Python, NumPy and torch."""

import random
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fedul_flwr.method import MATCHING, Client, Method, Part, Settings, Strategy, Task


def draw() -> float:
    """The sum of a number of each generator, whoever has seeded it."""
    return random.random() + float(np.random.rand()) + float(torch.rand(()))  # noqa: NPY002


class DrawingSettings(Settings):
    table = "drawing"


class Drawing(Strategy):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.first = draw()

    def client_config(self) -> dict[str, Any]:
        return {"drawn": self.first + draw()}

    def after_round(self, reports: Any) -> None:
        self.record.metrics["drawn-after"] = draw()


class DrawingClient(Client[Any]):
    reports = {"drawn-before": Part(says="a random number")}

    def task(self, round: Any) -> Task:
        before = draw()

        def loss(network: Any, batch: Any) -> torch.Tensor:
            factor = draw() + float(round.config["drawn"])
            return factor * functional.cross_entropy(network(batch.labeled), batch.labels)

        return Task(self.data.labeled_and_unlabeled(round), loss, {"drawn-before": before})


METHOD = Method(
    "drawing",
    Drawing,
    DrawingClient,
    (*MATCHING, DrawingSettings),
    "partly-labeled",
    line="Draws.",
)
