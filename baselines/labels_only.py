"""Training on labeled points only: the baseline for every method that uses unlabeled points."""

from __future__ import annotations

from client_apps.partly_labeled import PartlyLabeledClient
from strategies.partly_labeled import PartlyLabeled


class LabelsOnly(PartlyLabeled):
    """The base strategy on clients that have labels."""

    uses_unlabeled_clients = False


class LabelsOnlyClient(PartlyLabeledClient):
    """Trains without pseudo labels in the second stage, too."""
