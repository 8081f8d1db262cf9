"""FedAvg+network: pseudo labels from predictions of the round's model (XCLP, section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit

if TYPE_CHECKING:
    from torch import nn


class PseudoLabelClient(kit.SemiSupervisedClient):
    """Trains on the global model's predictions with confidence 1 - entropy / log K."""

    reports = kit.CONFIDENT

    def task(self, round: kit.Round) -> kit.Task:
        """Training on given labels and on those by the model at the start of the round."""
        views = self.labeling_views(round.number)
        return self.staged_task(round, lambda: label_by_network(self.model, self.data, views))


def label_by_network(
    model: nn.Module, data: kit.PartlyLabeledData, views: np.random.Generator | None
) -> learning.PseudoLabels:
    """Predictions of ``model`` for a client's unlabeled training points, in ``views`` if any."""
    points = data.examples.points[data.unlabeled]
    if len(points) == 0:  # all have labels, or there are none
        return learning.PseudoLabels.none(0)
    plan = learning.local_plan(data.settings)
    logits = learning.predict_logits(model, data.examples.inputs, points, plan, views)
    released = data.settings[kit.PseudoLabelSettings].recipe == "release"
    by = learning.released_network_labels if released else learning.network_labels
    return learning.PseudoLabels(*by(logits))


METHOD = kit.Method(
    name="pseudo-label",
    line="The model's own predictions are labels, made anew in every round.",
    needs="labels for some points of clients, and their other points",
    paper="rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    client=PseudoLabelClient,
    settings=(kit.LabelSettings, kit.PseudoLabelSettings, kit.WeakViewSettings),
    data="partly-labeled",
    needs_labels=False,
)
