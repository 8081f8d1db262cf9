"""FedSiam: agreement with a moving average of the student (Long et al. 2020, as in XCLP)."""

from __future__ import annotations

import numpy as np
import torch

from client_apps.local import TrainingData
from client_apps.partly_labeled import PartlyLabeledClient
from fedul_flwr.config import RunConfig
from fedul_flwr.errors import UserError
from fedul_flwr.learning.batches import Batches, paired_batches
from fedul_flwr.learning.local import Objective
from fedul_flwr.learning.mean_teacher import MeanTeacherObjective
from fedul_flwr.learning.plan import LocalPlan
from fedul_flwr.learning.schedules import ramp_up
from fedul_flwr.settings.sections import ScaffoldSettings
from fedul_flwr.settings.semi import FedSiamSettings
from strategies.partly_labeled import PartlyLabeled


class FedSiam(PartlyLabeled):
    """The base strategy on students; teachers begin anew from the global model in every round."""

    @classmethod
    def check(cls, settings: RunConfig) -> None:
        """Refuse what passes over the data before it trains: the teacher would count its steps."""
        super().check(settings)
        scaffold = settings.section("scaffold", ScaffoldSettings)
        if settings.base == "scaffold" and scaffold.option == "I":
            raise UserError("Setting scaffold.option = 'I': method 'fedsiam' goes with 'II' only.")


class FedSiamClient(PartlyLabeledClient):
    """From the second stage on learns from all points, without a label for most."""

    @property
    def siam(self) -> FedSiamSettings:
        """FedSiam's own settings."""
        return self.settings.section("fedsiam", FedSiamSettings)

    def training_data(self) -> TrainingData:
        """Labeled points, then unlabeled ones, which have class -1."""
        if self.on_labels_only:
            return super().training_data()
        positions = np.concatenate([self.labeled, self.unlabeled])
        self.classes = self.data.labels[positions]
        points = self.data.points[positions]
        return TrainingData(self.data.images, points, np.arange(len(points), dtype=np.int64))

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """Two views of labeled points and of as many others."""
        if self.on_labels_only:
            return super().batches(data, plan)
        return paired_batches(data.images, data.points, len(self.labeled), plan, views=2)

    def objective(self, server_round: int) -> Objective:
        """Labels and agreement, whose weight grows over the first rounds of the second stage."""
        if self.on_labels_only:
            return super().objective(server_round)
        options = self.siam
        since = server_round - self.stages.labels_only_rounds
        return MeanTeacherObjective(
            torch.from_numpy(self.classes),
            weight=options.consistency_weight * ramp_up(since, options.ramp_up_rounds),
            decay=options.decay,
            logit_cost=options.logit_cost,
        )
