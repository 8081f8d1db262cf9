"""UDA on clients: predictions of an image and of its strong view agree (Xie et al. 2020).

FedAvg-UDA and FedProx-UDA of FedMatch's paper, by the base strategy.
"""

from __future__ import annotations

from functools import partial

from client_apps.matching import MatchingClient
from fedul_flwr.config.matching import ConsistencySettings, UDASettings
from fedul_flwr.learning.consistency import uda_loss
from fedul_flwr.learning.local import Objective
from fedul_flwr.learning.matching import MatchingObjective, annealed_cross_entropy
from fedul_flwr.learning.schedules import signal_threshold
from strategies.matching import Matching


class UDA(Matching):
    """The base strategy; clients learn from agreement."""


class UDAClient(MatchingClient):
    """Learns labels that it is not sure of yet, and that its strong views are what it sees."""

    def objective(self, server_round: int) -> Objective:
        """Annealed cross-entropy, and the divergence of the strong view's prediction."""
        options = self.settings.section("uda", UDASettings)
        weights = self.settings.section("ssl", ConsistencySettings)
        learned = signal_threshold(
            options.signal_annealing, server_round, self.settings.num_rounds, self.num_classes
        )
        return MatchingObjective(
            supervised=annealed_cross_entropy(learned),
            supervised_weight=weights.supervised_weight,
            consistency=partial(uda_loss, temperature=options.temperature),
            unsupervised_weight=weights.unsupervised_weight,
            threshold=options.threshold,
            strong_view=self.strong_view,
        )
