"""FedAvg+network: pseudo labels from predictions of the round's model (XCLP, section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedul_flwr import learning
from fedul_flwr.config.method_settings import LabelSettings, PseudoLabelSettings, WeakViewSettings
from fedul_flwr.config.methods import Method
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_training import labeling_views, staged_task
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.learning.task import Round, Task

if TYPE_CHECKING:
    from torch import nn


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
) -> learning.PseudoLabels:
    """Predictions of ``model`` for a client's unlabeled training points, in ``views`` if any."""
    points = data.examples.points[data.unlabeled]
    if len(points) == 0:  # all have labels, or there are none
        return learning.PseudoLabels.none(0)
    plan = learning.local_plan(data.settings)
    logits = learning.predict_logits(model, data.examples.inputs, points, plan, views)
    return learning.PseudoLabels(*learning.network_labels(logits))


METHOD = Method(
    name="pseudo-label",
    line="The model's own predictions are labels, made anew in every round.",
    needs="labels for some points of clients, and their other points",
    paper="rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    client=PseudoLabelClient,
    settings=(LabelSettings, PseudoLabelSettings, WeakViewSettings),
    data="partly-labeled",
    needs_labels=False,
)
