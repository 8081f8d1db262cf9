"""Clients that learn from few labels and from their other points: what such methods share."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedul_flwr import learning
from fedul_flwr.config.base import ADAPTIVE
from fedul_flwr.config.method_settings import (
    ConsistencySettings,
    PseudoLabelSettings,
    StageSettings,
    WeakViewSettings,
)
from fedul_flwr.data.run_files.label_files import PSEUDO_LABELS
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import CONFIDENT_SHARE
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import PartlyLabeledData
from fedul_flwr.learning.task import Task

if TYPE_CHECKING:
    from torch import nn

    from fedul_flwr.learning.task import Round

Label = Callable[[], "learning.PseudoLabels"]


class SemiSupervisedClient(Client[PartlyLabeledData]):
    """A client with points and labels for some of them."""

    def labeling_views(self, number: int) -> np.random.Generator | None:
        """Draws the views in which it judges its points in a round; None: points as they are.

        A method without setting ``views.weak`` always judges views.
        """
        weak = self.settings.find(WeakViewSettings)
        staged = self.settings.find(PseudoLabelSettings)
        is_release = staged is not None and staged.recipe == "release"
        if weak is not None and not (is_release or weak.weak):
            return None
        return stream(self.settings.seed, "labeling-views", number, self.node.partition_id)

    def staged_points(self, round: Round, label: Label) -> learning.WeightedPoints:
        """The points to train on in a round; a simulation's client writes their pseudo labels.

        Parameters
        ----------
        label : labels its unlabeled training points in a round of the second stage.
        """
        data, stages = self.data, self.settings[StageSettings]
        first_stage = round.number <= stages.labels_only_rounds
        labels = learning.PseudoLabels.none(len(data.unlabeled)) if first_stage else label()
        examples, unlabeled = data.examples, data.examples.points[data.unlabeled]
        written = {"points": unlabeled, "labels": labels.labels, "confidence": labels.confidence}
        self.state.publish(PSEUDO_LABELS, round.number, written)
        return learning.weighted_points(
            examples.inputs,
            examples.points[data.labeled],
            examples.labels[data.labeled],
            unlabeled,
            labels,
            stages,
        )

    def staged_task(self, round: Round, label: Label) -> Task:
        """The task of a method with pseudo labels: its points are :meth:`staged_points`."""
        points, stages = self.staged_points(round, label), self.settings[StageSettings]
        task = learning.weighted_task(points, stages, round.plan)
        if round.number <= stages.labels_only_rounds:
            return task
        used = len(points.points) - points.num_labeled
        share = used / max(len(self.data.unlabeled), 1)
        return replace(task, reports={CONFIDENT_SHARE: share})

    def smallest_top(self, threshold: float, round: Round) -> float:
        """The smallest top probability of a point that is trained on, of the model received."""
        if threshold != ADAPTIVE:
            return threshold
        data = self.data
        points = data.examples.points[data.arrived(data.unlabeled, round.number)]
        views = self.labeling_views(round.number)
        inputs = data.examples.inputs
        top = learning.top_probabilities(self.model, inputs, points, round.plan, views)
        return learning.threshold_for(threshold, top)

    def weights_and_views(self) -> dict[str, Any]:
        """Weights and views of labeled and unlabeled points in one loss, as its classes take
        them."""
        weights = self.settings[ConsistencySettings]
        return {
            "supervised_weight": weights.supervised_weight,
            "unsupervised_weight": weights.unsupervised_weight,
            "strong_view": learning.strong_view(self.settings),
            "weak_view": learning.weak_view(self.settings),
        }

    def received_model(self, round: Round) -> nn.Module:
        """A copy of the model that it received, in evaluation mode, where it trains."""
        model, plan = copy.deepcopy(self.model), round.plan
        return learning.move_model(model, plan.device, plan.precision).eval()

    def streamed_task(self, round: Round, objective: Any) -> Task:
        """One loss of labeled and unlabeled points, on labeled and unlabeled batches.

        Parameters
        ----------
        objective : one of the losses of :mod:`fedul_flwr.learning` that tell how sure they are.
        """
        batches = self.data.labeled_and_unlabeled(round)
        return Task(batches, objective, objective.confidence.reports)
