"""FedAvg+network: pseudo labels from predictions of the round's model (XCLP, section 4.2)."""

from __future__ import annotations

import numpy as np
from torch import nn

from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_training import labeling_views, staged_task
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.learning.local import Round, Task, predict_logits
from fedul_flwr.learning.plan import local_plan
from fedul_flwr.learning.pseudo_label_task import PseudoLabels
from fedul_flwr.learning.pseudo_labels import network_labels


class PseudoLabelClient(Client[PartlyLabeledData]):
    """Trains on the global model's predictions with confidence 1 - entropy / log K."""

    reports = CONFIDENT

    def task(self, round: Round) -> Task:
        """Training on given labels and on those by the model at the start of the round."""
        views = labeling_views(self.settings, self.node.partition_id, round.number)
        return staged_task(
            self.data, self.state, round, lambda: label_by_network(self.model, self.data, views)
        )


def label_by_network(
    model: nn.Module, data: PartlyLabeledData, views: np.random.Generator | None
) -> PseudoLabels:
    """Predictions of ``model`` for a client's unlabeled training points, in ``views`` if any."""
    points = data.examples.points[data.unlabeled]
    if len(points) == 0:  # all have labels, or there are none
        return PseudoLabels.none(0)
    plan = local_plan(data.settings)
    logits = predict_logits(model, data.examples.inputs, points, plan, views)
    return PseudoLabels(*network_labels(logits))
