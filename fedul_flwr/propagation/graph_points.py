"""A client's points in the similarity graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.config.semi import PropagationSettings
from fedul_flwr.data.types import UNLABELED, Floats, Ints, PartlyLabeledPoints, Propagated
from fedul_flwr.propagation.central import propagated_scores


@dataclass(frozen=True)
class GraphPoints:
    """A client's points in the similarity graph.

    Attributes
    ----------
    examples : all of the client's points.
    positions : int64 ``(n,)``, positions in ``examples`` of the points in the graph.
    num_classes : K.
    """

    examples: PartlyLabeledPoints
    positions: Ints
    num_classes: int

    @classmethod
    def of_training(cls, examples: PartlyLabeledPoints, num_classes: int) -> GraphPoints:
        """All points except those to predict."""
        return cls(examples, np.flatnonzero(~examples.new), num_classes)

    @property
    def labels(self) -> Ints:
        """``(n,)``, their given labels, -1 for unlabeled ones."""
        return self.examples.labels[self.positions]

    @property
    def rows(self) -> Ints:
        """``(n,)``, their rows of ``examples.inputs``."""
        return self.examples.points[self.positions]

    def of_unlabeled(self, found: Propagated) -> Propagated:
        """Restrict a result for these points to the client's unlabeled training points.

        A training point outside of the graph has no label.
        """
        count = len(self.examples.points)
        labels, confidence = np.full(count, UNLABELED, dtype=np.int64), np.zeros(count)
        labels[self.positions], confidence[self.positions] = found
        unlabeled = self.examples.unlabeled
        return Propagated(labels[unlabeled], confidence[unlabeled])

    def own_scores(self, features: NDArray[np.float32], options: PropagationSettings) -> Floats:
        """Scores ``(n, K)`` of propagation from this client's labels alone.

        Parameters
        ----------
        features : ``(n, d)``.
        """
        return propagated_scores(
            features,
            self.labels,
            num_classes=self.num_classes,
            k=options.k,
            num_bits=options.num_bits,
            alpha=options.alpha,
            power=options.power,
            class_scaling=options.class_scaling,
        )
