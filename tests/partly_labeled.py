"""The simplest method on partly labeled data, for tests of what its clients are given."""

from __future__ import annotations

import numpy as np
from torch.nn import functional

from fedul_flwr.config.labels import LabelSettings
from fedul_flwr.data.content import Value
from fedul_flwr.data.label_split import open_partly_labeled_points
from fedul_flwr.data.local_labels import load_partly_labeled
from fedul_flwr.data.types import PartlyLabeledPoints
from fedul_flwr.federated.client import MethodClient, TrainingData
from fedul_flwr.learning.local import Loss
from fedul_flwr.methods import Method

SEEN: dict[int, PartlyLabeledPoints] = {}
"""What clients trained on, by their number."""


class GivenClient(MethodClient):
    """Trains on the given labels, and takes class 0 for all others: its model shows what it saw."""

    @property
    def data(self) -> PartlyLabeledPoints:
        if self.own_folder is None:
            return open_partly_labeled_points(self.federation, self.node.partition_id)
        return load_partly_labeled(
            self.own_folder, self.federation["class-names"], self.image_shape
        )

    def introduce(self) -> dict[str, Value]:
        return {"num-points": len(self.data.points)}

    def training_data(self) -> TrainingData:
        SEEN[self.node.partition_id] = self.data
        old = ~self.data.new
        return TrainingData(
            self.data.images, self.data.points[old], np.maximum(self.data.labels[old], 0)
        )

    def loss(self) -> Loss:
        return functional.cross_entropy


GIVEN = Method(
    name="given",
    strategy="fedul_flwr.federated.strategy:MethodStrategy",
    client="tests.partly_labeled:GivenClient",
    settings=(LabelSettings,),
    data="partly-labeled",
)
GIVEN_METHOD = "tests.partly_labeled:GIVEN"
