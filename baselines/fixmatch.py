"""FixMatch on clients: what the model is sure of is the strong view's label (Sohn et al. 2020).

FedAvg-FixMatch and FedProx-FixMatch of FedMatch's paper, by the base strategy. As there, the weak
view is the image itself.
"""

from __future__ import annotations

from torch.nn import functional

from client_apps.matching import MatchingClient
from fedul_flwr.config.matching import ConsistencySettings, FixMatchSettings
from fedul_flwr.learning.consistency import fixmatch_loss
from fedul_flwr.learning.local import Objective
from fedul_flwr.learning.matching import MatchingObjective
from strategies.matching import Matching


class FixMatch(Matching):
    """The base strategy; clients learn from labels of their own making."""


class FixMatchClient(MatchingClient):
    """Learns given labels, and those that it is sure of from the strong views."""

    def objective(self, server_round: int) -> Objective:
        """Cross-entropy of both kinds of labels."""
        del server_round
        weights = self.settings.section("ssl", ConsistencySettings)
        return MatchingObjective(
            supervised=functional.cross_entropy,
            supervised_weight=weights.supervised_weight,
            consistency=fixmatch_loss,
            unsupervised_weight=weights.unsupervised_weight,
            threshold=self.settings.section("fixmatch", FixMatchSettings).threshold,
            strong_view=self.strong_view,
        )
