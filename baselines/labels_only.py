"""Training on labeled points only: the baseline for every method that uses unlabeled points."""

from __future__ import annotations

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.config.method_settings import LabelsOnlySettings


class LabelsOnly(kit.Strategy):
    """The base strategy on clients that have labels."""

    policy_class = kit.LabeledClientStages


class LabelsOnlyClient(kit.SemiSupervisedClient):
    """Trains without pseudo labels in the second stage, too."""

    def task(self, round: kit.Round) -> kit.Task:
        """Training on given labels."""
        none = learning.PseudoLabels.none(len(self.data.unlabeled))
        points = self.staged_points(round, lambda: none)
        return learning.weighted_task(
            points,
            self.settings[kit.StageSettings],
            round.plan,
            self.settings[LabelsOnlySettings],
        )


METHOD = kit.Method(
    name="labels-only",
    line="Trains on the given labels of clients alone.",
    needs="labels for some points of clients",
    paper="rival in Scott, Yeo and Lampert, TMLR 2023, arXiv:2210.06434",
    strategy=LabelsOnly,
    client=LabelsOnlyClient,
    settings=(kit.LabelSettings, kit.StageSettings, LabelsOnlySettings),
    data="partly-labeled",
)
