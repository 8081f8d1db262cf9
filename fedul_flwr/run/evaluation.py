"""Test and validation error at the server, computed while the next round trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import UNLABELED, Floats, Ints, LabeledPoints, PointArrays, Source
from fedul_flwr.learning.local import load_arrays, predict_logits
from fedul_flwr.learning.plan import local_plan
from fedul_flwr.models import build_model
from fedul_flwr.run.measures import balanced_accuracy, confusion, prior_error


class Errors(NamedTuple):
    """Percent of points misclassified; ``None`` where there are no labeled points.

    ``validation_loss`` is the mean cross-entropy of the validation points, in nats; ``labeled`` is
    the error on the labeled training points. In a balanced error all classes that occur weigh
    equally; in a prior error they weigh as the class priors that the model is trained for.
    """

    test: float | None = None
    validation: float | None = None
    validation_loss: float | None = None
    labeled: float | None = None
    test_balanced: float | None = None
    validation_balanced: float | None = None
    validation_prior: float | None = None


class ErrorsAndLoss(NamedTuple):
    """Errors of a model on one set of points, in percent, and the mean cross-entropy in nats."""

    error: float | None = None
    balanced: float | None = None
    loss: float | None = None
    prior: float | None = None


class Evaluator:
    """Evaluates models on the data sets that the server has.

    Parameters
    ----------
    settings : the run's settings.
    source : the server's data; unlabeled test points do not count in errors.
    validation : rows of its training points set aside for validation.
    labeled : labeled training points, if their error is to be measured too.
    """

    def __init__(
        self,
        settings: RunConfig,
        source: Source,
        validation: Ints,
        labeled: LabeledPoints | None = None,
    ) -> None:
        self._model = build_model(
            settings.model, source.input_shape, source.num_classes, options=settings.model_options
        )
        self._plan = local_plan(settings)
        self.test = _test_points(settings, source)
        self.validation = _points(source.train, validation)
        self._labeled = labeled

    def errors(
        self, models: Sequence[Mapping[str, NDArray[np.generic]]], prior: Floats | None = None
    ) -> Errors:
        """Mean errors of models, each given by its arrays; all ``None`` for no models.

        Parameters
        ----------
        prior : ``(K,)``, class priors that the models are trained for; None if there are none.
        """
        found = [self._errors_of(arrays, prior) for arrays in models]
        return Errors(*(_mean(values) for values in zip(*found, strict=True)))

    def _errors_of(self, arrays: Mapping[str, NDArray[np.generic]], prior: Floats | None) -> Errors:
        load_arrays(self._model, arrays)
        test = self._errors_on(self.test)
        validation = self._errors_on(self.validation, prior)
        labeled = self._errors_on(self._labeled).error if self._labeled else None
        return Errors(
            test.error,
            validation.error,
            validation.loss,
            labeled,
            test.balanced,
            validation.balanced,
            validation.prior,
        )

    def logits(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        data: LabeledPoints,
        points: Ints | None = None,
    ) -> Floats:
        """Outputs ``(n, K)`` of a model on ``data``, or on other ``points`` of its inputs."""
        load_arrays(self._model, arrays)
        rows = data.points if points is None else points
        logits = predict_logits(self._model, data.inputs, rows, self._plan)
        return np.asarray(logits.double().numpy())

    def _errors_on(self, data: LabeledPoints, prior: Floats | None = None) -> ErrorsAndLoss:
        if len(data.points) == 0:
            return ErrorsAndLoss()
        logits = predict_logits(self._model, data.inputs, data.points, self._plan).double()
        loss = float(functional.cross_entropy(logits, torch.from_numpy(data.labels)))
        predicted = logits.argmax(dim=1).numpy()
        matrix = confusion(data.labels, predicted, logits.shape[1])
        accuracy = balanced_accuracy(matrix)
        assert accuracy is not None  # there are points
        error = float(100 * np.mean(predicted != data.labels))
        weighted = None if prior is None else prior_error(matrix, prior)
        return ErrorsAndLoss(error, 100 - accuracy, loss, weighted)


def _points(data: PointArrays, rows: Ints) -> LabeledPoints:
    return LabeledPoints(data.inputs, rows, np.asarray(data.labels)[rows])


def _test_points(settings: RunConfig, source: Source) -> LabeledPoints:
    """Test points with a known label; none if the run must not measure test errors."""
    if not settings.measure_test_error:
        none = np.empty(0, dtype=np.int64)
        return LabeledPoints(source.test.inputs, none, none)
    known = np.flatnonzero(np.asarray(source.test.labels) != UNLABELED)
    return _points(source.test, known.astype(np.int64))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
