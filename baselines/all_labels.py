"""Supervised learning with the labels of all points: the upper bound in FedMatch's comparison.

It is FedAvg-SL or FedProx-SL of the paper, depending on the base strategy.
"""

from __future__ import annotations

from client_apps.matching import MatchingClient
from fedul_flwr.config.matching import SupervisedPartSettings
from fedul_flwr.federated.client import TrainingData
from fedul_flwr.learning.batches import Batches, point_batches
from fedul_flwr.learning.local import Loss
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.weighted import scaled_cross_entropy


class AllLabelsClient(MatchingClient):
    """Trains on its labeled points, which arrive in steps like other methods' unlabeled ones."""

    def training_data(self) -> TrainingData:
        """The labeled points of this round's streaming step."""
        positions = self.arrived(self.labeled)
        return TrainingData(
            self.data.images, self.data.points[positions], self.data.labels[positions]
        )

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """Batches of ``batch-size`` augmented points."""
        return point_batches(data.images, data.points, data.targets, plan)

    def loss(self) -> Loss:
        """λ_s · cross-entropy."""
        options = self.settings[SupervisedPartSettings]
        return scaled_cross_entropy(options.supervised_weight)
