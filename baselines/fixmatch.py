"""FixMatch on clients: trains strong views on confident predictions (Sohn et al. 2020).

It is FedAvg-FixMatch or FedProx-FixMatch of FedMatch's paper, depending on the base strategy. As in
that paper, the weak view is the unchanged image.
"""

from __future__ import annotations

from torch.nn import functional

from client_apps.matching import MatchingClient
from fedul_flwr.config.matching import ConsistencySettings, FixMatchSettings
from fedul_flwr.learning.consistency import fixmatch_loss
from fedul_flwr.learning.local import Objective
from fedul_flwr.learning.matching import MatchingObjective


class FixMatchClient(MatchingClient):
    """Trains on given labels, and trains strong views on confident pseudo labels."""

    def objective(self, server_round: int) -> Objective:
        """Cross-entropy of both kinds of labels."""
        del server_round
        weights = self.settings[ConsistencySettings]
        return MatchingObjective(
            supervised=functional.cross_entropy,
            supervised_weight=weights.supervised_weight,
            consistency=fixmatch_loss,
            unsupervised_weight=weights.unsupervised_weight,
            threshold=self.settings[FixMatchSettings].threshold,
            strong_view=self.strong_view,
        )
