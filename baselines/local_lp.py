"""FedAvg+perclientLP: pseudo labels by label propagation within each client (XCLP, section 4.2)."""

from __future__ import annotations

import numpy as np

from fedul_flwr import learning
from fedul_flwr.config.method_settings import (
    LabelSettings,
    PropagationSettings,
    PseudoLabelSettings,
    WeakViewSettings,
)
from fedul_flwr.config.methods import Method
from fedul_flwr.data.class_scores import labels_from_scores
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.federated.client_policy import LabeledClientStages
from fedul_flwr.federated.client_training import labeling_views, staged_task
from fedul_flwr.federated.reports import CONFIDENT
from fedul_flwr.federated.strategy import Strategy
from fedul_flwr.learning.task import Round, Task
from fedul_flwr.propagation.client import GraphPoints


class LocalLP(Strategy):
    """The base strategy on clients that have labels to propagate."""

    policy_class = LabeledClientStages


class LocalLPClient(Client[PartlyLabeledData]):
    """Propagates labels on the graph of its own points, with features of the round's model."""

    reports = CONFIDENT

    def task(self, round: Round) -> Task:
        """Training on given labels, and on those propagated from them."""
        views = labeling_views(self.settings, self.node.partition_id, round.number)
        return staged_task(self.data, self.state, round, lambda: self.pseudo_labels(views))

    def pseudo_labels(self, views: np.random.Generator | None = None) -> learning.PseudoLabels:
        """Labels of its unlabeled points, propagated from its own labeled ones.

        The features are those of ``views`` by ``augment``, or of the points as they are.
        """
        data, settings = self.data, self.settings
        graph = GraphPoints.of_training(data.examples, data.num_classes)
        features = learning.extract_features(
            self.model, data.examples.inputs, graph.rows, learning.local_plan(settings), views
        )
        options = settings[PropagationSettings]
        propagated = labels_from_scores(graph.own_scores(features, options))
        # The largest is that of all points in the graph, labeled ones included.
        divisor = float(propagated.confidence.max()) if options.is_scaled else 1.0
        return learning.PseudoLabels(*graph.of_unlabeled(propagated), divisor)


METHOD = Method(
    name="local-lp",
    line="Labels spread within each client only.",
    needs="labels for some points of clients, and their other points",
    paper="rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=LocalLP,
    client=LocalLPClient,
    settings=(LabelSettings, PseudoLabelSettings, PropagationSettings, WeakViewSettings),
    data="partly-labeled",
)
