"""Training on the labeled points alone: what every use of unlabeled points must beat."""

from __future__ import annotations

from client_apps.partly_labeled import PartlyLabeledClient
from strategies.partly_labeled import PartlyLabeled


class LabelsOnly(PartlyLabeled):
    """The base strategy on clients that have labels."""

    uses_unlabeled_clients = False


class LabelsOnlyClient(PartlyLabeledClient):
    """Has no pseudo labels in the second stage either."""
