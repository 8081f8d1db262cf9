"""FixMatch on clients: trains strong views on confident predictions (Sohn et al. 2020).

It is FedAvg-FixMatch or FedProx-FixMatch of FedMatch's paper, depending on the base strategy. As in
that paper, the weak view is by default the unchanged image.
"""

from __future__ import annotations

from fedul_flwr import learning
from fedul_flwr.config.method_settings import ConsistencySettings, FixMatchSettings
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_training import smallest_top, streamed_task
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.learning.task import Round, Task


class FixMatchClient(Client[PartlyLabeledData]):
    """Trains on given labels, and trains strong views on confident pseudo labels."""

    reports = CONFIDENT

    def task(self, round: Round) -> Task:
        """Cross-entropy of both kinds of labels."""
        weights = self.settings[ConsistencySettings]
        threshold = self.settings[FixMatchSettings].threshold
        objective = learning.MatchingObjective(
            supervised=learning.scaled_cross_entropy(1.0),
            supervised_weight=weights.supervised_weight,
            consistency=learning.fixmatch_loss,
            unsupervised_weight=weights.unsupervised_weight,
            threshold=smallest_top(self.data, self.model, threshold, round),
            strong_view=learning.strong_view(self.settings),
            weak_view=learning.weak_view(self.settings),
        )
        return streamed_task(self.data, round, objective)
