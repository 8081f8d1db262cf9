"""UDA on clients: consistency between an image and its strong view (Xie et al. 2020).

It is FedAvg-UDA or FedProx-UDA of FedMatch's paper, depending on the base strategy.
"""

from __future__ import annotations

from fedul_flwr import learning
from fedul_flwr import method as kit


class UDAClient(kit.SemiSupervisedClient):
    """Trains on labels of points it is not confident about yet, and on consistency of views."""

    reports = kit.CONFIDENT

    def task(self, round: kit.Round) -> kit.Task:
        """Annealed cross-entropy plus the divergence of the strong view's prediction."""
        learned = learning.signal_threshold(
            round.number, self.settings.num_rounds, self.data.num_classes
        )
        objective = learning.MatchingObjective(
            supervised=learning.annealed_cross_entropy(learned),
            consistency=learning.uda_loss,
            threshold=0.0,
            **self.weights_and_views(),
        )
        return self.streamed_task(round, objective)


METHOD = kit.Method(
    name="uda",
    line="The same prediction for a point and its strong view, by divergence of posteriors.",
    needs="labels for some points of clients or of the server, and clients' other points",
    paper="Xie et al. 2020, rival in Jeong et al., ICLR 2021, arXiv:2006.12097",
    client=UDAClient,
    settings=kit.MATCHING,
    data="partly-labeled",
    needs_labels=False,
)
