"""Training on labeled points only: the baseline for every method that uses unlabeled points."""

from __future__ import annotations

from client_apps.partly_labeled import PartlyLabeledClient
from fedul_flwr.federated.client_policy import LabeledClientStages
from fedul_flwr.federated.strategy import MethodStrategy


class LabelsOnly(MethodStrategy):
    """The base strategy on clients that have labels."""

    policy_class = LabeledClientStages
    policy: LabeledClientStages


class LabelsOnlyClient(PartlyLabeledClient):
    """Trains without pseudo labels in the second stage, too."""
