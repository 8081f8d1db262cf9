"""Data of clients with labels for some of their points."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.content import Value
from fedul_flwr.data.label_split import open_partly_labeled_points
from fedul_flwr.data.types import UNLABELED, Ints, PartlyLabeledPoints
from fedul_flwr.federated.client import MethodClient
from fedul_flwr.federated.disclosure import PREPARE, Sent


class LabeledPointsClient(MethodClient):
    """Base of clients with partly labeled points; loads them and tells which may be trained on."""

    @cached_property
    def data(self) -> PartlyLabeledPoints:
        """This client's points: its own data, or its part of a simulated split."""
        folder = self.own_folder
        if folder is None:
            return open_partly_labeled_points(self.federation, self.node.partition_id)
        return self.load_own_points(folder)

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.federation["class-names"])

    @cached_property
    def labeled(self) -> Ints:
        """Positions of the labeled points among all of its points."""
        return np.flatnonzero(self.data.labels != UNLABELED)

    @cached_property
    def unlabeled(self) -> Ints:
        """Positions of the unlabeled points that may be used in training."""
        return np.flatnonzero((self.data.labels == UNLABELED) & ~self.data.new)

    def introduce(self) -> dict[str, Value]:
        """Numbers of points and of labels."""
        return {"num-points": len(self.data.points), "num-labeled": len(self.labeled)}

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """Inherited entries, and numbers of points and labels."""
        numbers = ("num-points", "num-labeled")
        return [*super().sends(settings), Sent(PREPARE, numbers, "how many points and labels")]

    def describe(self) -> Iterator[str]:
        """Numbers of points and of labels by class."""
        yield f"{len(self.data.points)} points, {len(self.labeled)} with a label"
        counts = np.bincount(self.data.labels[self.labeled], minlength=self.num_classes)
        for name, count in zip(self.federation["class-names"], counts, strict=True):
            yield f"class {name}: {count} with a label"
        if not len(self.labeled):
            yield "warning: no point has a label, it learns from unlabeled ones alone"
