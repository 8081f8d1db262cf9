"""CBAFed: thresholds by class shares, for owners with all or no labels (Li, Li & Wang 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.baselines.class_shares import (
    CLASS_COUNTS,
    CLASS_SHARES,
    ClassShareStrategy,
    class_counts,
)
from fedul_flwr.federated.combine import mix
from fedul_flwr.learning.task import Report


class CBAFedSettings(kit.Settings):
    """CBAFed: pseudo labels above a threshold of their class (Li, Li & Wang 2023)."""

    table: ClassVar[str] = "cbafed"
    threshold: kit.Confidence = 0.84
    """Smallest top probability of a point that is trained on, more for frequent classes: the
    class's share of labels and pseudo labels is added, less the deviation of all shares; at most
    0.95."""


PAST = "past-model"
"""Name of the model of five rounds ago in the state of a run."""
HIGHEST, RARE, EVERY, LARGEST_GRADIENT = 0.95, 0.03, 5, 5.0
"""Highest threshold; share below which a class is rare; rounds between means with the past model;
norm to which the gradient of a step is cut (authors' code)."""


def chosen_labels(posteriors: kit.Floats, shares: kit.Floats, threshold: float) -> kit.Ints:
    """``(n,)``, pseudo labels of points, -1 for none.

    Shares are taken times K/10. A point whose top probability is above its class's threshold has
    this class; another one has its second class, if that one's share is below 3 %.

    Parameters
    ----------
    posteriors, shares : ``(n, K)`` and ``(K,)``.
    """
    scaled = shares * len(shares) / 10
    thresholds = np.minimum(scaled + threshold - scaled.std(ddof=1), HIGHEST)
    first, second = np.argsort(-posteriors, axis=1, kind="stable")[:, :2].T
    rare = np.where(scaled[second] < RARE, second, kit.UNLABELED)
    return np.where(posteriors.max(axis=1, initial=0) > thresholds[first], first, rare)


class CBAFed(ClassShareStrategy):
    """The base strategy; every fifth round ends with the mean of its model and a past one."""

    state = {**ClassShareStrategy.state, PAST: {}}

    def after_round(self, reports: Mapping[str, Any]) -> None:
        """Take the class shares of the round."""
        counts = reports[CLASS_COUNTS]
        self.state[CLASS_SHARES] = counts / counts.sum()

    def choose_clients(self, round: kit.RoundAtServer) -> Sequence[kit.ClientRef]:
        """The sample, after remembering the model with which pseudo labels begin."""
        if round.number == self.settings[kit.StageSettings].labels_only_rounds + 1:
            self.state[PAST] = kit.to_arrays(round.model)
        return super().choose_clients(round)

    def after_train(self, model: ArrayRecord) -> ArrayRecord:
        """The mean with the past model if it is its turn; that is the next past one."""
        model = super().after_train(model)
        before = self.record.round - self.settings[kit.StageSettings].labels_only_rounds - 1
        if before > 0 and before % EVERY == 0:
            model = mix(model, kit.to_record(self.state[PAST]), 0.5)
            self.state[PAST] = kit.to_arrays(model)
        return model


class CBAFedClient(kit.SemiSupervisedClient):
    """Trains on its labels, and on the received model's labels of its other points."""

    reports = {
        **kit.CONFIDENT,
        **class_counts(
            "how many of the points that it trains on are of each class, by label or guess"
        ),
    }

    def plan_of(self, plan: learning.LocalPlan) -> learning.LocalPlan:
        """Gradients are cut in its steps."""
        return replace(plan, max_gradient_norm=LARGEST_GRADIENT)

    def task(self, round: kit.Round) -> kit.Task:
        """Cross-entropy of labels and pseudo labels, which are made once a round."""
        stages, labeled = self.settings[kit.StageSettings], len(self.data.labeled)
        points = self.staged_points(round, lambda: self._labels(round))
        task = learning.weighted_task(points, stages, round.plan)
        counts = np.bincount(points.classes, minlength=self.num_classes).astype(float)
        reports: dict[str, Report] = {CLASS_COUNTS: counts.tolist()}
        if round.number > stages.labels_only_rounds:
            used = len(points.points) - labeled
            reports[kit.CONFIDENT_SHARE] = used / max(len(self.data.unlabeled), 1)
        return replace(task, reports=reports)

    def _labels(self, round: kit.Round) -> learning.PseudoLabels:
        points = self.data.examples.points[self.data.unlabeled]
        if not len(points):
            return learning.PseudoLabels.none(0)
        inputs, views = self.data.examples.inputs, self.labeling_views(round.number)
        posteriors = self.posteriors(inputs, points, round, views).numpy()
        shares = round.config[CLASS_SHARES].cpu().numpy()
        labels = chosen_labels(posteriors, shares, self.settings[CBAFedSettings].threshold)
        return learning.PseudoLabels(labels, (labels != kit.UNLABELED).astype(float))


METHOD = kit.Method(
    name="cbafed",
    line="Pseudo labels above a threshold of their class, which is lower for rare classes.",
    needs="labels for all points of some clients, or some points, and clients' other points",
    paper="Li, Li and Wang, CVPR 2023",
    strategy=CBAFed,
    client=CBAFedClient,
    settings=(kit.LabelSettings, kit.StageSettings, kit.WeakViewSettings, CBAFedSettings),
    data="partly-labeled",
    needs_labels=False,
    can_sum=False,  # clients without a chosen point have no part in a sum, and may be most
)
