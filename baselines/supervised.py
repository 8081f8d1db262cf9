"""Supervised federated training on clients' points: the upper bound for methods without labels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from torch.nn import functional

from fedul_flwr.config.baselines import SupervisedSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Value
from fedul_flwr.data.seeds import stream
from fedul_flwr.data.set_split import open_labeled_points, open_unlabeled_sets
from fedul_flwr.data.types import UNLABELED, LabeledPoints
from fedul_flwr.errors import OwnDataError, UserError
from fedul_flwr.federated.client import MethodClient, TrainingData
from fedul_flwr.federated.disclosure import PREPARE, Sent
from fedul_flwr.learning.batches import Batches, num_batches, repeated_batches
from fedul_flwr.learning.local import Loss
from fedul_flwr.learning.plan import LocalPlan


class SupervisedClient(MethodClient):
    """Trains on this client's points with their labels, or on a part of them."""

    @property
    def options(self) -> SupervisedSettings:
        """Settings in table ``supervised``."""
        return self.settings[SupervisedSettings]

    @cached_property
    def data(self) -> LabeledPoints:
        """Labeled points for training: ``supervised.label-fraction`` of all, at least one."""
        everything = self._all_points()
        count = max(1, round(self.options.label_fraction * len(everything.points)))
        # The same order for all fractions: a larger one includes the points of a smaller one.
        order = stream(self.settings.seed, "labeled", self.node.partition_id).permutation(
            len(everything.points)
        )
        chosen = np.sort(order[:count])
        return LabeledPoints(
            everything.images, everything.points[chosen], everything.labels[chosen]
        )

    def _all_points(self) -> LabeledPoints:
        folder = self.own_folder
        if folder is None:
            return open_labeled_points(self.federation, self.node.partition_id)
        if self.options.steps == "sets":
            raise UserError(
                "Setting supervised.steps = 'sets' is for simulations: an owner of labeled points "
                "has no unlabeled sets. Use 'labeled'."
            )
        own = self.load_own_points(folder)
        missing = int((own.labels == UNLABELED).sum())
        if missing:
            raise OwnDataError(
                f"{missing} of the {len(own.points)} points in {folder} have no label; method "
                f"{self.settings.method!r} learns from the labels of all points.",
                "labels",
            )
        return LabeledPoints(own.images, own.points, own.labels)

    def introduce(self) -> dict[str, Value]:
        """Number of training points."""
        return {"num-points": len(self.data.points)}

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """Inherited entries, and the number of points."""
        return [*super().sends(settings), Sent(PREPARE, ("num-points",), "how many points")]

    def describe(self) -> Iterator[str]:
        """Number of points by class."""
        yield f"{len(self.data.points)} points to train on, all with a label"
        names = self.federation["class-names"]
        counts = np.bincount(self.data.labels, minlength=len(names))
        yield from (f"class {name}: {n} points" for name, n in zip(names, counts, strict=True))

    def training_data(self) -> TrainingData:
        """Points with their classes as targets."""
        return TrainingData(self.data.images, self.data.points, self.data.labels)

    def batches(self, data: TrainingData, plan: LocalPlan) -> Batches:
        """One pass over the labeled points, or as many steps as FedUL makes over the sets."""
        if self.options.steps == "labeled":
            return super().batches(data, plan)
        in_sets = open_unlabeled_sets(self.federation, self.node.partition_id).points
        count = num_batches(len(in_sets), plan.batch_size)
        return repeated_batches(data.images, data.points, data.targets, plan, count)

    def loss(self) -> Loss:
        """Cross-entropy."""
        return functional.cross_entropy
