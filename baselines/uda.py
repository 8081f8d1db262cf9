"""UDA on clients: consistency between an image and its strong view (Xie et al. 2020).

It is FedAvg-UDA or FedProx-UDA of FedMatch's paper, depending on the base strategy.
"""

from __future__ import annotations

from functools import partial

from client_apps.matching import MatchingClient
from fedul_flwr.config.matching import ConsistencySettings, UDASettings
from fedul_flwr.learning.consistency import uda_loss
from fedul_flwr.learning.local import Objective
from fedul_flwr.learning.matching import MatchingObjective, annealed_cross_entropy
from fedul_flwr.learning.schedules import signal_threshold


class UDAClient(MatchingClient):
    """Trains on labels of points it is not confident about yet, and on consistency of views."""

    def objective(self, server_round: int) -> Objective:
        """Annealed cross-entropy plus the divergence of the strong view's prediction."""
        options = self.settings[UDASettings]
        weights = self.settings[ConsistencySettings]
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
