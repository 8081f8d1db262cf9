"""The simplest method on partly labeled data, for tests of what its clients are given."""

import numpy as np
from torch.nn import functional

from fedul_flwr.config.method_settings import LabelSettings
from fedul_flwr.config.methods import Method
from fedul_flwr.data.types import PartlyLabeledPoints
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.learning.batches import point_batches
from fedul_flwr.learning.task import Round, Task, on_logits

SEEN: dict[int, PartlyLabeledPoints] = {}
"""What clients trained on, by their number."""


class GivenClient(Client[PartlyLabeledData]):
    """Trains on the given labels, and takes class 0 for all others: its model shows what it saw."""

    data_class = PartlyLabeledData

    def task(self, round: Round) -> Task:
        own = SEEN[self.node.partition_id] = self.data.examples
        points, labels = own.points[~own.new], np.maximum(own.labels[~own.new], 0)
        batches = point_batches(own.inputs, points, labels, round.plan)
        return Task(batches, on_logits(functional.cross_entropy))


GIVEN = Method(
    name="given",
    strategy="fedul_flwr.federated.strategy:Strategy",
    client="tests.support.given_labels_method:GivenClient",
    settings=(LabelSettings,),
    data="partly-labeled",
)
GIVEN_METHOD = "tests.support.given_labels_method:GIVEN"
