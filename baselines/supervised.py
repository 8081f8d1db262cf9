"""Supervised federated training on the clients' points: the ceiling of methods without labels."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from torch.nn import functional

from client_apps.local import LocalTrainingClient, TrainingData
from fedul_flwr.bridge import Value
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.set_split import open_labeled_points
from fedul_flwr.data.types import LabeledPoints
from fedul_flwr.learning.local import Loss
from fedul_flwr.settings.baselines import SupervisedSettings
from strategies.wrapper import WrappingStrategy


class Supervised(WrappingStrategy):
    """The base strategy alone; FedAvg by default."""


class SupervisedClient(LocalTrainingClient):
    """Trains on this client's points with their labels, or on a part of them."""

    @cached_property
    def data(self) -> LabeledPoints:
        """Points and labels it trains on: ``supervised.label-fraction`` of all, at least one."""
        everything = open_labeled_points(self.federation, self.node.partition_id)
        fraction = self.settings.section("supervised", SupervisedSettings).label_fraction
        count = max(1, round(fraction * len(everything.points)))
        # One order for all fractions: the points of a smaller one are among those of a larger.
        order = stream(self.settings.seed, "labelled", self.node.partition_id).permutation(
            len(everything.points)
        )
        chosen = np.sort(order[:count])
        return LabeledPoints(
            everything.images, everything.points[chosen], everything.labels[chosen]
        )

    def introduce(self) -> dict[str, Value]:
        """Number of points it trains on."""
        return {"num-points": len(self.data.points)}

    def training_data(self) -> TrainingData:
        """Points with their classes for targets."""
        return TrainingData(self.data.images, self.data.points, self.data.labels)

    def loss(self) -> Loss:
        """Cross-entropy."""
        return functional.cross_entropy
