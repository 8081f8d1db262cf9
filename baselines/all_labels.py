"""Supervised learning with the labels of all points: the ceiling of FedMatch's comparison.

FedAvg-SL and FedProx-SL of the paper, by the base strategy.
"""

from __future__ import annotations

from client_apps.local import TrainingData
from client_apps.matching import MatchingClient
from fedul_flwr.config.matching import SupervisedPartSettings
from fedul_flwr.learning.batches import Batches, point_batches
from fedul_flwr.learning.local import Loss
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.weighted import scaled_cross_entropy
from strategies.matching import Matching


class AllLabels(Matching):
    """The base strategy on clients that have all labels, wherever other methods' labels are."""


class AllLabelsClient(MatchingClient):
    """Trains on its labeled points, which arrive as other methods' unlabeled ones do."""

    def training_data(self) -> TrainingData:
        """The labeled points of this round's streaming step."""
        positions = self.arrived(self.labeled)
        return TrainingData(
            self.data.images, self.data.points[positions], self.data.labels[positions]
        )

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """``batch-size`` points in each, augmented."""
        return point_batches(data.images, data.points, data.targets, plan)

    def loss(self) -> Loss:
        """λ_s · cross-entropy."""
        options = self.settings.section("ssl", SupervisedPartSettings)
        return scaled_cross_entropy(options.supervised_weight)
