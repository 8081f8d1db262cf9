"""Base of clients on partly labeled data: training on labels and pseudo labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from client_apps.labeled_points import LabeledPointsClient
from fedul_flwr.config.semi import PropagatedLabelSettings, PseudoLabelSettings, StageSettings
from fedul_flwr.data.types import UNLABELED, Propagated
from fedul_flwr.federated.client import TrainingData
from fedul_flwr.results.label_names import PSEUDO_LABELS

if TYPE_CHECKING:
    from torch import Tensor

    from fedul_flwr.learning.batches import Batches
    from fedul_flwr.learning.local import Objective
    from fedul_flwr.learning.network import Network
    from fedul_flwr.learning.plan import LocalPlan


class PartlyLabeledClient(LabeledPointsClient):
    """Trains on labeled points and, from the second stage on, also on pseudo-labeled ones.

    Subclasses override :meth:`pseudo_labels`.
    """

    @property
    def stages(self) -> StageSettings:
        """Settings of the stages, and of pseudo labels if the method has any."""
        return self.settings[StageSettings]

    @property
    def on_labels_only(self) -> bool:
        """Whether this round belongs to the first stage."""
        return self.server_round <= self.stages.labels_only_rounds

    def pseudo_labels(self) -> Propagated:
        """Pseudo labels (-1 for none) and confidences of :attr:`unlabeled` in this round."""
        return nothing(len(self.unlabeled))

    def largest_confidence(self, confidence: NDArray[np.float64]) -> float:
        """Divisor of ``confidence`` with setting ``relative-confidence``."""
        return float(confidence.max())

    def stage(self, server_round: int) -> tuple[int, int]:
        """Number of the round within its stage, from 1, and the stage's length."""
        every = self.settings.num_rounds
        first = min(self.stages.labels_only_rounds, every)
        return (
            (server_round, first)
            if server_round <= first
            else (server_round - first, every - first)
        )

    def training_data(self) -> TrainingData:
        """Labeled points, then pseudo-labeled ones; targets are positions among these."""
        guess = nothing(len(self.unlabeled)) if self.on_labels_only else self.pseudo_labels()
        self.leave_pseudo_labels(guess)
        usable = self._usable(guess)
        self.classes = np.concatenate([self.data.labels[self.labeled], guess.labels[usable]])
        self.weights = self._weights_of(guess.confidence[usable])
        positions = np.concatenate([self.labeled, self.unlabeled[usable]])
        points = self.data.points[positions]
        return TrainingData(self.data.images, points, np.arange(len(points), dtype=np.int64))

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """Batches of ``batch-size`` labeled points and as many pseudo-labeled ones."""
        from fedul_flwr.learning.batches import paired_batches

        return paired_batches(data.images, data.points, len(self.labeled), plan)

    def objective(self, server_round: int) -> Objective:
        """Cross-entropy weighted by confidence; strong views of pseudo-labeled points if set."""
        import torch

        from fedul_flwr.learning.weighted import weighted_cross_entropy

        del server_round
        classes, weights = torch.from_numpy(self.classes), torch.from_numpy(self.weights).float()

        def objective(network: Network, inputs: Tensor, positions: Tensor) -> Tensor:
            at, where = positions.cpu(), positions.device
            logits = network(self._views(inputs, at))
            return weighted_cross_entropy(logits, classes[at].to(where), weights[at].to(where))

        return objective

    def leave_pseudo_labels(self, guess: Propagated) -> None:
        """Write this round's pseudo labels for a simulation to score; on a device do nothing."""
        self.state.leave(
            PSEUDO_LABELS,
            self.server_round,
            {
                "points": self.data.points[self.unlabeled],
                "labels": guess.labels,
                "confidence": guess.confidence,
            },
        )

    def _views(self, inputs: Tensor, positions: Tensor) -> Tensor:
        """Inputs, with RandAugment applied to those of pseudo-labeled points."""
        if not isinstance(self.stages, PseudoLabelSettings) or not self.stages.operations:
            return inputs
        from fedul_flwr.learning.randaugment import randaugment

        guessed = positions >= len(self.labeled)
        if guessed.any():
            inputs = inputs.clone()
            inputs[guessed] = randaugment(inputs[guessed], self.stages.operations)
        return inputs

    def _usable(self, guess: Propagated) -> NDArray[np.bool_]:
        """Mask of the pseudo labels to train on: those of highest confidence; ties all or none."""
        usable = (guess.labels != UNLABELED) & (guess.confidence > 0)
        least = 0.0
        if isinstance(self.stages, PseudoLabelSettings) and usable.any():
            confidence = guess.confidence[usable]
            least = float(np.quantile(confidence, 1 - self.stages.surest, method="higher"))
        return np.asarray(usable & (guess.confidence >= least))

    def _weights_of(self, confidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weight of every training point: 1 or its confidence, times the weight of its class."""
        from fedul_flwr.learning.weighted import class_weights

        stages = self.stages
        if not isinstance(stages, PseudoLabelSettings):
            return np.ones(len(self.classes))
        relative = isinstance(stages, PropagatedLabelSettings) and stages.relative_confidence
        if relative and len(confidence):
            confidence = confidence / self.largest_confidence(confidence)
        weights = np.concatenate([np.ones(len(self.labeled)), confidence])
        if stages.class_weights and len(confidence):
            weights = weights * class_weights(self.classes, self.num_classes)[self.classes]
        return weights


def nothing(size: int) -> Propagated:
    """Empty result of pseudo-labeling for ``size`` points: no labels."""
    return Propagated(np.full(size, UNLABELED, dtype=np.int64), np.zeros(size))
