"""Supervised learning with the labels of all points: the upper bound in FedMatch's comparison.

It is FedAvg-SL or FedProx-SL of the paper, depending on the base strategy.
"""

from __future__ import annotations

from fedul_flwr import learning
from fedul_flwr.config.method_settings import (
    ScenarioSettings,
    ServerTrainingSettings,
    SupervisedPartSettings,
)
from fedul_flwr.config.methods import Method
from fedul_flwr.data.types import Ints
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.learning.task import Round, Task, on_logits


class AllLabelsClient(Client[PartlyLabeledData]):
    """Trains on its labeled points, which arrive in steps like other methods' unlabeled ones."""

    def task(self, round: Round) -> Task:
        """The labeled points of this round's streaming step."""
        return labeled_task(self.data, self.data.arrived(self.data.labeled, round.number), round)


def labeled_task(data: PartlyLabeledData, positions: Ints, round: Round) -> Task:
    """λ_s · cross-entropy of the labeled points at ``positions``, in augmented batches."""
    examples = data.examples
    points, labels = examples.points[positions], examples.labels[positions]
    batches = learning.point_batches(examples.inputs, points, labels, round.plan)
    loss = learning.scaled_cross_entropy(data.settings[SupervisedPartSettings].supervised_weight)
    return Task(batches, on_logits(loss))


METHOD = Method(
    name="all-labels",
    line="Trains with FedMatch's batches on labels of all points: the ceiling.",
    needs="labels for all points of clients",
    paper="ceiling in Jeong et al., ICLR 2021, arXiv:2006.12097",
    client=AllLabelsClient,
    settings=(ScenarioSettings, SupervisedPartSettings, ServerTrainingSettings),
    data="fully-labeled",
)
