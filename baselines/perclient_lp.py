"""FedAvg+perclientLP: pseudo labels by label propagation within each client (XCLP, section 4.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from client_apps.propagating import PropagatingClient
from fedul_flwr.federated.client_policy import LabeledClientStages
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.propagation.labels import Propagated, labels_from_scores


class PerClientLP(MethodStrategy):
    """The base strategy on clients that have labels; without any there is nothing to propagate."""

    policy_class = LabeledClientStages
    policy: LabeledClientStages


class PerClientLPClient(PropagatingClient):
    """Builds the graph of its own points, on features of the round's model."""

    def pseudo_labels(self) -> Propagated:
        """What its own labels say of its unlabeled points."""
        scores = self.own_scores(self.features())
        self.largest = float(labels_from_scores(scores).confidence.max())
        return self.of_unlabeled(labels_from_scores(scores, self.given))

    def largest_confidence(self, confidence: NDArray[np.float64]) -> float:
        """That of all points in the graph, labeled ones by what was propagated to them."""
        del confidence
        return self.largest
