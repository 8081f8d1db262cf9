"""Parts of a client's task of local training: its points, targets, classes and weights."""

from collections.abc import Sequence
from inspect import getclosurevars
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fedul_flwr.arrays import Ints
from fedul_flwr.data.types import Inputs
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.messages import ARRAYS, WEIGHT
from fedul_flwr.learning.pseudo_labels import WeightedPoints
from fedul_flwr.learning.task import Batch, Task


def batch_of(inputs: Tensor, targets: Tensor) -> Batch:
    """A batch whose points with a target of -1 come last, and have no label."""
    return Batch(inputs, targets, int((targets >= 0).sum()))


class TrainingPoints(NamedTuple):
    """Rows ``points`` of ``inputs``, and a target for each."""

    inputs: Inputs
    points: Ints
    targets: Ints


def task_of(client: Client, number: int = 1, **config: Any) -> Task:
    """The client's task in a round."""
    return client.task(client.round({"server-round": number, **config}).in_tensors())


def fit(
    client: Client, parameters: Sequence[Any], config: dict[str, Any]
) -> tuple[list[Any], int, dict[str, Any]]:
    """The client's model after a round, the number of points, and its reports."""
    payload = client.train(dict(zip(client.array_names(), parameters, strict=True)), config)
    return list(payload.pop(ARRAYS).values()), payload.pop(WEIGHT), payload


def inside(batches: Any) -> dict[str, Any]:
    """What ``batches`` are cut from."""
    of_draw = dict(getclosurevars(batches.draw).nonlocals)
    return {**getclosurevars(of_draw["chosen"]).nonlocals, "stored": of_draw["stored"]}


def points_of(batches: Any) -> TrainingPoints:
    """All points that ``batches`` may yield, with their targets."""
    found = inside(batches)
    targets = next(found[name] for name in ("targets", "labels", "of_points") if name in found)
    return TrainingPoints(found["stored"], found["points"], targets)


def training_points(client: Client, number: int = 1, **config: Any) -> TrainingPoints:
    """The points that a client trains on in a round."""
    return points_of(task_of(client, number, **config).batches)


def weighted_points(client: Client, number: int) -> WeightedPoints:
    """The same of a method with pseudo labels, with classes and weights."""
    found = inside(task_of(client, number).batches)
    classes, weights = found["of_points"].T
    of_points = found["points"], classes.astype(np.int64), weights
    return WeightedPoints(found["stored"], *of_points, len(found["labeled"]))
