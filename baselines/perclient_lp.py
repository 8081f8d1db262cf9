"""FedAvg+perclientLP: pseudo labels by label propagation within each client (XCLP, section 4.2)."""

from __future__ import annotations

from client_apps.propagating import PropagatingClient
from fedul_flwr.propagation.labels import Propagated
from strategies.partly_labeled import PartlyLabeled


class PerClientLP(PartlyLabeled):
    """The base strategy on clients that have labels; without any there is nothing to propagate."""

    uses_unlabeled_clients = False


class PerClientLPClient(PropagatingClient):
    """Builds the graph of its own points, on features of the round's model."""

    def pseudo_labels(self) -> Propagated:
        """What its own labels say of its unlabeled points."""
        return self.of_unlabeled(self.own_propagation(self.features()))
