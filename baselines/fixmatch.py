"""FixMatch on clients: trains strong views on confident predictions (Sohn et al. 2020).

It is FedAvg-FixMatch or FedProx-FixMatch of FedMatch's paper, depending on the base strategy. As in
that paper, the weak view is by default the unchanged image.
"""

from __future__ import annotations

from typing import ClassVar

from fedul_flwr import learning
from fedul_flwr.config.base import ADAPTIVE, Settings
from fedul_flwr.config.method_settings import AdaptiveConfidence, ConsistencySettings
from fedul_flwr.config.methods import MATCHING, Method
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_training import smallest_top, streamed_task
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.learning.task import Round, Task


class FixMatchSettings(Settings):
    """FixMatch with the unchanged image as weak view (Sohn et al. 2020, as in FedMatch)."""

    table: ClassVar[str] = "fixmatch"
    threshold: AdaptiveConfidence = ADAPTIVE
    """Smallest top probability (τ) with which a point is trained on its pseudo label. `adaptive` is
    the mean top probability of a client's unlabeled points by the model that it received, so some
    point always reaches it; 0.85 in FedMatch's paper."""


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


METHOD = Method(
    name="fixmatch",
    line="A sure prediction for a point is the label of its strong view.",
    needs="labels for some points of clients or of the server, and clients' other points",
    paper="Sohn et al. 2020, rival in Jeong et al., ICLR 2021, arXiv:2006.12097",
    client=FixMatchClient,
    settings=(*MATCHING, FixMatchSettings),
    data="partly-labeled",
    needs_labels=False,
)
