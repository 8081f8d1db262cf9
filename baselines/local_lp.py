"""FedAvg+perclientLP: pseudo labels by label propagation within each client (XCLP, section 4.2)."""

from __future__ import annotations

import numpy as np

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.config.method_settings import PropagationSettings
from fedul_flwr.data.class_labels import labels_from_scores
from fedul_flwr.propagation.client import GraphPoints


class LocalLP(kit.Strategy):
    """The base strategy on clients that have labels to propagate."""

    policy_class = kit.LabeledClientStages


class LocalLPClient(kit.SemiSupervisedClient):
    """Propagates labels on the graph of its own points, with features of the round's model."""

    reports = kit.CONFIDENT

    def task(self, round: kit.Round) -> kit.Task:
        """Training on given labels, and on those propagated from them."""
        views = self.labeling_views(round.number)
        return self.staged_task(round, lambda: self.pseudo_labels(views))

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


METHOD = kit.Method(
    name="local-lp",
    line="Labels spread within each client only.",
    needs="labels for some points of clients, and their other points",
    paper="rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=LocalLP,
    client=LocalLPClient,
    settings=(
        kit.LabelSettings,
        kit.PseudoLabelSettings,
        PropagationSettings,
        kit.WeakViewSettings,
    ),
    data="partly-labeled",
)
