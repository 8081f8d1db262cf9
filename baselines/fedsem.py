"""FedSem+: pseudo labels from the first stage's model (Albaseer et al. 2020, as in XCLP)."""

from __future__ import annotations

from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from baselines.network_labels import NetworkLabelsClient
from client_apps.partly_labeled import nothing
from fedul_flwr.data.content import Content
from fedul_flwr.data.types import Propagated
from fedul_flwr.federated.client_policy import LabelStages
from fedul_flwr.federated.messages import to_arrays
from fedul_flwr.federated.registry import ClientRef
from fedul_flwr.federated.strategy import MethodStrategy
from fedul_flwr.learning.local import load_arrays

LABEL = "fedsem-label"
"""Phase in which all clients label their points, and name under which they store the labels."""


class FedSem(MethodStrategy):
    """All clients label their points before the first round of the second stage."""

    policy_class = LabelStages
    policy: LabelStages

    can_train_alone = False

    def before_train(self, round_number: int, arrays: ArrayRecord, grid: Grid) -> list[ClientRef]:
        """The sample; a client that failed to label its points trains on its given labels only."""
        first_stage = self.policy.on_labels_only
        if not first_stage(round_number) and first_stage(round_number - 1):
            model = Content(to_arrays(arrays), {"after-round": round_number - 1})
            self.registry.query(grid, LABEL, dict.fromkeys(self.registry.clients, model))
        return super().before_train(round_number, arrays, grid)


class FedSemClient(NetworkLabelsClient):
    """Labels its points once, and trains on these labels in all later rounds."""

    def step(self, name: str, content: Content) -> Content:
        """Label all unlabeled points with the received model."""
        if name != LABEL:
            return super().step(name, content)
        load_arrays(self.model, content.arrays)
        labels, confidence = super().pseudo_labels()
        after = int(content.values["after-round"])  # type: ignore[arg-type]
        self.state.keep(LABEL, after, {"labels": labels, "confidence": confidence})
        return Content()

    def pseudo_labels(self) -> Propagated:
        """The stored labels."""
        kept = self.state.recall(LABEL, self.server_round)
        if not kept:
            return nothing(len(self.unlabeled))
        return Propagated(kept["labels"], kept["confidence"])
