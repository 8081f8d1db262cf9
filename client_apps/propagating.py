"""Base of clients that propagate labels, across clients or on their own."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from client_apps.partly_labeled import PartlyLabeledClient, nothing
from fedul_flwr.config.semi import PropagationSettings
from fedul_flwr.data.types import Floats, Ints, Propagated
from fedul_flwr.propagation.central import propagated_scores
from fedul_flwr.propagation.labels import labels_from_scores


class PropagatingClient(PartlyLabeledClient):
    """Computes features of its points, and can propagate its own labels over their graph."""

    @property
    def propagation(self) -> PropagationSettings:
        """Settings of the propagation."""
        return self.settings[PropagationSettings]

    @cached_property
    def shown(self) -> Ints:
        """Positions of the points in the graph."""
        return np.flatnonzero(~self.data.new)

    @property
    def given(self) -> Ints:
        """Given labels of the points in :attr:`shown`, -1 for unlabeled ones."""
        return self.data.labels[self.shown]

    def features(self) -> NDArray[np.float32]:
        """``(n, d)``, features of the points in :attr:`shown` from the current model."""
        from fedul_flwr.learning.features import extract_features
        from fedul_flwr.learning.local_plan import local_plan

        points = self.data.points[self.shown]
        return extract_features(self.model, self.data.images, points, local_plan(self.settings))

    def of_unlabeled(self, found: Propagated) -> Propagated:
        """Restrict a result for the points in :attr:`shown` to those in :attr:`unlabeled`."""
        labels, confidence = nothing(len(self.data.points))
        labels[self.shown], confidence[self.shown] = found
        return Propagated(labels[self.unlabeled], confidence[self.unlabeled])

    def own_scores(self, features: NDArray[np.float32]) -> Floats:
        """Scores ``(n, K)`` of the points in :attr:`shown` from this client's labels alone."""
        options = self.propagation
        return propagated_scores(
            features,
            self.given,
            num_classes=self.num_classes,
            k=options.k,
            num_bits=options.num_bits,
            alpha=options.alpha,
            power=options.power,
            class_scaling=options.class_scaling,
        )

    def own_propagation(self, features: NDArray[np.float32]) -> Propagated:
        """Labels of the points in :attr:`shown` from this client's labels alone."""
        return labels_from_scores(self.own_scores(features), self.given)
