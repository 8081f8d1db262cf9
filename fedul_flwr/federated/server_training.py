"""Supervised training at the server, on its own labeled set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord

from fedul_flwr.arrays import Arrays, Floats, Ints
from fedul_flwr.config.method_settings import ServerTrainingSettings, SupervisedPartSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.types import LabeledPoints
from fedul_flwr.federated.messages import to_arrays, to_record
from fedul_flwr.federated.nodes import DataShape
from fedul_flwr.federated.stages.heads import sums_plan
from fedul_flwr.learning import lanes
from fedul_flwr.learning.batch_statistics import norm_statistics
from fedul_flwr.learning.batches import point_batches
from fedul_flwr.learning.closed_form import SoftSums, soft_sums
from fedul_flwr.learning.filters import patch_sums
from fedul_flwr.learning.local import dump_arrays, features_of_views, load_arrays, train_local
from fedul_flwr.learning.plan import LocalPlan, local_plan, rate_factor
from fedul_flwr.learning.pseudo_labels import scaled_cross_entropy
from fedul_flwr.learning.task import Batches, BatchLoss, Task, on_logits
from fedul_flwr.models import build_model


class ServerTrainer:
    """Trains models on the server's labeled points, with a new optimizer in each round."""

    def __init__(self, settings: RunConfig, shape: DataShape, data: LabeledPoints) -> None:
        self._settings = settings
        self._data = data
        self._num_classes = len(shape.class_names)
        self._lane = lanes.one_lane(settings.lanes, settings.device, settings.method)
        self.model = build_model(
            settings.model,
            shape.model_shape,
            self._num_classes,
            options=settings.model_options,
        )

    def label_counts(self) -> Ints:
        """``(K,)``, the number of labels of each class."""
        return np.bincount(self._data.labels, minlength=self._num_classes)

    rate_factor = 1.0
    """What the step size is multiplied by (`plateau`)."""

    def plan(self, server_round: int) -> LocalPlan:
        """Plan of a round's training."""
        options = self._settings[ServerTrainingSettings]
        factor = rate_factor(self._settings, server_round, self._settings.num_rounds)
        rate = (options.learning_rate or self._settings.learning_rate) * factor * self.rate_factor
        plan = replace(local_plan(self._settings), local_epochs=options.epochs, local_steps=0)
        frozen = server_round <= self._settings.frozen_rounds
        return replace(plan, learning_rate=rate, heads_only=frozen)

    def batches(self, plan: LocalPlan) -> Batches:
        """Batches of an epoch over the labeled points."""
        return point_batches(self._data.inputs, self._data.points, self._data.labels, plan)

    def rng(self, server_round: int) -> np.random.Generator:
        """The server's random generator for a round."""
        return stream(self._settings.seed, "server", server_round)

    def train(
        self,
        arrays: ArrayRecord,
        server_round: int,
        loss: BatchLoss | None = None,
        change: Callable[[LocalPlan], LocalPlan] = lambda plan: plan,
        velocity: Arrays | None = None,
    ) -> tuple[ArrayRecord, float]:
        """``arrays`` after the epochs of one round, and the mean loss of the steps."""
        plan, rng = change(self.plan(server_round)), self.rng(server_round)
        batches, part = self.batches(plan), self._settings.find(SupervisedPartSettings)
        weighted = on_logits(scaled_cross_entropy(part.supervised_weight if part else 1.0))
        task = Task(batches, loss or weighted)
        with lanes.working_in(self._lane):
            load_arrays(self.model, to_arrays(arrays))
            result = train_local(self.model, task, plan, rng, velocity=velocity)
            # Copies: the next round trains the same tensors in place.
            trained = {name: np.array(value) for name, value in dump_arrays(self.model).items()}
        return to_record(trained), result.loss

    def soft_sums(self, arrays: Arrays) -> SoftSums:
        """Sums over the labeled points for a head in closed form."""
        load_arrays(self.model, arrays)
        data, plan = self._data, sums_plan(self._settings)
        rng = stream(self._settings.seed, "server views")
        features = features_of_views(self.model, data.inputs, data.points, plan, rng)
        return soft_sums(features, np.eye(self._num_classes)[data.labels], stated=True)

    def patch_sums(self, side: int) -> Floats:
        """Sums over patches of the labeled images, from which filters follow."""
        return patch_sums(self._data.inputs, self._data.points, side)

    def norm_statistics(self, arrays: ArrayRecord) -> tuple[Arrays, int]:
        """Statistics of batch norm over the labeled points, and their number of batches."""
        load_arrays(self.model, to_arrays(arrays))
        plan = local_plan(self._settings)
        return norm_statistics(self.model, self._data.inputs, self._data.points, plan)
