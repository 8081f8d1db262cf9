"""Supervised learning with the labels of all points: the upper bound in FedMatch's comparison.

It is FedAvg-SL or FedProx-SL of the paper, depending on the base strategy.
"""

from __future__ import annotations

from fedul_flwr import learning
from fedul_flwr import method as kit


class AllLabelsClient(kit.SemiSupervisedClient):
    """Trains on its labeled points, which arrive in steps like other methods' unlabeled ones."""

    def task(self, round: kit.Round) -> kit.Task:
        """The labeled points of this round's streaming step."""
        return labeled_task(self.data, self.data.arrived(self.data.labeled, round.number), round)


def labeled_task(data: kit.PartlyLabeledData, positions: kit.Ints, round: kit.Round) -> kit.Task:
    """λ_s · cross-entropy of the labeled points at ``positions``, in augmented batches."""
    examples = data.examples
    points, labels = examples.points[positions], examples.labels[positions]
    batches = learning.point_batches(examples.inputs, points, labels, round.plan)
    loss = learning.scaled_cross_entropy(
        data.settings[kit.SupervisedPartSettings].supervised_weight
    )
    return kit.Task(batches, kit.on_logits(loss))


METHOD = kit.Method(
    name="all-labels",
    line="Trains with FedMatch's batches on labels of all points: the ceiling.",
    needs="labels for all points of clients",
    paper="ceiling in Jeong et al., ICLR 2021, arXiv:2006.12097",
    client=AllLabelsClient,
    settings=(kit.ScenarioSettings, kit.SupervisedPartSettings, kit.ServerTrainingSettings),
    data="fully-labeled",
)
