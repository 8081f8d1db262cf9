"""Parts of a client's task of local training: its points, targets, classes and weights."""

from inspect import getclosurevars
from typing import Any, NamedTuple

import numpy as np

from fedul_flwr.data.types import Inputs, Ints
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.learning.local import LocalTask
from fedul_flwr.learning.pseudo_label_task import WeightedPoints


class TrainingPoints(NamedTuple):
    """Rows ``points`` of ``inputs``, and a target for each."""

    inputs: Inputs
    points: Ints
    targets: Ints


def task_of(client: MethodClient, number: int = 1, **config: Any) -> LocalTask:
    """The client's task in a round."""
    return client.task(client.round({"server-round": number, **config}))


def points_of(batches: Any) -> TrainingPoints:
    """All points that ``batches`` may yield, with their targets."""
    inside = getclosurevars(batches).nonlocals
    targets = next((inside[name] for name in ("targets", "labels") if name in inside), None)
    if targets is None:  # pairs of points: targets are their positions
        targets = np.arange(len(inside["points"]))
    return TrainingPoints(inside["stored"], inside["points"], targets)


def training_points(client: MethodClient, number: int = 1, **config: Any) -> TrainingPoints:
    """The points that a client trains on in a round."""
    return points_of(task_of(client, number, **config).batches)


def weighted_points(client: MethodClient, number: int) -> WeightedPoints:
    """The same of a method with pseudo labels, with classes and weights."""
    found = getclosurevars(task_of(client, number).objective).nonlocals["data"]
    assert isinstance(found, WeightedPoints)
    return found
