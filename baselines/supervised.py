"""Supervised federated training on the same points: the ceiling of every method without labels."""

from __future__ import annotations

from functools import cached_property

from torch.nn import functional

from client_apps.local import LocalTrainingClient, TrainingData
from fedul_flwr.bridge import Value
from fedul_flwr.data.split import open_labeled_points
from fedul_flwr.data.types import LabeledPoints
from fedul_flwr.learning.local import Loss
from strategies.wrapper import WrappingStrategy


class Supervised(WrappingStrategy):
    """The base strategy alone; FedAvg by default."""


class SupervisedClient(LocalTrainingClient):
    """Trains on this client's points with their labels."""

    @cached_property
    def data(self) -> LabeledPoints:
        """This client's points and labels."""
        return open_labeled_points(self.federation, self.node.partition_id)

    def introduce(self) -> dict[str, Value]:
        """Number of points."""
        return {"num-points": len(self.data.points)}

    def training_data(self) -> TrainingData:
        """Points with their classes for targets."""
        return TrainingData(self.data.images, self.data.points, self.data.labels)

    def loss(self) -> Loss:
        """Cross-entropy."""
        return functional.cross_entropy
