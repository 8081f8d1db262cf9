"""Training on labeled points only: the baseline for every method that uses unlabeled points."""

from __future__ import annotations

from fedul_flwr import learning
from fedul_flwr.config.method_settings import LabelSettings, LabelsOnlySettings, StageSettings
from fedul_flwr.config.methods import Method
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_policy import LabeledClientStages
from fedul_flwr.federated.client_training import staged_points
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.learning.task import Round, Task


class LabelsOnly(Strategy):
    """The base strategy on clients that have labels."""

    policy_class = LabeledClientStages


class LabelsOnlyClient(Client[PartlyLabeledData]):
    """Trains without pseudo labels in the second stage, too."""

    def task(self, round: Round) -> Task:
        """Training on given labels."""
        none = learning.PseudoLabels.none(len(self.data.unlabeled))
        points = staged_points(self.data, self.state, round, lambda: none)
        return learning.weighted_task(
            points, self.settings[StageSettings], round.plan, self.settings[LabelsOnlySettings]
        )


METHOD = Method(
    name="labels-only",
    line="Trains on the given labels of clients alone.",
    needs="labels for some points of clients",
    paper="rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=LabelsOnly,
    client=LabelsOnlyClient,
    settings=(LabelSettings, StageSettings, LabelsOnlySettings),
    data="partly-labeled",
)
