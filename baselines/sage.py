"""SAGE on clients: the model that they received corrects their own pseudo labels (Liu et al. 2025).

It is FixMatch with other targets, for labels at some points of every client.
"""

from __future__ import annotations

import copy

from fedul_flwr import learning
from fedul_flwr.config.method_settings import ConsistencySettings, SAGESettings
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_training import streamed_task
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.learning.task import Round, Task


class SAGEClient(Client[PartlyLabeledData]):
    """Trains on given labels, and trains strong views on two models' pseudo labels."""

    reports = CONFIDENT

    def task(self, round: Round) -> Task:
        """Cross-entropy of given labels, and the divergence from the corrected ones."""
        plan, weights = round.plan, self.settings[ConsistencySettings]
        objective = learning.SageObjective(
            received=learning.move_model(
                copy.deepcopy(self.model), plan.device, plan.precision
            ).eval(),
            threshold=self.settings[SAGESettings].threshold,
            supervised_weight=weights.supervised_weight,
            unsupervised_weight=weights.unsupervised_weight,
            strong_view=learning.strong_view(self.settings),
            weak_view=learning.weak_view(self.settings),
        )
        return streamed_task(self.data, round, objective)
