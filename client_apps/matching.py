"""Base of the clients of FedMatch and of the consistency methods that it is compared with."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from torch import Tensor

from client_apps.labeled_points import LabeledPointsClient
from fedul_flwr.config.matching import ScenarioSettings, ViewSettings
from fedul_flwr.data.label_split import who_has_labels
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import UNLABELED, Ints, PartlyLabeledPoints
from fedul_flwr.federated.client import TrainingData
from fedul_flwr.learning.batches import Batches, matching_batches
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.randaugment import randaugment
from fedul_flwr.learning.released_randaugment import released_randaugment


class MatchingClient(LabeledPointsClient):
    """Trains on labeled points and on the unlabeled points that have arrived.

    Subclasses define :meth:`objective`; targets are labels, -1 for unlabeled points.
    """

    @property
    def scenario(self) -> ScenarioSettings:
        """Where labels are, and when unlabeled points arrive."""
        return self.settings[ScenarioSettings]

    @property
    def views(self) -> ViewSettings:
        """Settings of loss weights, batches and views shared by these methods."""
        return self.settings[ViewSettings]

    @cached_property
    def data(self) -> PartlyLabeledPoints:
        """This client's points; without labels if only the server has some."""
        found = super().data
        if who_has_labels(self.settings) == "server":
            return replace(found, labels=np.full_like(found.labels, UNLABELED))
        return found

    def arrived(self, positions: Ints) -> Ints:
        """Those of ``positions`` that arrive in this round's streaming step, in random order."""
        steps = self.scenario.streaming_steps
        step = min((self.server_round - 1) // self.scenario.rounds_per_step, steps - 1)
        order = stream(self.settings.seed, "streaming", self.node.partition_id)
        return np.array_split(order.permutation(positions), steps)[step]

    def training_data(self) -> TrainingData:
        """Labeled points, and the unlabeled ones of this round's step with target -1."""
        positions = np.concatenate([self.labeled, self.arrived(self.unlabeled)])
        labels = self.data.labels[positions]
        return TrainingData(self.data.images, self.data.points[positions], labels)

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """Batches of ``batch-size`` labeled and ``ssl.unlabeled-batch-size`` unlabeled points."""
        return matching_batches(
            data.images, data.points, data.targets, plan, self.views.unlabeled_batch_size
        )

    def strong_view(self, inputs: Tensor) -> Tensor:
        """A random strong view of each image, drawn from torch's own generator."""
        change = released_randaugment if self.views.randaugment == "release" else randaugment
        return change(inputs, self.views.operations, self.views.magnitudes)
