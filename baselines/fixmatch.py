"""FixMatch on clients: trains strong views on confident predictions (Sohn et al. 2020).

It is FedAvg-FixMatch or FedProx-FixMatch of FedMatch's paper, depending on the base strategy. As in
that paper, the weak view is by default the unchanged image.
"""

from __future__ import annotations

from torch.nn import functional

from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.config.method_settings import ConsistencySettings, FixMatchSettings
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_training import arrived, labeling_views, streamed_task
from fedul_flwr.learning.consistency import fixmatch_loss
from fedul_flwr.learning.local import LocalTask, Round
from fedul_flwr.learning.matching import MatchingObjective, threshold_for, top_probabilities
from fedul_flwr.learning.views import strong_view, weak_view


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
            threshold=self._threshold(round),
            strong_view=strong_view(self.settings),
            weak_view=weak_view(self.settings),
        )
        return streamed_task(self.data, round, objective)

    def _threshold(self, round: Round) -> float:
        """The smallest top probability of a point that is trained on, of the received model."""
        threshold, data = self.settings[FixMatchSettings].threshold, self.data
        if threshold != ADAPTIVE:
            return threshold
        points = data.examples.points[arrived(data, data.unlabeled, round)]
        views = labeling_views(self.settings, self.node.partition_id, round.number)
        top = top_probabilities(self.model, data.examples.inputs, points, round.plan, views)
        return threshold_for(threshold, top)
