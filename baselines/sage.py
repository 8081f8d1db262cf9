"""SAGE on clients: the model that they received corrects their own pseudo labels (Liu et al. 2025).

It is FixMatch with other targets, for labels at some points of every client.
"""

from __future__ import annotations

from typing import ClassVar

from fedul_flwr import learning
from fedul_flwr import method as kit


class SAGESettings(kit.Settings):
    """SAGE: FixMatch whose pseudo labels the received model corrects (Liu et al. 2025)."""

    table: ClassVar[str] = "sage"
    threshold: kit.Confidence = 0.95
    """Smallest top probability, of the client's own model or of the one that it received, with
    which a point is trained on its pseudo label."""


class SAGEClient(kit.SemiSupervisedClient):
    """Trains on given labels, and trains strong views on two models' pseudo labels."""

    reports = kit.CONFIDENT

    def task(self, round: kit.Round) -> kit.Task:
        """Cross-entropy of given labels, and the divergence from the corrected ones."""
        objective = learning.SageObjective(
            received=self.received_model(round),
            threshold=self.settings[SAGESettings].threshold,
            **self.weights_and_views(),
        )
        return self.streamed_task(round, objective)


METHOD = kit.Method(
    name="sage",
    line="FixMatch, and the model that a client received corrects its pseudo labels.",
    needs="labels for some points of clients or of the server, and clients' other points",
    paper="Liu et al., CVPR 2025, arXiv:2503.13227",
    client=SAGEClient,
    settings=(*kit.MATCHING, SAGESettings),
    data="partly-labeled",
    needs_labels=False,
)
