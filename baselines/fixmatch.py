"""FixMatch on clients: trains strong views on confident predictions (Sohn et al. 2020).

It is FedAvg-FixMatch or FedProx-FixMatch of FedMatch's paper, depending on the base strategy. As in
that paper, the weak view is by default the unchanged image.
"""

from __future__ import annotations

from typing import ClassVar

from fedul_flwr import learning
from fedul_flwr import method as kit


class FixMatchSettings(kit.Settings):
    """FixMatch with the unchanged image as weak view (Sohn et al. 2020, as in FedMatch)."""

    table: ClassVar[str] = "fixmatch"
    threshold: kit.AdaptiveConfidence = kit.ADAPTIVE
    """Smallest top probability (τ) with which a point is trained on its pseudo label. `adaptive` is
    the mean top probability of a client's unlabeled points by the model that it received, so some
    point always reaches it; 0.85 in FedMatch's paper."""


class FixMatchClient(kit.SemiSupervisedClient):
    """Trains on given labels, and trains strong views on confident pseudo labels."""

    reports = kit.CONFIDENT

    def task(self, round: kit.Round) -> kit.Task:
        """Cross-entropy of both kinds of labels."""
        threshold = self.settings[FixMatchSettings].threshold
        objective = learning.MatchingObjective(
            supervised=learning.scaled_cross_entropy(1.0),
            consistency=learning.fixmatch_loss,
            threshold=self.smallest_top(threshold, round),
            **self.weights_and_views(),
        )
        return self.streamed_task(round, objective)


METHOD = kit.Method(
    name="fixmatch",
    line="A sure prediction for a point is the label of its strong view.",
    needs="labels for some points of clients or of the server, and clients' other points",
    paper="Sohn et al. 2020, rival in Jeong et al., ICLR 2021, arXiv:2006.12097",
    client=FixMatchClient,
    settings=(*kit.MATCHING, FixMatchSettings),
    data="partly-labeled",
    needs_labels=False,
)
