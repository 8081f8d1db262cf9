"""FedAvg+network: pseudo labels are what the round's model predicts (XCLP, section 4.2)."""

from __future__ import annotations

from client_apps.partly_labeled import PartlyLabeledClient, nothing
from fedul_flwr.learning.local import predict_logits
from fedul_flwr.learning.local_plan import local_plan
from fedul_flwr.learning.pseudo_labels import network_labels
from fedul_flwr.propagation.labels import Propagated
from strategies.partly_labeled import PartlyLabeled


class NetworkLabels(PartlyLabeled):
    """The base strategy alone; clients label their points."""


class NetworkLabelsClient(PartlyLabeledClient):
    """Believes the global model as far as it is sure: 1 - entropy / log K."""

    def pseudo_labels(self) -> Propagated:
        """What the model that the round starts from says of the unlabeled points."""
        points = self.data.points[self.unlabeled]
        if len(points) == 0:  # all have labels, or there are none
            return nothing(0)
        plan = local_plan(self.settings)
        return network_labels(predict_logits(self.model, self.data.images, points, plan))
