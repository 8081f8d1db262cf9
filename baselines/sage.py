"""SAGE on clients: the model that they received corrects their own pseudo labels (Liu et al. 2025).

It is FixMatch with other targets, for labels at some points of every client.
"""

from __future__ import annotations

import copy
from typing import ClassVar

from fedul_flwr import learning
from fedul_flwr.config.base import Settings
from fedul_flwr.config.method_settings import Confidence, ConsistencySettings
from fedul_flwr.config.methods import MATCHING, Method
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_training import streamed_task
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.learning.task import Round, Task


class SAGESettings(Settings):
    """SAGE: FixMatch whose pseudo labels the received model corrects (Liu et al. 2025)."""

    table: ClassVar[str] = "sage"
    threshold: Confidence = 0.95
    """Smallest top probability, of the client's own model or of the one that it received, with
    which a point is trained on its pseudo label."""


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


METHOD = Method(
    name="sage",
    line="FixMatch, and the model that a client received corrects its pseudo labels.",
    needs="labels for some points of clients or of the server, and clients' other points",
    paper="Liu et al., CVPR 2025, arXiv:2503.13227",
    client=SAGEClient,
    settings=(*MATCHING, SAGESettings),
    data="partly-labeled",
    needs_labels=False,
)
