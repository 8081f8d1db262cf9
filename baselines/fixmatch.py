"""FixMatch on clients: trains strong views on confident predictions (Sohn et al. 2020).

It is FedAvg-FixMatch or FedProx-FixMatch of FedMatch's paper, depending on the base strategy. As in
that paper, the weak view is the unchanged image.
"""

from __future__ import annotations

from torch.nn import functional

from fedul_flwr.config.matching import ConsistencySettings, FixMatchSettings
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.streamed_training import streamed_task
from fedul_flwr.learning.consistency import fixmatch_loss
from fedul_flwr.learning.matching import MatchingObjective
from fedul_flwr.learning.task import LocalTask, Round
from fedul_flwr.learning.views import strong_view


class FixMatchClient(MethodClient[PartlyLabeledData]):
    """Trains on given labels, and trains strong views on confident pseudo labels."""

    data_class = PartlyLabeledData

    def task(self, round: Round) -> LocalTask:
        """Cross-entropy of both kinds of labels."""
        weights = self.settings[ConsistencySettings]
        objective = MatchingObjective(
            supervised=functional.cross_entropy,
            supervised_weight=weights.supervised_weight,
            consistency=fixmatch_loss,
            unsupervised_weight=weights.unsupervised_weight,
            threshold=self.settings[FixMatchSettings].threshold,
            strong_view=strong_view(self.settings),
        )
        return streamed_task(self.data, round, objective)
