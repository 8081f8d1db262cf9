"""Training on labeled points only: the baseline for every method that uses unlabeled points."""

from __future__ import annotations

from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_policy import LabeledClientStages
from fedul_flwr.federated.staged_training import staged_task
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.pseudo_label_task import PseudoLabels
from fedul_flwr.learning.task import LocalTask, Round


class LabelsOnly(MethodStrategy):
    """The base strategy on clients that have labels."""

    policy_class = LabeledClientStages
    policy: LabeledClientStages


class LabelsOnlyClient(MethodClient[PartlyLabeledData]):
    """Trains without pseudo labels in the second stage, too."""

    data_class = PartlyLabeledData

    def task(self, round: Round) -> LocalTask:
        """Training on given labels."""
        none = PseudoLabels.none(len(self.data.unlabeled))
        return staged_task(self.data, self.state, round, lambda: none)
