"""FedAvg+network: pseudo labels from predictions of the round's model (XCLP, section 4.2)."""

from __future__ import annotations

from client_apps.partly_labeled import PartlyLabeledClient, nothing
from fedul_flwr.data.types import Propagated
from fedul_flwr.federated.client_policy import LabelStages
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.local import predict_logits
from fedul_flwr.learning.local_plan import local_plan
from fedul_flwr.learning.pseudo_labels import network_labels


class NetworkLabels(MethodStrategy):
    """The base strategy, unchanged; clients label their points."""

    policy_class = LabelStages
    policy: LabelStages


class NetworkLabelsClient(PartlyLabeledClient):
    """Trains on the global model's predictions with confidence 1 - entropy / log K."""

    def pseudo_labels(self) -> Propagated:
        """Predictions for the unlabeled points by the model at the start of the round."""
        points = self.data.points[self.unlabeled]
        if len(points) == 0:  # all have labels, or there are none
            return nothing(0)
        plan = local_plan(self.settings)
        return network_labels(predict_logits(self.model, self.data.images, points, plan))
